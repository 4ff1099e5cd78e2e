"""What one look tells: whose beat counts where two lie, which zones were read since when, what a 404 by id means."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from supervisor.contract import heartbeat, runfiles
from supervisor.contract.heartbeat import Beat
from supervisor.domain.causes import Cause
from supervisor.domain.machines import Machine, MachineListing, MachineRef, MachineState
from supervisor.domain.observation import MACHINES, Absent, Seen, machines_in
from supervisor.objectstores.filesystem import FilesystemStore
from supervisor.ports.objectstore import Page
from supervisor.ports.provider import LaunchRequest
from supervisor.reconciler.observing.observe import Observer, Snapshot
from supervisor.reconciler.observing.readers import look_up
from tests.fakes.clock import FakeClock
from tests.fakes.objectstore import MemoryStore
from tests.fakes.provider import FakeProvider

BOOT = Beat("digits", 1, "1.1.1", "m", "b", 7, "image", message="pulling image")
AGENT = replace(BOOT, sequence=100, phase="restore", message="")
NEXT = replace(BOOT, attempt=2, launch_id="1.2.1", sequence=1)


class Bench:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.objects: Any = MemoryStore(now=self.clock.now)
        self.provider = FakeProvider(self.clock)
        self.pushed: dict[str, Any] = {}
        self.observer = Observer({"local": self.provider}, self.objects, lambda: self.pushed, self.clock, "s", 30.0)

    def write(self, key: str, beat: Beat) -> None:
        text = heartbeat.encode(beat).decode()
        self.objects.put(key, text.encode(), metadata={"beat": text})

    def look(self) -> Snapshot:
        self.clock.advance(30.0)
        return self.observer.look()


def but(*forged: str) -> Callable[[Seen[Beat]], bool]:
    """Believes every source but these."""
    return lambda part: part.source not in forged


def told(snapshot: Snapshot, forged: tuple[str, ...] = ()) -> tuple[Beat, str]:
    part = snapshot.beat("digits", but(*forged))
    assert isinstance(part, Seen)
    return part.value, part.source


@pytest.mark.parametrize(
    ("agents", "boots", "wins"), [(AGENT, BOOT, "store"), (AGENT, NEXT, "boot"), (None, BOOT, "boot")]
)
def test_the_newer_launch_and_sequence_wins_wherever_it_lies(agents: Beat | None, boots: Beat, wins: str) -> None:
    bench = Bench()
    if agents is not None:
        bench.write(runfiles.beat("digits"), agents)
    bench.write(runfiles.boot_beat("digits"), boots)
    before = bench.look().requests
    assert told(bench.look()) == ({"store": agents, "boot": boots}[wins], wins)
    assert bench.look().requests == before


def test_one_that_lies_hides_none_of_the_others() -> None:
    bench = Bench()
    bench.write(runfiles.beat("digits"), AGENT)
    bench.write(runfiles.boot_beat("digits"), NEXT)
    assert told(bench.look(), ("boot",)) == (AGENT, "store")
    assert told(bench.look(), ("store",)) == (NEXT, "boot")
    assert isinstance(bench.look().beat("digits", but("store", "boot")), Absent)
    bench.pushed["digits"] = (replace(NEXT, sequence=2), bench.clock.monotonic())
    assert told(bench.look()) == (replace(NEXT, sequence=2), "push")


def test_a_boot_beat_of_another_run_is_none() -> None:
    bench = Bench()
    bench.write(runfiles.boot_beat("digits"), replace(BOOT, run_id="other"))
    snapshot = bench.look()
    assert isinstance(snapshot.beat("digits", but()), Absent)
    assert [run_id for run_id, _ in snapshot.rejected] == ["digits"]


def test_each_zone_is_watched_since_its_own_moment() -> None:
    bench = Bench()
    first = bench.look().observing_since
    bench.provider.unreachable.add("local-b")
    for _ in range(4):
        snapshot = bench.look()
    assert MACHINES not in snapshot.fresh
    assert snapshot.unread == {"local-b"}
    bench.provider.unreachable.clear()
    snapshot = bench.look()
    since = snapshot.observing_since
    assert MACHINES in snapshot.fresh
    assert since[machines_in("local-a")] == first[machines_in("local-a")]
    assert since[machines_in("local-b")] == since[MACHINES] == snapshot.taken_at


def test_a_zone_that_nobody_asks_for_keeps_no_listing_from_being_complete() -> None:
    bench = Bench()
    bench.provider.unreachable.add("far-away-a")
    snapshot = bench.look()
    assert MACHINES in snapshot.fresh
    assert snapshot.unread == frozenset()


def test_a_listing_that_failed_has_read_no_zone() -> None:
    bench = Bench()
    bench.look()
    bench.provider.down = True
    snapshot = bench.look()
    assert snapshot.unread == {"local-a", "local-b", "local-c"}
    assert MACHINES not in snapshot.fresh


def test_two_zones_may_have_a_machine_of_the_same_name(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench()
    near, far = (
        Machine(number, "vm", zone, MachineState.UP, "s", "digits", "1.1.1")
        for number, zone in (("1", "local-a"), ("2", "local-b"))
    )
    for machines in ((near, far), (far, near)):
        listing = MachineListing(machines)
        monkeypatch.setattr(bench.provider, "machines", lambda listing=listing: listing)
        part = bench.look().machine("local", "local-a", "vm", "s", "1.1.1", bench.clock.now())
        assert isinstance(part, Seen)
        assert part.value.machine_id == "1"


def test_a_machine_that_is_gone_is_what_its_id_says() -> None:
    bench = Bench()
    place = bench.provider.offers()[0].placement
    machine = bench.provider.launch(LaunchRequest("m-1", "r", place, "s", "digits", "1.1.1", 60.0))
    bench.provider.remove("m-1", Cause.MACHINE_DELETED, "deleted by anna@example.com")
    found = look_up(bench.provider, MachineRef("local", place.zone, "m-1", machine.machine_id), "1.1.1")
    assert isinstance(found, Seen)
    assert found.value.record is not None
    assert "anna" in found.value.record.detail
    assert isinstance(look_up(bench.provider, MachineRef("local", place.zone, "m-1"), "1.1.1"), Absent)


def test_a_store_that_takes_no_writes_is_known_after_one_look() -> None:
    bench = Bench()
    bench.look()
    assert bench.observer.store_trouble == ""
    bench.objects.full = True
    bench.look()
    assert bench.observer.store_trouble == "the object store is full"
    bench.objects.full = False
    bench.look()
    assert bench.observer.store_trouble == ""


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.EROFS, "the object store cannot be written: its folder is read-only"),
        (errno.EACCES, "the object store cannot be written: permission denied"),
        (errno.ENOSPC, "the object store is full"),
    ],
)
def test_a_folder_says_why_it_takes_no_writes(
    number: int, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = Bench()
    bench.observer.objects = FilesystemStore.create(tmp_path / "store")
    bench.look()
    real = os.open

    def refused(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if flags & os.O_CREAT:
            raise OSError(number, os.strerror(number))
        return real(path, flags, *more, **named)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refused)
        bench.look()
    assert bench.observer.store_trouble == words
    assert str(tmp_path) not in words
    bench.look()
    assert bench.observer.store_trouble == ""


class WrongDate(MemoryStore):
    """A proxy whose Date header is an hour fast: every listing looks an hour late."""

    ahead_s = 0.0

    def pages(self, prefix: str) -> Iterator[Page]:
        for page in super().pages(prefix):
            yield replace(page, server_time=page.server_time + self.ahead_s)


def test_a_beat_newer_than_at_the_last_look_is_no_older_than_that_look() -> None:
    bench = Bench()
    bench.objects = bench.observer.objects = WrongDate(now=bench.clock.now)
    bench.write(runfiles.beat("digits"), AGENT)
    bench.look()
    bench.objects.ahead_s = 3600.0
    bench.clock.advance(20.0)
    bench.write(runfiles.beat("digits"), replace(AGENT, sequence=101))
    part = bench.look().beat("digits", but())
    assert isinstance(part, Seen)
    assert part.age_s == 50.0, "the last look was 50 s ago"
    later = bench.look().beat("digits", but())
    assert isinstance(later, Seen)
    assert later.age_s == 80.0, "the same beat again: nothing newer has come"
