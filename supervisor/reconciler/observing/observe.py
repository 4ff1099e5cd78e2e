"""Observe the world in bulk, before the database is read: one listing of machines per provider, one listing of beats.

Never decides. Could not read is not absent: a listing that failed makes its machines Unknown, and a zone that was not
reached makes its own machines Unknown, and those alone. A listing that arrived late has the age of its request. Limits
that end something count from the moment since which their source has been read without a gap (`Freshness`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from supervisor.contract.heartbeat import Beat
from supervisor.domain.attempt import Try
from supervisor.domain.machines import Away, Capacity, Machine, MachineListing
from supervisor.domain.observation import BEATS, gap_s, machines_in, sources_of, zone_name
from supervisor.ports.clock import Clock
from supervisor.ports.objectstore import ObjectStore
from supervisor.ports.provider import Provider, ProviderUnavailable
from supervisor.ports.store import StoreDown
from supervisor.reconciler.fleet import Fleet, Listed, fleet_of
from supervisor.reconciler.observing.beats import BeatListing, BeatReader, RelayedBeat
from supervisor.reconciler.observing.resting import Resting
from supervisor.reconciler.system_clock import CLOCK_STEP_S
from supervisor.telemetry import logs as telemetry
from supervisor.telemetry import metrics

log = logging.getLogger(__name__)

AT_REST = "stored beats rest while pushed ones arrive"

Pushed = Mapping[str, tuple[Beat, float]]  # run_id -> (beat, monotonic time of its receipt)


@dataclass(frozen=True, slots=True)
class ProviderListing:
    """What one provider reported. `listing`: complete, apart from the zones that it could not reach; None = nothing may
    rest on this report, and `problem` says why. `machines`: by zone and name, also those of a report that is too old.
    `late_s`: how long ago a late report was requested; 0 = it arrived in time."""

    listing: MachineListing | None
    problem: str = ""
    machines: Mapping[str, Mapping[str, Machine]] = field(default_factory=dict)
    late_s: float = 0.0

    @property
    def lasting(self) -> bool:
        """A zone that it does not contain may be away for good."""
        return self.listing is not None and self.listing.zones is not None

    def machine(self, zone: str, name: str) -> Machine | None:
        in_zone = self.machines.get(zone)
        return None if in_zone is None else in_zone.get(name)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The bulk reads of one tick, by provider. `fresh`: source -> age in seconds, of those that were read completely.
    `unread`: zones that no listing reached; `away`: the same by provider and zone. `began_at`: the first read since our
    start, or since a new leadership."""

    taken_at: float
    monotonic: float
    listings: Mapping[str, ProviderListing]
    stored: BeatListing
    pushed: Pushed
    fresh: Mapping[str, float]
    observing_since: Mapping[str, float]
    unread: frozenset[str] = frozenset()
    away: Mapping[tuple[str, str], Away] = field(default_factory=dict)
    began_at: float = 0.0

    @property
    def requests(self) -> int:
        """How many calls these reads have cost."""
        return self.stored.requests + len(self.listings)

    @property
    def at_rest(self) -> bool:
        """Stored beats were not listed, because no run needs them."""
        return self.stored.requests == 0

    def capacities(self) -> dict[str, Capacity]:
        """By provider, where our own machines are the limit and were read."""
        read = {name: report.listing for name, report in self.listings.items()}
        return {name: listing.capacity for name, listing in read.items() if listing and listing.capacity is not None}

    def machines(self, zones: Iterable[tuple[str, str]]) -> Iterator[tuple[str, Machine]]:
        """Every machine of the listings in these zones (provider, zone), with its provider."""
        for name, zone in zones:
            report = self.listings.get(name)
            for machine in report.machines.get(zone, {}).values() if report is not None else ():
                yield name, machine

    def lists(self, try_: Try) -> bool:
        """A listing contains its machine."""
        report = self.listings.get(try_.placement.provider)
        return report is not None and report.machine(try_.placement.zone, try_.machine_name) is not None


