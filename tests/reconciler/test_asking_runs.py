"""A wake decides the runs that asked for it at once, however long the tick before has to rest."""

from __future__ import annotations

import threading
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.ports.store import Lease, StoreDown
from supervisor.reconciler.tick import _is_urgent
from tests.lifecycle.sample_runs import attempt, beat_of, pulse, run_in
from tests.reconciler.test_loop_stop import loop_of


class RestingTick:
    """A tick of half a second, after which an early one has to rest for a second."""

    def __init__(self, failure: Exception | None = None) -> None:
        self.ended, self.asked = threading.Semaphore(0), threading.Event()
        self.failure, self.at = failure, list[tuple[str, float]]()
        self.actor = self.readers = self.sampler = SimpleNamespace(close=lambda: None)

    def run(self, lease: Lease) -> None:
        time.sleep(0.5)
        self.at.append(("tick", time.monotonic()))
        self.ended.release()

    def run_asked(self, lease: Lease) -> None:
        self.at.append(("asked", time.monotonic()))
        self.asked.set()
        if self.failure is not None:
            raise self.failure


@pytest.mark.parametrize("failure", [None, StoreDown("the disk is full"), RuntimeError("a bug")])
def test_a_wake_decides_the_runs_that_asked_before_the_early_tick(failure: Exception | None) -> None:
    tick = RestingTick(failure)
    loop = loop_of(tick)
    loop.poll_interval_s = 300.0
    loop.start()
    try:
        assert tick.ended.acquire(timeout=30)
        loop.wake.set()
        assert tick.asked.wait(30)
        assert tick.ended.acquire(timeout=30)
        assert [what for what, _ in tick.at] == ["tick", "asked", "tick"]
    finally:
        loop.stop()


def test_a_decision_that_waits_for_the_disk_is_not_followed_by_a_longer_rest() -> None:
    tick: Any = RestingTick()
    tick.run_asked = lambda lease: time.sleep(0.3)  # as a commit does
    assert loop_of(tick)._decide_asked() < 0.1


TRAINS = run_in(Status.RUNNING, attempt=attempt(), pulse=pulse())
LIFE = attempt()


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, False),
        ({"notice_s": 30.0}, True),
        ({"left": "noticed"}, True),
        ({"phase": "finishing"}, True),
        ({"sequence": 9, "notice_s": 30.0}, False),
        ({"launch_id": "1.5.1", "notice_s": 30.0}, False),
    ],
)
def test_a_beat_that_reports_more_than_a_step_is_urgent(fields: dict[str, Any], expected: bool) -> None:
    beat = beat_of(LIFE, 10)._replace(**fields)
    assert _is_urgent(with_try(TRAINS), {"digits-7": (beat, 0.0)}) is expected
    assert not _is_urgent(with_try(TRAINS), {})


def with_try(run: Run) -> Run:
    assert run.attempt is not None
    call: Any = SimpleNamespace(launch_id=run.attempt.launch_id)
    return replace(run, try_=call)
