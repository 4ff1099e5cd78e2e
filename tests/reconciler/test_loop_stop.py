"""The end of the loop while a tick runs: the tick moves the next one, which needs the scheduler that is closing."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from supervisor.ports.store import Lease
from supervisor.reconciler.loop import Loop
from supervisor.reconciler.system_clock import EventWake, SystemClock


class LongTick:
    """Runs until it is released, and then requests the next tick soon."""

    def __init__(self) -> None:
        self.begun, self.let_go = threading.Event(), threading.Event()
        self.count = 0
        self.actor = self.readers = self.sampler = SimpleNamespace(close=lambda: None)

    def run(self, lease: Lease) -> float:
        self.count += 1
        self.begun.set()
        assert self.let_go.wait(30)
        return time.time() + 0.01


def loop_of(tick: Any) -> Loop:
    lease = Lease("cell", "me", 1, float("inf"))
    leader: Any = SimpleNamespace(lease=lambda: lease, start=lambda: None, stop=lambda: None)
    store: Any = SimpleNamespace(prune=lambda now, limit: 0)
    return Loop(tick, leader, store, SystemClock(), EventWake(), poll_interval_s=0.05)


@pytest.mark.parametrize("goes_on_s", [0.0, 0.3])
def test_a_running_tick_ends_before_the_scheduler_closes(goes_on_s: float) -> None:
    tick = LongTick()
    loop = loop_of(tick)
    loop.start()
    assert tick.begun.wait(30)
    stopping = threading.Thread(target=loop.stop, daemon=True)
    stopping.start()
    loop._watcher.join(30)
    threading.Timer(goes_on_s, tick.let_go.set).start()
    stopping.join(30)
    assert not stopping.is_alive()
    ended = tick.count
    loop._tick_once()
    assert tick.count == ended, "no tick begins any more"