@dataclass
class Observer:
    """Keeps between two ticks the parsed beats, and since when each source is read without a gap."""

    providers: Mapping[str, Provider]
    objects: ObjectStore
    pushed: Callable[[], Pushed]
    clock: Clock
    supervisor_id: str
    poll_interval_s: float
    scope: str = ""
    relayed: Callable[[], Iterable[RelayedBeat]] = tuple
    resting: Resting | None = None  # None: a listing costs nothing
    fleet: Fleet = field(init=False)
    beats: BeatReader = field(init=False)
    freshness: Freshness = field(init=False)
    away: Mapping[tuple[str, str], Away] = field(default_factory=dict)  # replaced whole: other threads read it
    _began_at: float | None = None
    _sources: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.fleet = fleet_of(self.providers, self.clock.monotonic)
        self.beats = BeatReader(self.objects, self.clock, self.supervisor_id, self.scope)
        self.freshness = Freshness(self.poll_interval_s)
        self._sources = sources_of(self.providers)
        self._last: Snapshot | None = None

    @property
    def store_trouble(self) -> str:
        """Why the last tick could not write and list the object store; "" = it could."""
        return self.beats.store_trouble

    @property
    def granted(self) -> tuple[Mapping[str, str], float]:
        """Run id -> launch whose stored beats may rest, and the monotonic time of the tick that says so."""
        return ({}, 0.0) if self.resting is None else (self.resting.granted, self.resting.granted_at)

    def restart(self) -> None:
        """Nothing that was remembered of the sources can be trusted."""
        self.freshness.reset()
        self.away, self._began_at = {}, None
        if self.resting is not None:
            self.resting.restart()

    def observe(self) -> Snapshot:
        self._last = None  # never two listings of all machines in memory
        snapshot = self._observe()
        self._last = replace(snapshot, stored=BeatListing({}), pushed={})  # the beats are replaced by newer ones
        return snapshot

    def observe_pushed(self) -> Snapshot | None:
        """What was pushed until now, beside the listings of the last tick, which are as late as they are old. Nothing
        is proven fresh, and stored beats are unknown. None where the last tick shows too little."""
        last, now, monotonic = self._last, self.clock.now(), self.clock.monotonic()
        if (
            self.freshness.check_clocks(now, monotonic)
            or last is None
            or self.freshness.is_gap(monotonic - last.monotonic)
        ):
            return None
        passed_s = monotonic - last.monotonic
        return replace(
            last,
            taken_at=now,
            monotonic=monotonic,
            listings={name: replace(report, late_s=report.late_s + passed_s) for name, report in last.listings.items()},
            stored=BeatListing({}, "stored beats are read by the next tick"),
            pushed=self.pushed(),
            fresh={},
            observing_since=self.freshness.since(now),
        )

    def _observe(self) -> Snapshot:
        self.freshness.check_clocks(self.clock.now(), self.clock.monotonic())
        answers = self.fleet.listings()
        heard = self._heard()
        stored = self.beats.read() if heard is None else BeatListing({}, AT_REST, requests=0)
        stored = self.beats.with_relayed(stored, self.relayed())
        now, monotonic = self.clock.now(), self.clock.monotonic()
        listings = {name: self._listing(name, answer, monotonic) for name, answer in answers.items()}
        self._began_at = now if self._began_at is None else self._began_at
        fresh, unread = self._note_machines(listings, now, monotonic)
        if stored.fresh:
            fresh[BEATS] = 0.0
            if self.resting is not None:
                self.resting.listed(monotonic)
        if stored.fresh or heard is not None:  # nobody is silent; what is stored from now on stays until it is read
            self.freshness.note(BEATS, now, monotonic)
        return Snapshot(
            taken_at=now,
            monotonic=monotonic,
            listings=listings,
            stored=stored,
            pushed=self.pushed() if heard is None else heard,
            fresh=fresh,
            observing_since=self.freshness.since(now),
            unread=unread,
            away=self.away,
            began_at=self._began_at,
        )

    def _heard(self) -> Pushed | None:
        """The pushed beats of a tick that needs no stored ones; None: it lists. After a gap it does: a listing begins
        the watch anew. So does a store in trouble: only a listing shows that it is well again."""
        monotonic = self.clock.monotonic()
        age_s = self.freshness.age_s(BEATS, monotonic)
        if self.resting is None or self.store_trouble or age_s is None or self.freshness.is_gap(age_s):
            return None
        try:
            pushed = self.pushed()
        except StoreDown:  # this tick will fail, but what it reads first still goes on without a gap
            return None
        return None if self.resting.needs_listing(pushed, monotonic) else pushed

    def _listing(self, name: str, answer: Listed | ProviderUnavailable, monotonic: float) -> ProviderListing:
        """A machine in a report that is older than a gap was there; nothing else rests on that report."""
        if not isinstance(answer, Listed):
            metrics.OBSERVE_ERRORS.add(self._sources[name])
            extra = {telemetry.ACTION: "observe", telemetry.PROVIDER: name, telemetry.ERROR: str(answer)}
            log.warning("machines unreadable", extra=extra)
            return ProviderListing(None, f"machines cannot be read: {answer}")
        late_s = 0.0 if answer.requested_at is None else monotonic - answer.requested_at
        machines: dict[str, dict[str, Machine]] = {}
        for machine in answer.listing.machines:
            machines.setdefault(machine.zone, {})[machine.name] = machine
        if self.freshness.is_gap(late_s):
            return ProviderListing(None, f"the listing is {late_s:.0f} s old", machines, late_s)
        return ProviderListing(answer.listing, "", machines, late_s)

    def _note_machines(
        self, listings: Mapping[str, ProviderListing], now: float, monotonic: float
    ) -> tuple[dict[str, float], frozenset[str]]:
        """(source of each complete listing -> its age, zones on which nothing may rest). A report that is older than a
        gap is noted for all its zones: it ends the gap, and every limit starts again."""
        fresh: dict[str, float] = {}
        unread: set[str] = set()
        away: dict[tuple[str, str], Away] = {}
        for name, report in listings.items():
            source, late_s = self._sources[name], report.late_s
            own = frozenset(offer.placement.zone for offer in self.providers[name].offers())
            # A zone that no offer names may be unreachable for as long as it likes.
            missed = own if report.listing is None else own & report.listing.unreachable
            if not missed:
                fresh[source] = late_s
            unread |= {zone_name(name, zone, source) for zone in missed}
            away |= {(name, zone): self._away(name, zone, report, now, monotonic) for zone in missed}
            old = self.freshness.is_gap(late_s)
            read = [machines_in(zone, source) for zone in (own if old else own - missed)]
            for noted in read if missed and not old else (*read, source):
                self.freshness.note(noted, now, monotonic, late_s)
        self.away = away
        return fresh, frozenset(unread)

    def _away(self, name: str, zone: str, report: ProviderListing, now: float, monotonic: float) -> Away:
        before, age_s = (
            self.away.get((name, zone)),
            self.freshness.age_s(machines_in(zone, self._sources[name]), monotonic),
        )
        since = before.since if before is not None else now if age_s is None else now - age_s
        reason = report.problem if report.listing is None else report.listing.unread(zone)
        return Away(zone, since, reason, report.lasting)


