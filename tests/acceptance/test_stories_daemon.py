"""The supervisor leaves and comes back, and machines are scarce: runs that go on do not notice either."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from tests.acceptance.stories import STORY, Stories, stories

pytestmark = pytest.mark.xdist_group("stories-daemon")


def test_sigterm_leaves_and_no_run_notices(tmp_path: Path) -> None:
    with stories(tmp_path) as house:
        for run_id in ("steady", "ends-meanwhile"):
            house.train(run_id)
        house.trains("ends-meanwhile")
        step = house.trains("steady")["progress"]["step"]
        pids = house.training_pids("steady")
        assert pids
        assert house.daemon.kill(signal.SIGTERM) == 0
        assert not (house.daemon.data_dir / "server.json").exists()
        house.open_gate("ends-meanwhile")
        saved = house.saved("steady", at_least=step + 5)  # with nobody watching

        house.daemon.start()
        assert house.training_pids("steady") == pids
        told = house.get("/v1/events?newest_first=true")["events"]
        [back] = [one["text"] for one in told if one["kind"] == "supervisor_started"]  # not at the very first start
        assert " away. 2 live runs found: 2 running." in back
        run = house.trains("steady", beyond=saved)
        assert run["counters"]["attempts"] == 1
        for run_id in ("steady", "ends-meanwhile"):
            house.completes(run_id)
            assert house.lives(run_id) == [(1, 0)]


def test_two_runs_and_room_for_one(tmp_path: Path) -> None:
    room = {**STORY, "SPOT_LOCAL_ZONES": "only", "SPOT_LOCAL_CAPACITY": "only=1"}
    with stories(tmp_path, room) as house:
        house.train("first")
        house.trains("first")
        house.train("second")
        run = house.wait("second", "waiting")
        assert run["cause"] == "queued"
        assert "our own machines use all capacity of only" in run["status_text"]
        assert "Nothing is billed" in run["status_text"]
        assert run["next_action"]["what"] == "queued"
        assert house.lives("second") == []
        [told] = house.told("second", "waiting")
        assert told.startswith("Queued: our own machines use all capacity of only")
        placing = house.get("/v1/runs/second/attempts")
        assert placing["attempts"] == []
        assert not (placing["next"] or {}).get("tries"), "nothing was asked for"
        _first_ends_second_begins(house)


def _first_ends_second_begins(house: Stories) -> None:
    house.completes("first")
    run = house.trains("second")
    assert run["counters"]["attempts"] == 1
    assert run["counters"]["tries"] == 1
    assert house.completes("second")["counters"]["counted"] == 0
