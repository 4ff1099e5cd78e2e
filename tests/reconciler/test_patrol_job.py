"""The loop of the housekeeper runs the patrol at its interval, and survives a database that is down."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from supervisor.ports.store import Lease, StoreDown
from supervisor.reconciler import loop as loops
from supervisor.reconciler.loop import Loop
from supervisor.reconciler.system_clock import EventWake, SystemClock
from tests.waiting import wait_for


class Patrols:
    def __init__(self) -> None:
        self.times: list[float] = []

    def __call__(self, now: float) -> bool:
        self.times.append(now)
        if len(self.times) == 1:
            raise StoreDown("the disk is full")
        return True


def loop_of(patrols: Patrols, lease: Lease | None) -> Loop:
    leader: Any = SimpleNamespace(lease=lambda: lease, start=lambda: None, stop=lambda: None)
    closes = SimpleNamespace(close=lambda: None)
    tick: Any = SimpleNamespace(actor=closes, readers=closes, sampler=closes, run=lambda lease: None)
    store: Any = SimpleNamespace(prune=lambda now, limit: 0)
    return Loop(tick, leader, store, SystemClock(), EventWake(), 3600.0, patrol=patrols)


def test_the_housekeeper_patrols_again_after_the_database_was_down(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "PATROL_S", 0.02)
    patrols = Patrols()
    loop = loop_of(patrols, Lease("cell", "me", 1, float("inf")))
    loop.start()
    try:
        wait_for(lambda: len(patrols.times) >= 3, 10, "three patrols")
    finally:
        loop.stop()


def test_a_process_that_is_not_the_housekeeper_does_not_patrol() -> None:
    patrols = Patrols()
    loop_of(patrols, None)._patrol()
    assert patrols.times == []
    loop_of(patrols, Lease("cell", "me", 1, float("inf")))._patrol()
    assert len(patrols.times) == 1
