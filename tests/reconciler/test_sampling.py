"""The series of a run: a point a minute while it lives, one at each change, none of what does not move."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from supervisor.domain.causes import Cause
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.ports.store import Lease, Sample
from supervisor.reconciler.sampling import SAMPLE_S, Sampler
from tests.lifecycle.sample_runs import NOW, H, attempt, ended, pulse, run_in

LEASE = Lease("cell", "me", 1, 0.0)


class Written:
    def __init__(self) -> None:
        self.samples: list[Sample] = []

    def write_pulses(self, samples: Sequence[Sample], lease: Lease) -> None:
        self.samples += samples


def points(run: Run, minutes: int, due: bool = False) -> int:
    store: Any = Written()
    sampler = Sampler(store)
    if due:
        sampler.due(run.key)
    for minute in range(minutes + 1):
        sampler.write([run], NOW + minute * SAMPLE_S, LEASE)
    return len(store.samples)


def test_a_training_run_has_a_point_a_minute() -> None:
    assert points(run_in(Status.RUNNING, attempt=attempt(), pulse=pulse()), 10) in (9, 10)


def test_a_run_whose_attempt_is_over_has_one_last_point_and_no_more() -> None:
    over = run_in(Status.WAITING, attempt=ended(Cause.PREEMPTED, H), pulse=pulse())
    assert points(over, 60, due=True) == 1
    assert points(over, 60) == 0


def test_a_run_that_moves_on_later_has_no_point_for_the_time_between() -> None:
    over = run_in(Status.STOPPED, attempt=ended(Cause.STOP_REQUESTED, H), pulse=pulse())
    store: Any = Written()
    sampler = Sampler(store)
    for later in (0.0, 5 * H):
        sampler.due(over.key)
        sampler.write([over], NOW + later, LEASE)
    assert {sample.at for sample in store.samples} == {NOW}


def test_a_run_of_two_minutes_is_a_curve_and_a_long_one_is_not_written_more_often() -> None:
    """Its first point comes at the first look, and another every few seconds."""
    store: Any = Written()
    sampler = Sampler(store)
    run = run_in(Status.RUNNING, attempt=attempt(started_at=NOW), pulse=pulse())
    for second in range(121):
        sampler.write([run], NOW + second, LEASE)
    assert [round(sample.at - NOW) for sample in store.samples][:3] == [0, 5, 10]
    assert len(store.samples) == 25
    for second in range(301, 3601):
        sampler.write([run], NOW + second, LEASE)
    assert len(store.samples) - 25 <= 3300 / SAMPLE_S + 1
