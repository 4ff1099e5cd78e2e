"""Kinds of actions that may take long have threads of their own."""

from __future__ import annotations

import threading
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from supervisor.domain.actions import (
    Action,
    AskAgentToStop,
    CloseBaton,
    KeepEvidence,
    Launch,
    PinImage,
    Release,
    WriteStopMarker,
)
from supervisor.domain.causes import Cause
from supervisor.domain.machines import MachineRef
from supervisor.domain.status import Status
from supervisor.ports.store import Lease
from supervisor.reconciler.acting.act import Actor
from supervisor.reconciler.outcomes import Outcomes
from supervisor.reconciler.system_clock import EventWake
from supervisor.telemetry import logs as telemetry
from tests.fakes.clock import FakeClock
from tests.fakes.objectstore import MemoryStore
from tests.lifecycle.sample_runs import failed_try, run_in
from tests.waiting import wait_for

LEASE = Lease("cell", "me", 1, float("inf"))
MANY = 40
TRY = failed_try(Cause.QUOTA, 1)


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
    run = run_in(Status.LAUNCHING, try_=TRY)
    for number in range(MANY):
        other = replace(run, key=number + 1)
        actor.submit(other, Launch(TRY, True), LEASE)
        actor.submit(other, PinImage(f"image {number}", "image"), LEASE)
    actor.submit(None, Release(MachineRef("local", "a", "m"), "1.1.1", "leaked"), LEASE)
    try:
        assert released.wait(30)
    finally:
        hangs.set()
        actor.close()


@pytest.mark.parametrize("action", [Launch(TRY, True), PinImage("image", "image"), KeepEvidence("1.3.1")])
def test_each_has_its_own(action: Action) -> None:
    actor, run = made(SimpleNamespace(), SimpleNamespace()), run_in(Status.LAUNCHING, try_=TRY)
    others = actor._executor(run, WriteStopMarker("ops"))
    assert actor._executor(run, action) is not others
    assert actor._executor(run, CloseBaton("stopped")) is others
    actor.close()


def test_a_provider_that_hangs_keeps_nothing_of_another_waiting() -> None:
    """Launches, pins, releases and stops of one provider fill its own threads; actions of the other one continue."""
    hangs, reached = threading.Event(), threading.Event()
    called: list[str] = []

    def wait(*_: object) -> Any:
        return hangs.wait(60) and None

    def release(ref: MachineRef) -> None:
        called.append("release")
        reached.set()

    traits = SimpleNamespace(launches_at_once=2, images=True)
    slow: Any = SimpleNamespace(release=wait, pin=wait, ask_to_stop=wait, traits=traits)
    quick: Any = SimpleNamespace(release=release, pin=lambda image: called.append("pin") or "", traits=traits)
    nothing: Any = None
    actor = Actor(
        nothing, MemoryStore(), {"slow": slow, "quick": quick}, Outcomes(), FakeClock(), EventWake(), nothing,
        lambda run_id: None, threads=2,
    )  # fmt: skip
    run = run_in(Status.RUNNING)
    for number in range(MANY):
        other = replace(run, key=number + 1, provider="slow")
        ref = MachineRef("slow", "a", f"m-{number}")
        actor.submit(other, PinImage(f"image {number}", "image"), LEASE)
        actor.submit(other, AskAgentToStop(ref), LEASE)
        actor.submit(None, Release(ref, "1.1.1", "leaked"), LEASE)
    actor.submit(replace(run, provider="quick"), PinImage("image", "image"), LEASE)
    actor.submit(None, Release(MachineRef("quick", "a", "m"), "1.1.1", "leaked"), LEASE)
    try:
        assert reached.wait(30)
        wait_for(lambda: set(called) == {"release", "pin"}, what="the other's pin")
    finally:
        hangs.set()
        actor.close()


def test_an_action_for_a_provider_that_is_not_in_the_settings_is_unclear(caplog: pytest.LogCaptureFixture) -> None:
    actor = made(SimpleNamespace(), SimpleNamespace())
    actor.submit(None, Release(MachineRef("gone", "a", "m"), "1.1.1", "leaked"), LEASE)
    wait_for(actor.idle, what="the release to be given up")
    actor.close()
    [record] = caplog.records
    assert (record.getMessage(), getattr(record, telemetry.ERROR)) == (
        "action not done",
        "provider gone is not in the settings",
    )
