"""Stop in every phase, and resume after it: what was saved in the grace is where the next generation begins."""

from __future__ import annotations

import os
import signal
import sqlite3
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pytest

from supervisor.wording.figures import DASH
from tests.acceptance.stories import Stories, stories
from tests.waiting import wait_for

pytestmark = pytest.mark.xdist_group("stories-stop")
ZONES = ["local-a", "local-b", "local-c"]
NEVER = "1000000"  # a checkpoint only when TERM asks for one


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stories]:
    with stories(tmp_path_factory.mktemp("stop")) as told:
        yield told


@contextmanager
def no_capacity(house: Stories) -> Iterator[None]:
    house.daemon.call("POST", "/v1/dev/stockout", {"zones": ZONES, "for_s": None})
    try:
        yield
    finally:
        house.daemon.call("POST", "/v1/dev/stockout", {"zones": ZONES, "for_s": 0})


def stopped(house: Stories, run_id: str, by: str = "local") -> dict[str, object]:
    run = house.wait(run_id, "stopped", "failed", "completed")
    assert (run["status"], run["cause"]) == ("stopped", "stop_requested"), (run, house.told(run_id))
    assert f"Stopped by {by}" in run["status_text"]
    assert f"spot resume {run_id}" in run["status_text"]
    assert f"Stopped by {by}" in house.told(run_id, "stopped")[-1]
    house.nothing_is_left(run_id)
    assert house.daemon.run(run_id)["next_action"]["what"] == DASH
    return dict(run)


def test_stop_while_waiting_takes_nothing_and_needs_nothing(house: Stories) -> None:
    with no_capacity(house):
        house.train("stop-waiting")
        run = house.wait("stop-waiting", "waiting")
        assert run["cause"] == "no_capacity"
        assert "Nothing is billed" in run["status_text"]
        assert house.post("/v1/runs/stop-waiting/stop").status_code == 202
        run = stopped(house, "stop-waiting")
        assert "No checkpoint was made" in str(run["status_text"])
    assert house.attempts("stop-waiting") == []
    assert house.lives("stop-waiting") == []


def test_stop_in_the_middle_of_a_start_is_quick_at_any_moment(house: Stories) -> None:
    """Pending, the try on record, the baton raised, the machine being made: no run hangs, none leaves a machine."""
    names = [f"stop-early-{number}" for number in range(8)]
    for number, name in enumerate(names):
        house.daemon.submit(name, command=["sleep", "600"])
        time.sleep(number * 0.01)  # the moments are the story
        assert house.post(f"/v1/runs/{name}/stop").status_code == 202
    for name in names:
        run = stopped(house, name)
        assert run["counters"]["counted"] == 0  # type: ignore[index]


def test_stop_saves_in_the_grace_and_resume_goes_on_from_there(house: Stories) -> None:
    house.train("stop-running", "--every", NEVER)
    house.trains("stop-running", beyond=4)
    assert house.baton("stop-running")["checkpoint"] is None
    assert house.post("/v1/runs/stop-running/stop").json()["status"] in ("running", "stopping")
    run = stopped(house, "stop-running")
    kept = run["checkpoint_step"]
    assert isinstance(kept, int)
    assert kept > 4
    assert f"Checkpoint {kept} is kept" in str(run["status_text"])
    assert f"Checkpoint kept: {kept}." in house.told("stop-running", "stopped")[0]
    [attempt] = house.attempts("stop-running")
    assert (attempt["cause"], attempt["step_kept"]) == ("stop_requested", kept)
    assert "stop requested by local" in attempt["evidence"]
    assert house.baton("stop-running")["closed"] == "stop_requested"
    assert house.post("/v1/runs/stop-running/stop").status_code == 200  # twice is once

    assert house.post("/v1/runs/stop-running/resume").status_code == 202
    run = house.trains("stop-running", beyond=kept)
    assert run["generation"] == 2
    assert run["counters"]["attempts"] == 2
    assert house.lives("stop-running") == [(1, 0), (2, kept)]
    assert "generation 2 starts from its newest checkpoint" in house.told("stop-running", "resumed")[0]
    house.completes("stop-running")
    assert (house.objects / "runs/stop-running/results/g2/out.txt").exists()
    assert not (house.objects / "runs/stop-running/results/g1").exists()
    assert not (house.objects / "runs/stop-running/.stop").exists()


def test_a_marker_written_by_hand_stops_and_its_resume_uses_it_up(house: Stories) -> None:
    house.train("stop-marker")
    house.trains("stop-marker")
    step = house.saved("stop-marker")
    marker = house.objects / "runs/stop-marker/.stop"
    marker.touch()
    run = stopped(house, "stop-marker", by="a .stop marker")
    assert run["checkpoint_step"] >= step  # type: ignore[operator]
    assert marker.exists()
    house.daemon.call("POST", "/v1/runs/stop-marker/resume")
    assert not marker.exists()
    house.trains("stop-marker", beyond=step)
    assert house.baton("stop-marker")["stop_consumed"]
    house.completes("stop-marker")