class Freshness:
    """Since when each source is read without a gap. A source starts again at our own start, at a new leadership, after
    a gap (`domain.observation.gap_s`), and when the wall clock steps: then ages across the step would be wrong."""

    def __init__(self, poll_interval_s: float) -> None:
        self._gap_s = gap_s(poll_interval_s)
        self._since: dict[str, float] = {}  # wall time, as decisions compare it
        self._last: dict[str, float] = {}  # monotonic time of the last good read
        self._offset_s: float | None = None  # wall minus monotonic

    def check_clocks(self, now: float, monotonic: float) -> bool:
        """True when the wall clock has stepped since the last call; then every source starts again."""
        offset_s = now - monotonic
        stepped = self._offset_s is not None and abs(offset_s - self._offset_s) > CLOCK_STEP_S
        self._offset_s = offset_s
        if stepped:
            self.reset()
        return stepped

    def reset(self) -> None:
        self._since.clear()
        self._last.clear()

    def note(self, source: str, now: float, monotonic: float, age_s: float = 0.0) -> None:
        """A complete and good read of `source`, requested `age_s` ago. One that is too old is a gap by itself."""
        read_at, last = monotonic - age_s, self._last.get(source)
        if last is None or read_at - last > self._gap_s or self.is_gap(age_s):
            self._since[source] = now
        self._last[source] = read_at

    def is_gap(self, age_s: float) -> bool:
        return age_s > self._gap_s

    def age_s(self, source: str, monotonic: float) -> float | None:
        """Of the last good read; None = there was none."""
        last = self._last.get(source)
        return None if last is None else max(0.0, monotonic - last)

    def since(self, now: float) -> dict[str, float]:
        """source -> read without a gap since. A source that was never read counts from now."""
        return {source: min(at, now) for source, at in self._since.items()}
