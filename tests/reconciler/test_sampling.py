"""The series of a run: a point a minute while it is live, one at each change, none while nothing changes."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from supervisor.contract.recent_points import RecentPoint, encode
from supervisor.domain.causes import Cause
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.ports.store import Lease, Sample, StoreDown
from supervisor.reconciler.observing.sampling import COUNTED_S, PART, SAMPLE_S, SPREAD_S, Sampler, SampleWriter
from tests.lifecycle.sample_runs import NOW, H, attempt, ended, pulse, run_in
from tests.waiting import wait_for

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
    """Its first point comes in the first tick, and another every few seconds."""
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


def carrying(up_s: float, **fields: object) -> Run:
    """A run whose agent started at NOW and whose newest beat carries a point every five seconds."""
    noted = [RecentPoint(float(n), n, 1.0, {"loss": n / 100}) for n in range(5, int(up_s), 5)]
    values = {
        "up_s": up_s,
        "step": int(up_s),
        "checkpoint_step": 20,
        "recent": encode(noted),
        "telemetry": "{}",
        **fields,
    }
    return run_in(Status.RUNNING, attempt=attempt(started_at=NOW, agent_at=NOW), pulse=pulse(**values))


def sampled(store: Written, sampler: Sampler, run: Run, now: float) -> list[tuple[float, int | None, bool]]:
    before = len(store.samples)
    sampler.write([run], now, LEASE)
    return [(point.at - NOW, point.pulse.step, point.carried) for point in store.samples[before:]]


def test_points_of_a_beat_are_written_once_at_their_own_time() -> None:
    store: Any = Written()
    sampler = Sampler(store)
    first = sampled(store, sampler, carrying(31.0), NOW + 40)
    assert first == [(5.0 * n, 5 * n, True) for n in range(1, 7)] + [(31.0, 31, False)]
    early, late = store.samples[1].pulse, store.samples[5].pulse
    assert (early.checkpoint_step, late.checkpoint_step) == (None, 20)
    assert (late.metrics, late.telemetry, late.recent) == ({"loss": 0.3}, "", "")
    assert sampled(store, sampler, carrying(31.0), NOW + 50) == []  # the same beat again
    second = sampled(store, sampler, carrying(61.0), NOW + 70)
    assert second == [(5.0 * n, 5 * n, True) for n in range(7, 13)] + [(61.0, 61, False)]
    restarted = sampled(store, Sampler(store), carrying(61.0), NOW + 71)
    assert {at for at, _, _ in restarted} == {at for at, _, _ in first + second} - {31.0}


def test_an_attempt_that_is_over_has_its_last_points_and_its_end() -> None:
    store: Any = Written()
    sampler = Sampler(store)
    run = carrying(31.0)
    assert run.attempt is not None
    over = replace(run, status=Status.FINISHING, attempt=replace(run.attempt, ended_at=NOW + 33))
    sampler.due(over.key)
    assert [at for at, _, _ in sampled(store, sampler, over, NOW + 60)] == [5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 33.0]


def test_a_step_of_the_clock_or_a_new_attempt_repeats_no_point() -> None:
    store: Any = Written()
    sampler = Sampler(store)
    sampled(store, sampler, carrying(31.0), NOW + 40)
    run = carrying(41.0)
    assert run.attempt is not None
    stepped = replace(run, attempt=replace(run.attempt, drift_s=3600.0))
    assert [at - 3600 for at, _, _ in sampled(store, sampler, stepped, NOW + 3650)] == [35.0, 40.0, 41.0]
    # Its agent began when the clock was set back: earlier than what is known of the attempt before.
    begun = replace(run.attempt, number=5, launch_id="1.5.1", agent_at=NOW - 30)
    newer = replace(carrying(11.0, launch_id="1.5.1"), attempt=begun)
    sampler.due(newer.key)
    assert [at + 30 for at, _, _ in sampled(store, sampler, newer, NOW)] == [5.0, 10.0, 11.0]


def test_a_beat_with_wrong_points_writes_few_and_none_ahead_of_itself() -> None:
    store: Any = Written()
    sampler = Sampler(store)
    dense = encode([RecentPoint(n / 10, n) for n in range(24)])
    assert len(sampled(store, sampler, carrying(2.0, recent=dense), NOW + 2)) == 21
    assert [at for at, _, _ in sampled(store, sampler, carrying(2.5, recent=dense), NOW + 10)] == [2.5]
    ahead = encode([RecentPoint(500.0, 7)])
    assert [at for at, _, _ in sampled(store, sampler, carrying(20.0, recent=ahead), NOW + 20)] == [20.0]


def test_what_an_old_run_carries_is_not_even_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(text: str) -> tuple[RecentPoint, ...]:
        raise AssertionError(text)

    monkeypatch.setattr("supervisor.contract.recent_points.decode", read)
    store: Any = Written()
    old = carrying(COUNTED_S, recent="anything")
    assert sampled(store, Sampler(store), old, NOW + 20) == [(20.0, int(COUNTED_S), False)]


# --- beside the tick --------------------------------------------------------------------------------------------------


class Held(Written):
    """A store in which each write waits until it is let through."""

    def __init__(self) -> None:
        super().__init__()
        self.let_through, self.parts = threading.Semaphore(0), list[int]()
        self.failure: Exception | None = None

    def write_pulses(self, samples: Sequence[Sample], lease: Lease) -> None:
        assert self.let_through.acquire(timeout=20)
        if self.failure is not None:
            raise self.failure
        self.parts.append(len(samples))
        super().write_pulses(samples, lease)

    def open(self) -> None:
        self.let_through.release(1000)


def many(count: int, sequence: int = 9) -> list[Run]:
    return [
        run_in(Status.RUNNING, key=key, attempt=attempt(), pulse=pulse(sequence=sequence))
        for key in range(1, count + 1)
    ]


def in_minutes(sampler: Sampler, minutes: int, runs: list[Run]) -> None:
    for minute in range(minutes + 1):
        sampler.write(runs, NOW + minute * SAMPLE_S, LEASE)


def test_the_same_samples_are_written_beside_the_tick_as_in_it() -> None:
    at_once, later = Written(), Written()
    in_minutes(Sampler(at_once), 4, many(250))  # type: ignore[arg-type]
    beside = Sampler(later, SampleWriter(later))  # type: ignore[arg-type]
    in_minutes(beside, 4, many(250))
    beside.close()
    assert len(later.samples) >= 4 * 250 - 250
    assert sorted(map(repr, later.samples)) == sorted(map(repr, at_once.samples))


def test_a_tick_does_not_wait_for_samples_and_the_end_writes_them_in_parts() -> None:
    store: Any = Held()
    sampler = Sampler(store, SampleWriter(store))
    in_minutes(sampler, 1, many(250))
    assert store.samples == []
    store.open()
    sampler.close()
    assert len(store.samples) == 250
    assert max(store.parts) == PART


def test_a_tick_that_finds_many_batches_writes_them_itself() -> None:
    store: Any = Held()
    store.open()
    writer = SampleWriter(store)
    writer._start = lambda: None  # type: ignore[method-assign]
    in_minutes(Sampler(store, writer), 4, many(10))
    assert len(store.samples) >= 20


def test_a_small_batch_is_written_at_once_and_the_next_one_too() -> None:
    store: Any = Held()
    store.open()
    sampler = Sampler(store, SampleWriter(store))
    for minute in range(1, 4):
        began = time.monotonic()
        in_minutes(sampler, 1, many(1)) if minute == 1 else sampler.write(many(1), NOW + minute * SAMPLE_S, LEASE)
        wait_for(lambda minute=minute: len(store.samples) == minute, 20, "the sample")  # type: ignore[misc]
        assert time.monotonic() - began < SPREAD_S / 2
    sampler.close()


def test_no_older_pulse_follows_the_row_of_a_run() -> None:
    """The points stay, without the pulse."""
    store: Any = Held()
    sampler = Sampler(store, SampleWriter(store))
    in_minutes(sampler, 1, many(250))
    threading.Timer(0.05, store.open).start()
    sampler.supersede({240, 250})
    sampler.close()
    assert {sample.key for sample in store.samples if sample.carried} == {240, 250}
    assert len(store.samples) == 250


def test_a_run_that_has_changed_its_status_is_sampled_in_its_tick() -> None:
    store: Any = Held()
    store.open()
    sampler = Sampler(store, SampleWriter(store))
    sampler.due(1)
    sampler.write(many(1), NOW, LEASE)
    assert len(store.samples) == 1


def test_a_failure_is_raised_in_the_next_tick_and_the_one_after_goes_on() -> None:
    store: Any = Held()
    store.failure = StoreDown("the disk is full")
    writer = SampleWriter(store)
    sampler = Sampler(store, writer)
    in_minutes(sampler, 1, many(10))
    store.open()
    writer.flush()
    wait_for(lambda: writer._failure is not None, 20, "the failure")
    store.failure = None
    with pytest.raises(StoreDown, match="the disk is full"):
        sampler.write(many(10), NOW + 2 * SAMPLE_S, LEASE)
    sampler.write(many(10), NOW + 3 * SAMPLE_S, LEASE)
    sampler.close()
    assert len(store.samples) == 20
