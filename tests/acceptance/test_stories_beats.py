"""Beats that lie, beats that stop, beats of the past: none of them moves a run that is well, each is told of."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from supervisor.contract import heartbeat, runfiles
from supervisor.contract.heartbeat import Beat
from tests.acceptance.stories import STORY, Stories, stories
from tests.waiting import wait_for

pytestmark = pytest.mark.xdist_group("stories-beats")


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stories]:
    with stories(tmp_path_factory.mktemp("beats"), {**STORY, "SPOT_SILENCE_S": "5"}) as told:
        yield told


def last_beat(house: Stories, run_id: str) -> Beat:
    """As the agent stored it, nonce and all."""
    path = house.objects / runfiles.beat(run_id)
    wait_for(path.exists, 60, f"a stored beat of {run_id}")
    return heartbeat.parse(path.read_bytes())


def push(house: Stories, run_id: str, **fields: Any) -> tuple[int, str]:
    """Send a beat that differs from the agent's own in `fields`: (status, code of the refusal)."""
    data = {**json.loads(heartbeat.encode(last_beat(house, run_id))), **fields}
    answer = house.post(f"/v1/runs/{run_id}/heartbeat", data)
    body = answer.json()
    if answer.status_code != 200:
        assert answer.headers["content-type"] == "application/problem+json"
    return answer.status_code, body.get("code", "")


def unharmed(house: Stories, run_id: str, before: Any) -> Any:
    """It went on as if nothing had been sent."""
    run = house.trains(run_id, beyond=before["progress"]["step"])
    assert (run["status"], run["attempt"], run["stall"]["polls"]) == ("running", 1, 0)
    assert run["progress"]["step"] < 100_000
    assert house.lives(run_id) == [(1, 0)]
    return run


def test_forged_beats_are_refused_told_of_once_and_change_nothing(house: Stories) -> None:
    house.train("forged")
    run = house.trains("forged")
    beat = last_beat(house, "forged")
    forged = {"sequence": beat.sequence + 1000, "exit": {"code": 0}, "phase": "finishing", "step": 900_000}
    assert push(house, "forged", nonce="0" * 32, **forged) == (403, "NONCE_REFUSED")
    assert push(house, "forged", nonce="", **forged) == (403, "NONCE_REFUSED")
    assert push(house, "forged", launch_id="1.7.1", attempt=7, **forged) == (403, "NONCE_REFUSED")
    wait_for(lambda: house.events("forged", "beat_rejected"), 60, "the event")
    [event] = house.events("forged", "beat_rejected")
    assert "A pushed beat was refused" in event["text"]
    assert "It changed nothing" in event["text"]
    assert beat.nonce not in event["text"]
    unharmed(house, "forged", run)
    house.completes("forged")
    after = json.loads(heartbeat.encode(beat))
    assert house.post("/v1/runs/forged/heartbeat", after).status_code == 409  # the run is over: look at the baton
    house.everything_answers("forged")


@pytest.mark.parametrize("step", [10**18, -1, 1.5, "12", True])
def test_a_step_beyond_all_trainings_is_refused(house: Stories, step: object) -> None:
    house.daemon.submit("absurd", command=["sleep", "600"], stop_grace_s=1)
    house.wait("absurd", "running")
    assert push(house, "absurd", step=step, sequence=10**6) == (422, "INVALID_REQUEST")
    wait_for(lambda: house.events("absurd", "beat_rejected"), 60, "the event")
    assert "step is not a count from 0 to 10**15" in house.told("absurd", "beat_rejected")[0]
    run = house.daemon.run("absurd")
    assert run["status"] == "running"
    assert run["progress"]["step"] is None
    house.everything_answers("absurd")


def test_a_beat_of_an_older_attempt_moves_nothing(house: Stories) -> None:
    house.train("older")
    house.trains("older")
    kept = house.saved("older")
    old = json.loads(heartbeat.encode(last_beat(house, "older")))
    house.daemon.call("POST", "/v1/dev/preempt", {"run_id": "older", "notice_s": 0})
    assert house.ended("older")["cause"] == "preempted"
    run = house.trains("older", beyond=kept)
    assert run["attempt"] == 2
    lies = {"sequence": old["sequence"] + 500, "step": 700_000, "exit": {"code": 1}, "phase": "finished"}
    answer = house.post("/v1/runs/older/heartbeat", {**old, **lies})
    assert answer.status_code == 200  # it carries its own nonce: heard, and of no account
    (house.objects / runfiles.beat("older")).write_bytes(json.dumps({**old, **lies}).encode())
    run = house.trains("older", beyond=run["progress"]["step"] + 5)
    assert (run["status"], run["attempt"], run["counters"]["counted"]) == ("running", 2, 0)
    assert run["progress"]["step"] < 700_000
    assert house.completes("older")["counters"]["attempts"] == 2
    assert [one["cause"] for one in house.attempts("older")] == ["preempted", "finished"]


def test_an_agent_that_falls_silent_on_a_live_machine_is_replaced(house: Stories) -> None:
    """The training beside it goes on stepping: nobody hears of it, so it does not count, and it does not survive."""
    house.train("silent")
    house.train("silent-neighbour")
    house.trains("silent")
    kept = house.saved("silent")
    os.kill(house.agent_pid("silent"), signal.SIGSTOP)
    attempt = house.ended("silent")
    assert attempt["cause"] == "agent_lost"
    assert "(limit 5 s) while the machine is up" in attempt["evidence"]
    [event] = house.events("silent", "attempt_ended")
    assert any(reading.startswith("listing: up") for reading in event["data"]["readings"])
    run = house.trains("silent", beyond=kept)
    assert run["counters"]["counted"] == 1
    assert house.lives("silent")[1][1] >= kept
    wait_for(lambda: house.attempts("silent")[0]["gone_at"], 60, "the old machine to be known gone")
    house.completes("silent")
    assert house.completes("silent-neighbour")["counters"]["attempts"] == 1
