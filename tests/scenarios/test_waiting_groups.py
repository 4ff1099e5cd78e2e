"""Thousands of runs that wait for their group, or for one run, cost the tick no read of their own and no request."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.domain.causes import Cause
from supervisor.domain.policies import Policy
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from tests.properties import examples
from tests.scenarios.stage import CELL, Stage

MANY = examples(2_000, 10_000)
STOP_MARKERS = MANY * 30 // 600  # each run's marker is read once in ten minutes, waiting or not


@pytest.fixture
def stage(folder: Path) -> Iterator[Stage]:
    stage = Stage(folder)
    yield stage
    stage.close()


def insert(stage: Stage, run_id: str, policy: Policy, status: Status = Status.PENDING) -> None:
    now = stage.clock.now()
    run = Run(
        key=0, run_id=run_id, owner="local", cell=CELL, provider="local", generation=1, status=status, policy=policy,
        created_at=now, generation_at=now, status_since=now, settled=status == Status.COMPLETED,
    )  # fmt: skip
    with stage.parts.store.begin(now) as tx:
        tx.insert(run, {"command": ["train"]}, {}, ())


def cost_of_a_tick(stage: Stage) -> tuple[int, dict[str, int]]:
    """(requests to platform and object store, calls of the database)"""
    stage.run_for(stage.settings.poll - 1.0)
    before, ticks = stage.rows.calls.copy(), stage.ticks
    stage.run_for(stage.settings.poll)
    assert stage.ticks == ticks + 1
    return stage.requests, dict(stage.rows.calls - before)


def test_runs_that_wait_for_their_group_cost_one_pass(stage: Stage) -> None:
    policy = Policy(group="sweep", max_parallel=1)
    for number in range(MANY):
        insert(stage, f"cell-{number}", policy)
    stage.run_for(60.0)
    runs = [run for run in stage.supervisor.tick.runs.values() if run.cause == Cause.GROUP_LIMIT]
    assert len(runs) >= MANY - 1
    requests, calls = cost_of_a_tick(stage)
    assert sum(calls.values()) < 20, calls
    assert "apply_all" not in calls, "they are not written again"
    assert requests < STOP_MARKERS + 10
    assert len(stage.provider.launches) == 1


def test_runs_that_wait_for_others_are_read_with_one_query(stage: Stage) -> None:
    insert(stage, "done", Policy(), Status.COMPLETED)
    insert(stage, "never", Policy(after=("nobody",)))
    for number in range(MANY):
        insert(stage, f"run-{number}", Policy(after=("done", f"before-{number % 100}")))
    stage.run_for(60.0)
    requests, calls = cost_of_a_tick(stage)
    assert calls["statuses"] == 1
    assert "find" not in calls
    assert requests < STOP_MARKERS + 10
    assert {run.cause for run in stage.supervisor.tick.runs.values()} == {Cause.DEPENDENCY}
