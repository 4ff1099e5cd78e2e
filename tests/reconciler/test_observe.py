"""What one tick observes: which beat counts where several are stored, which zones were read since when, what a 404 by
id means."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from supervisor.contract import heartbeat, runfiles
from supervisor.contract.heartbeat import Beat
from supervisor.contract.identifiers import nonce_hash
from supervisor.domain.causes import Cause
from supervisor.domain.machines import Away, Machine, MachineListing, MachineRef, MachineState
from supervisor.domain.observation import BEATS, MACHINES, Absent, Part, Seen, Unknown, machines_in
from supervisor.domain.status import Status
from supervisor.objectstores.filesystem import FilesystemStore
from supervisor.ports.objectstore import MAX_PAGE, IsKnown, Page, StoreUnavailable
from supervisor.ports.provider import LaunchRequest
from supervisor.ports.store import StoreDown
from supervisor.reconciler.observing.observations import Nonces, Observations
from supervisor.reconciler.observing.observe import Observer, Snapshot
from supervisor.reconciler.observing.readers import look_up
from supervisor.reconciler.observing.resting import Resting
from supervisor.reconciler.outcomes import Outcomes
from tests.fakes.clock import FakeClock
from tests.fakes.objectstore import MemoryStore
from tests.fakes.provider import FakeProvider
from tests.lifecycle.sample_runs import ended, open_try, run_in

# The run's last attempt was launch 1.1.1, and 1.2.1 is on its way.
BOOT = Beat("digits", 1, "1.1.1", "m", "b", 7, "image", "nonce of 1.1.1", message="pulling image")
AGENT = BOOT._replace(sequence=100, phase="restore", message="")
NEXT = BOOT._replace(attempt=2, launch_id="1.2.1", sequence=1, nonce="nonce of 1.2.1")
RUN = run_in(
    Status.LAUNCHING, run_id="digits", attempt=ended(Cause.PREEMPTED, 60.0, number=1, launch_id="1.1.1"),
    try_=replace(open_try(attempt_number=2), launch_id="1.2.1", nonce_hash=nonce_hash("nonce of 1.2.1")),
)  # fmt: skip


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

    def observe(self) -> Snapshot:
        self.clock.advance(30.0)
        return self.observer.observe()

    def observations(self) -> Observations:
        store: Any = SimpleNamespace(nonce_hash=lambda run_id, launch_id: nonce_hash(f"nonce of {launch_id}"))
        return Observations(self.observe(), Outcomes(), Nonces(store), "s", self.clock.now())

    def beat(self) -> Part[Beat]:
        return self.observations().beat(RUN)

    def newest(self) -> tuple[Beat, str]:
        part = self.beat()
        assert isinstance(part, Seen)
        return part.value, part.source


@pytest.mark.parametrize(
    ("agents", "boots", "wins"), [(AGENT, BOOT, "store"), (AGENT, NEXT, "boot"), (None, BOOT, "boot")]
)
def test_the_newer_launch_and_sequence_wins_wherever_it_is_stored(agents: Beat | None, boots: Beat, wins: str) -> None:
    bench = Bench()
    if agents is not None:
        bench.write(runfiles.beat("digits"), agents)
    bench.write(runfiles.boot_beat("digits"), boots)
    before = bench.observe().requests
    assert bench.newest() == ({"store": agents, "boot": boots}[wins], wins)
    assert bench.observe().requests == before


def test_a_forged_beat_hides_none_of_the_others() -> None:
    bench = Bench()
    forged = {"nonce": "guessed"}
    bench.write(runfiles.beat("digits"), AGENT)
    bench.write(runfiles.boot_beat("digits"), NEXT._replace(**forged))
    assert bench.newest() == (AGENT, "store")
    bench.write(runfiles.beat("digits"), AGENT._replace(**forged))
    bench.write(runfiles.boot_beat("digits"), NEXT)
    assert bench.newest() == (NEXT, "boot")
    bench.write(runfiles.boot_beat("digits"), NEXT._replace(**forged))
    observations = bench.observations()
    assert isinstance(observations.beat(RUN), Absent)
    assert [run_id for run_id, _ in observations.rejected] == ["digits", "digits"]
    bench.pushed["digits"] = (NEXT._replace(sequence=2), bench.clock.monotonic())
    assert bench.newest() == (NEXT._replace(sequence=2), "push")


def test_a_push_is_as_fresh_as_an_older_stored_beat_of_its_launch_but_not_as_a_forged_one() -> None:
    bench = Bench()
    bench.pushed["digits"] = (AGENT, bench.clock.monotonic() - 300.0)
    for sequence, age_s in ((99, 30.0), (101, 360.0)):
        bench.write(runfiles.beat("digits"), AGENT._replace(sequence=sequence, nonce="guessed"))
        part = bench.beat()
        assert isinstance(part, Seen)
        assert (part.source, part.age_s) == ("push", age_s)


def test_a_late_beat_of_the_last_attempt_needs_its_nonce_too() -> None:
    bench = Bench()
    late = AGENT._replace(checkpoint_step=12290)
    bench.write(runfiles.beat("digits"), late)
    assert bench.newest() == (late, "store")
    bench.write(runfiles.beat("digits"), late._replace(nonce="guessed"))
    assert isinstance(bench.beat(), Absent)


def test_a_boot_beat_of_another_run_does_not_count() -> None:
    bench = Bench()
    bench.write(runfiles.boot_beat("digits"), BOOT._replace(run_id="other"))
    observations = bench.observations()
    assert isinstance(observations.beat(RUN), Absent)
    assert [run_id for run_id, _ in observations.snapshot.stored.rejected] == ["digits"]


def test_each_zone_is_watched_since_its_own_moment() -> None:
    bench = Bench()
    first = bench.observe().observing_since
    bench.provider.unreachable.add("local-b")
    for _ in range(4):
        snapshot = bench.observe()
    assert MACHINES not in snapshot.fresh
    assert snapshot.unread == {"local-b"}
    bench.provider.unreachable.clear()
    snapshot = bench.observe()
    since = snapshot.observing_since
    assert MACHINES in snapshot.fresh
    assert since[machines_in("local-a")] == first[machines_in("local-a")]
    assert since[machines_in("local-b")] == since[MACHINES] == snapshot.taken_at


def test_a_zone_that_cannot_be_read_is_away_since_its_last_reading() -> None:
    bench = Bench()
    read_at = bench.observe().taken_at
    bench.provider.unreachable.add("local-b")
    first = bench.observe()
    expected = {("local", "local-b"): Away("local-b", read_at, "local-b does not answer")}
    second = bench.observe()
    assert (first.away, second.away, bench.observer.away) == (expected, expected, expected)
    bench.provider.down = True
    away = bench.observe().away["local", "local-a"]
    assert (away.since, away.reason) == (second.taken_at, "machines cannot be read: the platform does not answer")
    bench.observer.restart()
    again = bench.observe()
    assert {each.since for each in again.away.values()} == {again.taken_at}, (
        "an earlier leadership knows nothing of now"
    )
    bench.provider.down = False
    bench.provider.unreachable.clear()
    assert bench.observe().away == {}


def test_a_host_that_left_the_settings_is_away_since_our_start() -> None:
    bench = Bench()
    began = bench.observe().taken_at
    bench.provider.settings_zones = frozenset({"local-a"})
    bench.observe()
    part = bench.observations().machine(MachineRef("local", "local-b", "m", "id"), "1.1.1")
    assert isinstance(part, Unknown)
    assert part.away is not None
    assert (part.away.since, part.away.lasting) == (began, True)


def test_a_zone_that_no_run_allows_does_not_make_a_listing_incomplete() -> None:
    bench = Bench()
    bench.provider.unreachable.add("far-away-a")
    snapshot = bench.observe()
    assert MACHINES in snapshot.fresh
    assert snapshot.unread == frozenset()


def test_a_listing_that_failed_has_read_no_zone() -> None:
    bench = Bench()
    bench.observe()
    bench.provider.down = True
    snapshot = bench.observe()
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
        part = bench.observations().machine(MachineRef("local", "local-a", "vm"), "1.1.1")
        assert isinstance(part, Seen)
        assert part.value.machine_id == "1"


def test_a_machine_that_is_gone_is_what_its_id_says() -> None:
    bench = Bench()
    place = bench.provider.offers()[0].placement
    machine = bench.provider.launch(LaunchRequest("m-1", "r", place, "s", "digits", "1.1.1", 60.0))
    bench.provider.remove("m-1", Cause.MACHINE_DELETED, "deleted by anna@example.com")
    looked_up = look_up(bench.provider, MachineRef("local", place.zone, "m-1", machine.machine_id), "1.1.1")
    assert isinstance(looked_up, Seen)
    assert looked_up.value.record is not None
    assert "anna" in looked_up.value.record.detail
    assert isinstance(look_up(bench.provider, MachineRef("local", place.zone, "m-1"), "1.1.1"), Absent)


def test_a_store_that_accepts_no_writes_is_found_after_one_tick() -> None:
    bench = Bench()
    bench.observe()
    assert bench.observer.store_trouble == ""
    bench.objects.full = True
    bench.observe()
    assert bench.observer.store_trouble == "the object store is full"
    bench.objects.full = False
    bench.observe()
    assert bench.observer.store_trouble == ""


def test_a_tick_rests_only_while_the_store_is_well_and_the_clock_goes_on() -> None:
    """Nobody is active: nothing but the store and the clock makes a tick list."""
    bench = Bench()
    bench.observer.resting = Resting(60.0, 30.0)
    assert not bench.observe().at_rest, "the first tick lists"
    snapshot = bench.observe()
    assert (snapshot.at_rest, BEATS in snapshot.fresh, snapshot.stored.fresh) == (True, False, False)
    bench.objects.full = True
    bench.observer.resting.doubt()
    assert not bench.observe().at_rest
    assert bench.observer.store_trouble == "the object store is full"
    assert not bench.observe().at_rest, "until it is well again"
    bench.objects.full = False
    assert not bench.observe().at_rest
    assert bench.observe().at_rest
    bench.clock.step(-600.0)
    assert not bench.observe().at_rest
    assert bench.observe().at_rest
    bench.clock.advance(120.0)
    assert not bench.observe().at_rest, "after a gap"
    bench.observer.restart()
    assert not bench.observe().at_rest


def test_a_database_that_is_away_makes_no_gap_in_what_is_read_without_it() -> None:
    """Replicas hand pushed beats over by the database: its outage must not begin the watch of any silence anew."""
    bench, reads, away = Bench(), [0], [True]

    def pushed() -> Any:
        reads[0] += 1
        if away[0]:
            raise StoreDown("away")
        return {}

    bench.observer.resting, bench.observer.pushed = Resting(60.0, 30.0), pushed
    for _ in range(6):
        with pytest.raises(StoreDown):
            bench.observe()
    away[0], reads[0] = False, 0
    snapshot = bench.observe()
    assert (snapshot.at_rest, reads) == (True, [1]), "each read of them is a transaction"
    assert {snapshot.observing_since[BEATS], snapshot.observing_since[MACHINES]} == {snapshot.taken_at - 180.0}


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
    bench.observer.beats.objects = FilesystemStore.create(tmp_path / "store")
    bench.observe()
    real = os.open

    def refused(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if flags & os.O_CREAT:
            raise OSError(number, os.strerror(number))
        return real(path, flags, *more, **named)

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refused)
        bench.observe()
    assert bench.observer.store_trouble == words
    assert str(tmp_path) not in words
    bench.observe()
    assert bench.observer.store_trouble == ""


class WrongDate(MemoryStore):
    """A proxy whose Date header is an hour fast: every listing seems an hour late."""

    ahead_s = 0.0

    def pages(self, prefix: str, page_size: int = MAX_PAGE, is_known: IsKnown = None) -> Iterator[Page]:
        for page in super().pages(prefix, page_size, is_known):
            yield page._replace(server_time=page.server_time + self.ahead_s)


def test_a_beat_newer_than_in_the_last_tick_is_no_older_than_that_tick() -> None:
    bench = Bench()
    bench.objects = bench.observer.beats.objects = WrongDate(now=bench.clock.now)
    bench.write(runfiles.beat("digits"), AGENT)
    bench.observe()
    bench.objects.ahead_s = 3600.0
    bench.clock.advance(20.0)
    bench.write(runfiles.beat("digits"), AGENT._replace(sequence=101))
    part = bench.beat()
    assert isinstance(part, Seen)
    assert part.age_s == 50.0, "the last tick was 50 s ago"
    later = bench.beat()
    assert isinstance(later, Seen)
    assert later.age_s == 80.0, "the same beat again: nothing newer has come"


def test_the_first_stored_beat_after_a_rest_is_no_older_than_the_push_before_it() -> None:
    """The last listing was long ago, so it bounds nothing: with the wrong Date a living agent would look dead."""
    bench = Bench()
    bench.objects = bench.observer.beats.objects = WrongDate(now=bench.clock.now)
    bench.observer.resting = Resting(60.0, 30.0)
    bench.write(runfiles.beat("digits"), AGENT)
    bench.observe()
    assert all(bench.observe().at_rest for _ in range(15))
    bench.pushed["digits"] = (AGENT._replace(sequence=280), bench.clock.monotonic())
    bench.objects.ahead_s = 3600.0
    bench.write(runfiles.beat("digits"), AGENT._replace(sequence=281))
    bench.observer.resting.doubt()
    part = bench.beat()
    assert isinstance(part, Seen)
    assert (part.value.sequence, part.source, part.age_s) == (281, "store", 30.0)


class BreaksOff(MemoryStore):
    """A listing has one object on a page, and fails after so many pages."""

    pages_left = 1000

    def pages(self, prefix: str, page_size: int = MAX_PAGE, is_known: IsKnown = None) -> Iterator[Page]:
        for number, page in enumerate(super().pages(prefix, 1, is_known)):
            if number == self.pages_left:
                raise StoreUnavailable("it breaks off")
            yield page


def test_after_a_listing_that_broke_off_the_next_one_has_every_beat() -> None:
    """The part that was read is kept: its metadata is not listed again."""
    bench = Bench()
    store = bench.objects = bench.observer.beats.objects = BreaksOff(now=bench.clock.now)
    names = ["digits", "faces", "letters"]

    def write(sequence: int) -> None:
        for name in names:
            bench.write(runfiles.beat(name), AGENT._replace(run_id=name, sequence=sequence))

    for sequence in (100, 101, 102):
        write(sequence)
        for left in range(len(names)):
            store.pages_left = left
            stored = bench.observe().stored
            assert (dict(stored.beats), stored.fresh, stored.rejected) == ({}, False, ())
            assert "breaks off" in stored.problem
        store.pages_left = 1000
        for _ in range(2):
            stored = bench.observe().stored
            assert {name: read.beat.sequence for name, read in stored.beats.items()} == dict.fromkeys(names, sequence)
            assert (stored.rejected, stored.problem) == ((), "")
