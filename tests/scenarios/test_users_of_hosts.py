"""Who uses a host that is billed until somebody stops it is counted from the few runs that have a machine there."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from supervisor.domain.observation import World
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.lifecycle.phases.teardown import is_on, with_host_users
from supervisor.reconciler import tick as tick_module
from supervisor.reconciler.tick import Tick
from supervisor.services.runs.submit import SubmitRequest, submit
from tests.fakes.meters import meters_of
from tests.scenarios.sim_plan import Plan
from tests.scenarios.stage import Settings, Stage
from tests.scenarios.user_verbs import ACTOR, spec_of

ON_HOST, IN_CLOUD = 3, 40


class Mixed(Stage):
    """`a` is a host that is billed until somebody stops it; `b` is a zone as any."""

    def _set_up(self) -> None:
        self.provider.meters = meters_of("a")
        super()._set_up()

    def submit(self, run_id: str, zone: str, steps: int) -> None:
        self.plans[run_id] = Plan(steps=steps)
        submit(self.parts, SubmitRequest({**spec_of(self, {}), "zones": [zone]}, run_id=run_id), ACTOR)

    def check(self) -> None:
        """The kept keys are those that a search of all runs finds."""
        assert self.supervisor is not None
        tick = self.supervisor.tick
        assert tick._metered == {run.key for run in tick.runs.values() if is_on(run, tick.worldview.meters)}


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    counts: list[int] = []

    def counted(world: World, runs: Iterable[Run], machines: Iterable[Any], *more: Any) -> World:
        runs, machines = list(runs), list(machines)
        counts.append(len(runs) + len(machines))
        return with_host_users(world, runs, machines, *more)

    monkeypatch.setattr(tick_module, "with_host_users", counted)
    return counts


def play(stage: Mixed) -> None:
    for number in range(ON_HOST):
        stage.submit(f"host-{number}", "a", 60 * (number + 1))
    for number in range(IN_CLOUD):
        stage.submit(f"cloud-{number}", "b", 1_000_000)
    for _ in range(40):
        stage.run_for(stage.settings.poll)
        stage.check()
    runs = {number: stage.rows.find(f"host-{number}") for number in range(ON_HOST)}
    assert all(run is not None for run in runs.values())
    asking = [number for number, run in runs.items() if run is not None and run.status == Status.AWAITING_TEARDOWN]
    assert asking == [ON_HOST - 1], "only the last one"


def test_only_runs_and_machines_of_such_hosts_are_looked_at(tmp_path: Path, given: list[int]) -> None:
    stage = Mixed(tmp_path, Settings(zones=("a", "b")))
    play(stage)
    stage.close()
    assert 0 < max(given) <= 2 * ON_HOST


def test_nothing_is_looked_at_where_no_host_is_billed_so(tmp_path: Path, given: list[int]) -> None:
    stage = Stage(tmp_path, Settings(zones=("b",)))
    stage.plans["digits"] = Plan(steps=1000)
    submit(stage.parts, SubmitRequest(spec_of(stage, {}), run_id="digits"), ACTOR)
    stage.run_for(300.0)
    stage.close()
    assert (len(given) > 3, max(given)) == (True, 0)


def test_a_key_that_is_not_kept_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_key_is_kept(tick: Tick, run: Run) -> None:
        tick.runs[run.key] = run

    monkeypatch.setattr(Tick, "_keep", no_key_is_kept)
    stage = Mixed(tmp_path, Settings(zones=("a", "b")))
    with pytest.raises(AssertionError):
        play(stage)
    stage.close()
