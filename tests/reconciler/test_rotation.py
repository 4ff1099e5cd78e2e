"""Which runs show in a tick what a preemption would lose, and how often: bounded, in turn, and by their rows alone."""

from __future__ import annotations

import logging
import math
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.domain.actions import PublishCheckpoint
from supervisor.domain.machines import MachineRef
from supervisor.domain.run import Run, StopRequest
from supervisor.domain.status import Status
from supervisor.ports.provider import ProviderUnavailable
from supervisor.ports.store import Lease
from supervisor.reconciler.acting.act import Actor
from supervisor.reconciler.outcomes import Outcomes
from supervisor.reconciler.rotation import ROUND_S, Publishing, at_risk
from supervisor.reconciler.system_clock import EventWake
from tests.fakes.clock import FakeClock
from tests.fakes.objectstore import MemoryStore
from tests.lifecycle.sample_runs import MIN, NOW, attempt, pulse, run_in
from tests.scenarios.fault_points import Later

BEGAN = NOW - 60 * MIN
TRAINS = attempt(training_at=BEGAN)


def training(key: int = 1, **fields: Any) -> Run:
    """`fields`: of its pulse."""
    saved = {"checkpoint_step": 400, "checkpoint_at": NOW - 5 * MIN, **fields}
    return run_in(Status.RUNNING, key=key, run_id=f"run-{key}", attempt=TRAINS, pulse=pulse(**saved))


class TestAtRisk:
    def test_what_is_computed_after_the_newest_checkpoint_is_lost(self) -> None:
        assert at_risk(training(), NOW) == PublishCheckpoint(TRAINS.ref, NOW - 5 * MIN, 5 * MIN)

    def test_without_a_checkpoint_all_of_the_attempt_is_lost(self) -> None:
        run = training(checkpoint_step=None, checkpoint_at=None)
        assert at_risk(run, NOW) == PublishCheckpoint(TRAINS.ref, None, 60 * MIN)

    def test_a_checkpoint_that_was_restored_is_not_new(self) -> None:
        run = replace(training(), attempt=replace(TRAINS, step_from=400))
        assert at_risk(run, NOW) == PublishCheckpoint(TRAINS.ref, None, 60 * MIN)

    def test_the_pulse_of_an_earlier_launch_counts_no_more(self) -> None:
        assert at_risk(training(launch_id="1.3.1"), NOW) == PublishCheckpoint(TRAINS.ref, None, 60 * MIN)

    def test_a_run_that_does_not_train_loses_nothing(self) -> None:
        run = training()
        for other in (
            replace(run, status=Status.RECOVERING),
            replace(run, attempt=replace(TRAINS, training_at=None)),
            replace(run, attempt=replace(TRAINS, ended_at=NOW)),
            replace(run, attempt=None),
            replace(run, stop=StopRequest("ops", NOW)),
        ):
            assert at_risk(other, NOW) is None


@given(st.integers(0, 200), st.sampled_from([1.0, 10.0, 30.0, 60.0, 700.0]))
def test_turns_are_bounded_and_nobody_waits_longer_than_a_round(count: int, poll_s: float) -> None:
    runs = [training(key) for key in range(1, count + 1)]
    publishing, turns = Publishing({"gce"}, poll_s), Counter[int]()
    most = math.ceil(count * min(1.0, poll_s / ROUND_S))
    for _ in range(math.ceil(ROUND_S / poll_s)):
        of_tick = [run.key for run, _ in publishing.turns(runs, NOW)]
        assert len(of_tick) == len(set(of_tick)) <= most
        turns.update(of_tick)
    assert set(turns) == set(range(1, count + 1))
    assert max(turns.values(), default=0) - min(turns.values(), default=0) <= 1, "one rotation"


def test_a_provider_that_publishes_nothing_has_no_turns() -> None:
    assert not list(Publishing({"other"}, 30.0).turns([training()], NOW))


class TestActing:
    def acted(self, publish: Any) -> tuple[Actor, EventWake]:
        clock, later, wake, nothing = FakeClock(), Later(), EventWake(), None
        any_: Any = nothing
        actor = Actor(
            any_, MemoryStore(), {}, Outcomes(), clock, wake, any_, lambda run_id: None, executor=later,
            publishers={"gce": publish},
        )  # fmt: skip
        for run, turn in Publishing(actor.publishers, 30.0).turns([training()], NOW):
            actor.submit(run, turn, Lease("cell", "me", 1, clock.monotonic() + 9.0))
        later.drain()
        return actor, wake

    def test_a_turn_calls_the_provider_and_asks_for_no_tick(self) -> None:
        calls: list[tuple[MachineRef, float | None, float]] = []
        actor, wake = self.acted(lambda *turn: calls.append(turn))
        assert calls == [(TRAINS.ref, NOW - 5 * MIN, 5 * MIN)]
        assert actor.idle()
        assert not wake.wait(0.0)

    def test_one_that_fails_is_only_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        def publish(*turn: object) -> None:
            raise ProviderUnavailable("no answer")

        with caplog.at_level(logging.WARNING):
            assert self.acted(publish)[0].idle()
        assert "action not done" in caplog.text
