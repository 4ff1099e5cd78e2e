"""Several supervisors on one PostgreSQL: all answer, one leads each cell, and a lost one changes nothing for a run."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.acceptance.daemon import Daemon, machine_pids
from tests.acceptance.replicas import Pair, Training, agents, checks, finding, leading, leads, pair
from tests.waiting import wait_for

POLL_S = 600.0  # where nothing may depend on the next poll: each wait of the story has a shorter deadline
SELDOM = {"SPOT_BEAT_STORE_S": "50"}  # so that a young beat is one that was pushed


@pytest.fixture
def replicas(tmp_path: Path, postgres_database: str) -> Iterator[Pair]:
    """Of one cell: `one` leads, `two` follows."""
    with pair(tmp_path, postgres_database, same_machines=True, **SELDOM) as both:
        yield both


@pytest.fixture
def slow_replicas(tmp_path: Path, postgres_database: str) -> Iterator[Pair]:
    more = {**SELDOM, "SPOT_POLL_INTERVAL_S": str(POLL_S)}
    with pair(tmp_path, postgres_database, same_machines=True, **more) as both:
        yield both


@pytest.fixture
def neighbours(tmp_path: Path, postgres_database: str) -> Iterator[Pair]:
    """Each with machines of its own."""
    with pair(tmp_path, postgres_database, same_machines=False) as both:
        leading(both.two)
        yield both


def test_a_follower_takes_submits_and_stops_and_the_leader_acts_at_once(slow_replicas: Pair) -> None:
    one, two = slow_replicas.one, slow_replicas.two
    assert checks(two)["lease"] == "held by another replica"
    first = slow_replicas.start("digits-1", at=two)
    two.call("POST", "/v1/runs/digits-1/stop")
    two.wait_status("digits-1", "stopped")
    two.call("POST", "/v1/runs/digits-1/resume")
    one.wait_status("digits-1", "running")
    first.finish()
    two.wait_status("digits-1", "completed")
    assert first.lives == 2
    assert not leads(two)


def test_a_killed_leader_is_followed_and_its_machines_are_kept(replicas: Pair) -> None:
    one, two = replicas.one, replicas.two
    training = replicas.start("digits-1", at=two)
    before = agents(one)
    assert len(before) == 1
    one.kill()
    leading(two)
    assert two.run("digits-1")["status"] == "running"
    assert agents(one) == before, "no machine was touched"
    # The agent pushes to the address in the folder that it was started from: that is a follower's now.
    one.start()
    assert checks(one)["lease"] == "held by another replica"
    wait_for(lambda: _heard(two, "digits-1"), 30, "the leader to hear of beats that the follower receives")
    training.finish()
    assert two.wait_status("digits-1", "completed")["attempt"] == 1
    assert training.lives == 1


def _heard(daemon: Daemon, run_id: str) -> bool:
    """A beat younger than any that the object store has (50 s apart)."""
    beat = daemon.run(run_id)["beat"]
    return beat is not None and beat["phase"] == "training" and beat["age_s"] < 5.0


def test_a_leader_that_was_frozen_wakes_up_as_a_follower(replicas: Pair) -> None:
    one, two = replicas.one, replicas.two
    first = replicas.start("digits-1", at=one)
    second = Training(replicas.folder, "digits-2")
    os.kill(one.pid, signal.SIGSTOP)
    try:
        leading(two)
        second.submit(two)
        two.wait_status("digits-2", "running")
    finally:
        os.kill(one.pid, signal.SIGCONT)
    wait_for(lambda: checks(one)["lease"] == "held by another replica", 30, "the old leader to follow")
    for training in (first, second):
        training.finish()
        assert one.wait_status(training.run_id, "completed")["attempt"] == 1
        assert training.lives == 1
    assert leads(two)


def test_each_leads_the_machines_of_its_own_folder(neighbours: Pair) -> None:
    one, two = neighbours.one, neighbours.two
    assert leads(one)
    neighbours.start("digits-1", at=one)
    assert len(agents(one)) == 1
    assert not machine_pids(two.data_dir)
    refused = two.http.post(f"{two.url}/v1/dev/kill", json={"run_id": "digits-1"})
    assert refused.status_code == 403, refused.text
    two.call("POST", "/v1/runs/digits-1/stop")
    two.wait_status("digits-1", "stopped")
    two.call("POST", "/v1/runs/digits-1/resume")
    two.wait_status("digits-1", "running")
    assert len(agents(one)) == 1, "a run stays in the cell of its first submit"
    assert not machine_pids(two.data_dir)


def test_the_machines_of_a_lost_neighbour_are_left_alone(neighbours: Pair) -> None:
    one, two = neighbours.one, neighbours.two
    theirs = neighbours.start("digits-1", at=one)
    before = agents(one)
    one.kill()
    wait_for(lambda: finding(two, "cells")["result"] == "warn", 30, "the doctor to miss a leader")
    ours = Training(neighbours.folder, "digits-2")
    ours.submit(two)
    two.wait_status("digits-2", "running")
    assert two.run("digits-1")["status"] == "running"
    assert agents(one) == before
    assert len(agents(two)) == 1
    theirs.finish()
    ours.finish()
    two.wait_status("digits-2", "completed")
    one.start()
    one.wait_status("digits-1", "completed")
    assert (theirs.lives, ours.lives) == (1, 1)
    assert finding(two, "cells")["result"] == "ok"
