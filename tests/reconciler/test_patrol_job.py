"""The loop asks for a patrol now and then, where it keeps house, and outlives a database that is down."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from supervisor.ports.store import Lease, StoreDown
from supervisor.reconciler import loop as loops
from supervisor.reconciler.loop import Loop
from supervisor.reconciler.system_clock import EventWake, SystemClock
from tests.waiting import wait_for


class Asked:
    def __init__(self) -> None:
        self.times: list[float] = []

    def __call__(self, now: float) -> bool:
        self.times.append(now)
        if len(self.times) == 1:
            raise StoreDown("the disk is full")
        return True


def loop_of(asked: Asked, lease: Lease | None) -> Loop:
    leader: Any = SimpleNamespace(lease=lambda: lease, start=lambda: None, stop=lambda: None)
    closes = SimpleNamespace(close=lambda: None)
    tick: Any = SimpleNamespace(actor=closes, readers=closes, run=lambda lease: None)
    store: Any = SimpleNamespace(prune=lambda now, limit: 0)
    return Loop(tick, leader, store, SystemClock(), EventWake(), 3600.0, patrol=asked)


def test_who_keeps_house_is_asked_again_after_the_database_was_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "PATROL_S", 0.02)
    asked = Asked()
    loop = loop_of(asked, Lease("cell", "me", 1, float("inf")))
    loop.start()
    try:
        wait_for(lambda: len(asked.times) >= 3, 10, "three questions")
    finally:
        loop.stop()


def test_who_does_not_keep_house_tells_nothing() -> None:
    asked = Asked()
    loop_of(asked, None)._patrol()
    assert asked.times == []
    loop_of(asked, Lease("cell", "me", 1, float("inf")))._patrol()
    assert len(asked.times) == 1
