"""What one look tells: whose beat counts where two lie, which zones were read since when, what a 404 by id means."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from supervisor.domain import heartbeat, runfiles
from supervisor.domain.causes import Cause
from supervisor.domain.heartbeat import Beat
from supervisor.domain.machine import Machine, MachineListing, MachineRef, MachineState
from supervisor.domain.observation import Absent, Seen
from supervisor.domain.world import MACHINES, machines_in
from supervisor.ports.provider import LaunchRequest
from supervisor.reconciler.observe import Observer, Snapshot
from supervisor.reconciler.readers import look_up
from tests.fakes.clock import FakeClock
from tests.fakes.objectstore import MemoryStore
from tests.fakes.provider import FakeProvider

BOOT = Beat("digits", 1, "1.1.1", "m", "b", 7, "image", message="pulling image")
AGENT = replace(BOOT, sequence=100, phase="restore", message="")
NEXT = replace(BOOT, attempt=2, launch_id="1.2.1", sequence=1)


class Bench:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.objects = MemoryStore(now=self.clock.now)
        self.provider = FakeProvider(self.clock)
        self.pushed: dict[str, Any] = {}
        self.observer = Observer(
            {"local": self.provider}, self.objects, lambda: self.pushed, self.clock, "s", 30.0
        )

    def write(self, key: str, beat: Beat) -> None:
        text = heartbeat.encode(beat).decode()
        self.objects.put(key, text.encode(), metadata={"beat": text})

    def look(self) -> Snapshot:
        self.clock.advance(30.0)
        return self.observer.look()


def told(snapshot: Snapshot, forged: tuple[str, ...] = ()) -> tuple[Beat, str]:
    part = snapshot.beat("digits", forged)
    assert isinstance(part, Seen)
    return part.value, part.source


@pytest.mark.parametrize(
    ("agents", "boots", "wins"), [(AGENT, BOOT, "store"), (AGENT, NEXT, "boot"), (None, BOOT, "boot")]
)
def test_the_newer_launch_and_sequence_wins_wherever_it_lies(
    agents: Beat | None, boots: Beat, wins: str
) -> None:
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
    assert isinstance(bench.look().beat("digits", ("store", "boot")), Absent)
    bench.pushed["digits"] = (replace(NEXT, sequence=2), bench.clock.monotonic())
    assert told(bench.look()) == (replace(NEXT, sequence=2), "push")


def test_a_boot_beat_of_another_run_is_none() -> None:
    bench = Bench()
    bench.write(runfiles.boot_beat("digits"), replace(BOOT, run_id="other"))
    snapshot = bench.look()
    assert isinstance(snapshot.beat("digits"), Absent)
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
