"""Kinds of actions that may take long have threads of their own."""

from __future__ import annotations

import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from supervisor.domain.actions import KeepEvidence, Launch, PinImage, Release
from supervisor.domain.causes import Cause
from supervisor.domain.machines.machine import MachineRef
from supervisor.domain.status import Status
from supervisor.ports.store import Lease
from supervisor.reconciler.acting.act import Actor
from supervisor.reconciler.acting.outcomes import Outcomes
from supervisor.reconciler.event_wake import EventWake
from tests.fakes.clock import FakeClock
from tests.fakes.objectstore import MemoryStore
from tests.lifecycle.sample_runs import failed_try, run_in

LEASE = Lease("cell", "me", 1, float("inf"))
MANY = 40


def made(provider: Any, store: Any) -> Actor:
    nothing: Any = None
    return Actor(
        store, MemoryStore(), {"local": provider}, Outcomes(), FakeClock(), EventWake(), nothing, lambda run_id: None,
        threads=2, launch_threads=3,
    )  # fmt: skip


def test_requests_that_hang_keep_no_release_waiting() -> None:
    hangs, released = threading.Event(), threading.Event()
    provider: Any = SimpleNamespace(release=lambda ref: released.set(), pin=lambda image: str(hangs.wait(60)))
    store: Any = SimpleNamespace(find=lambda run_id: hangs.wait(60) and None)
    actor = made(provider, store)
    try_ = failed_try(Cause.QUOTA, 1)
    run = run_in(Status.LAUNCHING, try_=try_)
    for number in range(MANY):
        one = replace(run, key=number + 1)
        actor.submit(one, Launch(try_, True), LEASE)
        actor.submit(one, PinImage(f"image {number}", "image"), LEASE)
    actor.submit(None, Release(MachineRef("local", "a", "m"), "1.1.1", "leaked"), LEASE)
    try:
        assert released.wait(30)
    finally:
        hangs.set()
        actor.close()


@pytest.mark.parametrize("kind", [Launch, PinImage, KeepEvidence])
def test_each_has_its_own(kind: type) -> None:
    actor = made(SimpleNamespace(), SimpleNamespace())
    assert actor._apart[kind] is not actor._pool
    actor.close()