def test_a_marker_that_is_newer_than_the_resume_wins(house: Stories) -> None:
    """The resume has read one marker and waits for its turn to write; meanwhile somebody writes another."""
    house.daemon.submit("stop-newer", command="sleep 60", stop_grace_s=5)
    house.wait("stop-newer", "running")
    house.daemon.call("POST", "/v1/runs/stop-newer/stop")
    marker = house.objects / "runs/stop-newer/.stop"

    def overtaken() -> bool:
        house.wait("stop-newer", "stopped")
        marker.touch()
        with ThreadPoolExecutor(1) as people, somebody_writes(house):
            answer = people.submit(house.post, "/v1/runs/stop-newer/resume")
            time.sleep(0.3)  # a resume that has not read it by now finds the newer one, and we try again
            marker.touch()
        found: httpx.Response = answer.result()
        assert found.status_code in (202, 409), found.text
        if found.status_code == 202:
            house.daemon.call("POST", "/v1/runs/stop-newer/stop")
            return False
        assert found.json()["code"] == "STOP_NEWER"
        assert found.headers["content-type"] == "application/problem+json"
        assert "it will stop again" in found.json()["detail"]
        return True

    wait_for(overtaken, 60, "a resume that is overtaken")
    stopped(house, "stop-newer", by="a .stop marker")


@contextmanager
def somebody_writes(house: Stories) -> Iterator[None]:
    """The database's write lock is held."""
    with closing(sqlite3.connect(house.daemon.data_dir / "supervisor.db", isolation_level=None)) as writer:
        writer.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            writer.execute("ROLLBACK")


def test_a_frozen_training_that_is_stopped_is_woken_to_save(house: Stories) -> None:
    house.train("stop-frozen", "--every", NEVER, stall={"polls": 1000})
    house.trains("stop-frozen", beyond=2)
    house.daemon.call("POST", "/v1/dev/freeze", {"run_id": "stop-frozen"})
    wait_for(lambda: house.daemon.run("stop-frozen")["stall"]["polls"] >= 2, 60, "stall polls")
    assert "No progress since step" in house.daemon.run("stop-frozen")["status_text"]
    house.daemon.call("POST", "/v1/runs/stop-frozen/stop")
    run = stopped(house, "stop-frozen")
    assert isinstance(run["checkpoint_step"], int)


def test_a_training_that_does_not_heed_is_killed_after_the_grace(house: Stories) -> None:
    house.train("stop-deaf", "--on-term", "ignore", stop_grace_s=1.5)
    house.trains("stop-deaf")
    kept = house.saved("stop-deaf")
    house.daemon.call("POST", "/v1/runs/stop-deaf/stop")
    run = house.wait("stop-deaf", "stopping")
    assert "Next: waiting for the final checkpoint (up to" in run["status_text"]
    run = stopped(house, "stop-deaf")
    assert run["checkpoint_step"] >= kept  # type: ignore[operator]


def test_a_preemption_while_stopping_stays_a_stop_and_names_both(house: Stories) -> None:
    house.train("stop-preempted", "--on-term", "ignore", stop_grace_s=30)
    house.trains("stop-preempted")
    house.saved("stop-preempted")
    house.daemon.call("POST", "/v1/runs/stop-preempted/stop")
    house.wait("stop-preempted", "stopping")
    house.daemon.call("POST", "/v1/dev/preempt", {"run_id": "stop-preempted", "notice_s": 0})
    run = stopped(house, "stop-preempted")
    assert run["counters"]["attempts"] == 1  # type: ignore[index]
    [attempt] = house.attempts("stop-preempted")
    assert attempt["cause"] == "stop_requested"
    assert "stop requested by local; meanwhile preempted" in attempt["evidence"]


def test_stop_while_it_recovers_launches_nothing_more(house: Stories) -> None:
    house.train("stop-recovering")
    house.trains("stop-recovering")
    step = house.saved("stop-recovering")
    with no_capacity(house):
        house.daemon.call("POST", "/v1/dev/preempt", {"run_id": "stop-recovering", "notice_s": 0})
        run = house.wait("stop-recovering", "waiting")
        assert run["checkpoint_step"] >= step
        house.daemon.call("POST", "/v1/runs/stop-recovering/stop")
        run = stopped(house, "stop-recovering")
    assert len(house.lives("stop-recovering")) == 1
    assert f"Checkpoint {run['checkpoint_step']} is kept" in str(run["status_text"])


def test_stop_of_an_agent_that_answers_nobody_ends_with_its_machine(house: Stories) -> None:
    """The agent itself is frozen: it hears no TERM. When the grace is over the machine goes all the same."""
    house.train("stop-mute", stop_grace_s=1.5)
    house.trains("stop-mute")
    kept = house.saved("stop-mute")
    os.kill(house.agent_pid("stop-mute"), signal.SIGSTOP)
    house.daemon.call("POST", "/v1/runs/stop-mute/stop")
    run = stopped(house, "stop-mute")
    assert run["checkpoint_step"] >= kept  # type: ignore[operator]
    assert Path(f"{house.gate('stop-mute')}.lives").read_text() == "1 0\n"


def test_stop_never_undoes_finished_work(house: Stories) -> None:
    house.train("stop-late")
    house.trains("stop-late")
    house.completes("stop-late")
    answer = house.post("/v1/runs/stop-late/stop")
    assert (answer.status_code, answer.json()["status"]) == (200, "completed")
    (house.objects / "runs/stop-late/.stop").touch()
    house.completes("stop-late")
    assert "stop" not in "".join(house.told("stop-late")).lower()
