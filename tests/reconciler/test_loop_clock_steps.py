"""The real APScheduler while the clock that it and the watcher read is stepped; the machine's clock is never set."""

from __future__ import annotations

import datetime as real
import logging
import time
from collections.abc import Iterator
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import apscheduler.schedulers.base
import apscheduler.triggers.interval
import pytest

from supervisor.ports.store import Lease
from supervisor.reconciler.loop import Loop
from supervisor.reconciler.system_clock import EventWake
from tests.waiting import wait_for

HOUR_S = 3600.0


class SteppedClock:
    """The real clock plus an offset of its wall side."""

    offset_s = 0.0

    def now(self) -> float:
        return time.time() + self.offset_s

    def wall(self) -> float:
        return self.now()

    def monotonic(self) -> float:
        return time.monotonic()


class CountingTick:
    def __init__(self) -> None:
        self.count = 0
        self.actor = self.readers = self.sampler = SimpleNamespace(close=lambda: None)

    def run(self, lease: Lease) -> None:
        self.count += 1


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SteppedClock:
    stepped = SteppedClock()

    class SteppedDatetime(real.datetime):
        @classmethod
        def now(cls, tz: real.tzinfo | None = None) -> real.datetime:  # type: ignore[override]
            return real.datetime.fromtimestamp(stepped.now(), tz)

    monkeypatch.setattr(apscheduler.schedulers.base, "datetime", SteppedDatetime)
    monkeypatch.setattr(apscheduler.triggers.interval, "datetime", SteppedDatetime)
    return stepped


@pytest.fixture
def loop(clock: SteppedClock) -> Iterator[Loop]:
    lease = Lease("cell", "me", 1, float("inf"))
    leader: Any = SimpleNamespace(lease=lambda: lease, start=lambda: None, stop=lambda: None)
    store: Any = SimpleNamespace(prune=lambda now, limit: 0)
    tick: Any = CountingTick()
    made = Loop(tick, leader, store, clock, EventWake(), poll_interval_s=0.2)
    yield made
    made.stop()


def ticks_go_on(loop: Loop) -> None:
    tick: Any = loop.tick
    before = tick.count
    wait_for(lambda: tick.count >= before + 3, 10, "three more ticks")


@pytest.mark.parametrize("step_s", [-HOUR_S, HOUR_S])
def test_ticks_continue_after_a_step_of_an_hour(loop: Loop, clock: SteppedClock, step_s: float) -> None:
    loop.start()
    ticks_go_on(loop)
    clock.offset_s += step_s
    ticks_go_on(loop)


def test_without_the_watcher_a_backward_step_blinds_the_scheduler(
    loop: Loop, clock: SteppedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loop, "_reset_jobs", lambda: None)
    loop.start()
    ticks_go_on(loop)
    clock.offset_s -= HOUR_S
    tick: Any = loop.tick
    time.sleep(0.5)  # a tick that was already due
    before = tick.count
    with pytest.raises(AssertionError):
        wait_for(lambda: tick.count > before, 2.5, "a tick")


def test_a_wake_during_a_tick_is_not_lost(loop: Loop) -> None:
    """A job that is due while it runs is skipped by the scheduler: the watcher waits for the end of the tick."""
    tick: Any = loop.tick
    loop.poll_interval_s = HOUR_S

    def slow(lease: Lease) -> None:
        tick.count += 1
        if tick.count == 1:
            loop.wake.set()
            time.sleep(0.3)

    tick.run = slow
    loop.start()
    wait_for(lambda: tick.count >= 2, 10, "the tick that was requested while one ran")


def test_a_store_that_is_down_does_not_end_the_loop(loop: Loop, caplog: pytest.LogCaptureFixture) -> None:
    from supervisor.ports.store import StoreDown

    tick: Any = loop.tick

    def down(lease: Lease) -> None:
        tick.count += 1
        if tick.count < 3:
            raise StoreDown("disk full")

    tick.run = down
    with caplog.at_level(logging.ERROR):
        loop.start()
        ticks_go_on(loop)
    assert "tick not done" in caplog.text
    assert loop.status.error == ""


@pytest.mark.parametrize("due_at_once", [False, True])
def test_however_often_it_is_woken_a_long_tick_is_followed_by_a_rest(loop: Loop, due_at_once: bool) -> None:
    """Ten thousand runs wake the loop all the time, and the API needs the processor too."""
    tick: Any = loop.tick
    loop.poll_interval_s = HOUR_S
    spans: list[tuple[float, float]] = []

    def long(lease: Lease) -> float | None:
        began = time.monotonic()
        time.sleep(0.1)
        loop.wake.set()
        spans.append((began, time.monotonic()))
        return loop.clock.now() if due_at_once else None

    tick.run = long
    loop.start()
    wait_for(lambda: len(spans) >= 4, 20, "four ticks")
    rests = [began - ended for (_, ended), (began, _) in pairwise(spans[:4])]
    assert min(rests) >= 0.19, rests
