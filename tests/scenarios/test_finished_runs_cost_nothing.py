"""Thousands of finished runs leave no beat objects and cost the tick nothing: no row read, no request."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.contract import runfiles
from supervisor.domain.policies import Policy
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from tests.properties import examples
from tests.scenarios.stage import CELL, Stage

MANY = examples(2_000, 10_000)


@pytest.fixture
def stage(folder: Path) -> Iterator[Stage]:
    stage = Stage(folder)
    yield stage
    stage.close()


def finish_many(stage: Stage) -> None:
    """Runs that have just been completed: their beats still exist, nothing of them is deleted yet."""
    now = stage.clock.now()
    some = Run(
        key=0, run_id="", owner="local", cell=CELL, provider="local", generation=1, status=Status.COMPLETED,
        policy=Policy(), created_at=now, generation_at=now, status_since=now,
    )  # fmt: skip
    with stage.parts.store.begin(now) as tx:
        for number in range(MANY):
            run_id = f"run-{number}"
            tx.insert(dataclasses.replace(some, run_id=run_id), {"command": ["train"]}, {}, ())
            stage.objects.put(runfiles.beat(run_id), b"{}", metadata={"beat": "{}"})


def beats(stage: Stage) -> list[str]:
    keys = [info.key for page in stage.objects.pages(runfiles.BEATS) for info in page.objects]
    return [key for key in keys if not runfiles.is_canary(key)]


def cost_of_a_tick(stage: Stage) -> tuple[int, dict[str, int]]:
    """(requests to platform and object store, calls of the database)"""
    stage.run_for(stage.settings.poll - 1.0)
    before, ticks = stage.rows.calls.copy(), stage.ticks
    stage.run_for(stage.settings.poll)
    assert stage.ticks == ticks + 1
    return stage.requests, dict(stage.rows.calls - before)


def test_thousands_of_finished_runs_cost_the_tick_nothing(stage: Stage) -> None:
    stage.run_for(60.0)
    empty = cost_of_a_tick(stage)
    finish_many(stage)
    assert len(beats(stage)) == MANY
    stage.run_for(120.0)
    assert beats(stage) == []
    assert stage.supervisor.tick.runs == {}
    assert cost_of_a_tick(stage) == empty
    changed, keys = stage.parts.store.active(CELL, {})
    assert (changed, keys) == ([], set())
