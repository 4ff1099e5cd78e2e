"""Look at the world in bulk, before the database is read: one machine listing, one beat listing. Never decides.

Could not read is not absent: a listing that failed makes its parts Unknown, and a zone that was not reached makes its
machines Unknown, and those alone. An answer that came late has the age of its request: a machine that it leaves out is
Absent only where it is known to have been there by then, else Unknown. A listing of beats counts as fresh only when it
shows the canary that was written just before it. What a machine says while it boots lies beside the beats and is read
with them.
"""

from __future__ import annotations

import errno
import logging
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from supervisor.contract import heartbeat, runfiles
from supervisor.contract.heartbeat import Beat, BeatRejected
from supervisor.contract.identifiers import parse_launch_id
from supervisor.domain.attempt import Try
from supervisor.domain.machines import Capacity, Machine, MachineListing
from supervisor.domain.observation import BEATS, Absent, Part, Seen, Unknown, machines_in, sources_of, zone_name
from supervisor.ports.clock import Clock
from supervisor.ports.objectstore import (
    ObjectInfo,
    ObjectStore,
    StoreForbidden,
    StoreFull,
    StoreMissing,
    StoreUnavailable,
)
from supervisor.ports.provider import Provider, ProviderUnavailable
from supervisor.reconciler.fleet import Fleet, Listed, fleet_of
from supervisor.reconciler.observing.freshness import Freshness
from supervisor.telemetry import logs as telemetry
from supervisor.telemetry import metrics

log = logging.getLogger(__name__)

PUSH, STORE, BOOT = "push", "store", "boot"  # sources of beats
Pushed = Mapping[str, tuple[Beat, float]]  # run_id -> (beat, monotonic time of its receipt)


@dataclass(frozen=True, slots=True)
class StoredBeat:
    beat: Beat
    age_s: float


@dataclass(frozen=True, slots=True)
class _Parsed:
    """One stored object. `beat` None: it is no beat. `after`: monotonic time of the last good look before the first one
    that showed it; None = there was none."""

    generation: str
    beat: Beat | None
    after: float | None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One look. `listings`: provider -> listing, or why there is none to rest on. `listing_ages`: provider ->
    age in seconds of an answer that came late; `ages`: the same by source, of those that are fresh."""

    taken_at: float
    monotonic: float
    listings: Mapping[str, MachineListing | str]
    by_place: Mapping[str, Mapping[tuple[str, str], Machine]]  # provider -> (zone, name): one zone knows a name once
    stored: Mapping[str, StoredBeat] | str
    pushed: Pushed
    fresh: frozenset[str]
    observing_since: Mapping[str, float]
    rejected: tuple[tuple[str, str], ...] = ()  # (run_id, why) of beats that are not beats
    requests: int = 0  # how many calls this look has cost
    unread: frozenset[str] = frozenset()  # zones that no listing reached
    listing_ages: Mapping[str, float] = field(default_factory=dict)
    ages: Mapping[str, float] = field(default_factory=dict)

    def machine(
        self,
        provider: str,
        zone: str,
        name: str,
        supervisor_id: str,
        launch_id: str,
        now: float,
        there_at: float | None = None,
    ) -> Part[Machine]:
        """`there_at`: a listing that was asked for later and leaves the machine out says that it is not there; None =
        no late listing says so."""
        listing = self.listings.get(provider, f"provider {provider} is not in the settings")
        machine = self.by_place.get(provider, {}).get((zone, name))
        if isinstance(listing, str) and machine is None:
            return Unknown(listing)
        if not isinstance(listing, str) and zone in listing.unreachable:
            return Unknown(f"zone {zone} could not be read")
        late_s = self.listing_ages.get(provider, 0.0)
        age_s = max(0.0, now - self.taken_at) + late_s
        if machine is None and late_s > 0 and (there_at is None or there_at > self.taken_at - late_s):
            return Unknown(f"it may have come since the listing, which is {late_s:.0f} s old")
        if machine is None:
            return Absent(age_s, "listing")
        if machine.supervisor_id != supervisor_id or machine.launch_id != launch_id:
            return Unknown(f"a machine named {name} belongs to another launch", taken=True)
        return Seen(machine, age_s, "listing")

    def capacities(self) -> dict[str, Capacity]:
        """By provider, of those whose places are limited by our own machines and that were read."""
        told = {name: found.capacity for name, found in self.listings.items() if not isinstance(found, str)}
        return {name: capacity for name, capacity in told.items() if capacity is not None}

    def lists(self, try_: Try) -> bool:
        """Its machine is in the listing."""
        place = try_.placement
        return (place.zone, try_.machine_name) in self.by_place.get(place.provider, {})

    def beat(self, run_id: str, believed: Callable[[Seen[Beat]], bool]) -> Part[Beat]:
        """The newest beat of any source: the highest (launch, sequence) wins content, the smaller age freshness.
        `believed` is asked of what lies in the store, where anybody who may write there could have written it."""
        written = {} if isinstance(self.stored, str) else self.stored
        parts: list[Seen[Beat]] = []
        if run_id in self.pushed:
            beat, received = self.pushed[run_id]
            parts.append(Seen(beat, max(0.0, self.monotonic - received), PUSH))
        for name, source in ((run_id, STORE), (run_id + runfiles.BOOT, BOOT)):
            if name in written:
                parts.append(Seen(written[name].beat, written[name].age_s, source))
        if len(parts) > 1:
            parts.sort(key=_order, reverse=True)  # of two that are equal the first stays first
        while parts:
            part = parts.pop(0)
            if part.source != PUSH and not believed(part):
                continue
            if part.source != PUSH:
                return part
            ages = [
                older.age_s for older in parts
                if older.source == STORE and older.value.launch_id == part.value.launch_id
            ]  # fmt: skip
            return Seen(part.value, min(part.age_s, *ages), PUSH) if ages else part
        return Unknown(self.stored) if isinstance(self.stored, str) else Absent(0.0, "listing")


def _trouble(error: StoreUnavailable, doing: str) -> str:
    """Named by its kind: the error's own text may hold paths and addresses, and everybody may read this."""
    if isinstance(error, StoreFull):
        return "the object store is full"
    if isinstance(error, StoreForbidden):
        return "the object store refuses this account"
    if isinstance(error, StoreMissing):
        return "the object store is gone"
    why = {errno.EROFS: ": its folder is read-only", errno.EACCES: ": permission denied"}
    return f"the object store cannot be {doing}{why.get(getattr(error.__cause__, 'errno', None) or 0, '')}"


def _order(part: Seen[Beat]) -> tuple[tuple[int, int, int], int]:
    return parse_launch_id(part.value.launch_id), part.value.sequence


@dataclass
class Observer:
    """Keeps what is worth keeping between two looks: parsed beats by generation, and the freshness of each source.
    `scope` tells the canary of this cell from those of other cells with the same bucket."""

    providers: Mapping[str, Provider]
    objects: ObjectStore
    pushed: Callable[[], Pushed]
    clock: Clock
    supervisor_id: str
    poll_interval_s: float
    scope: str = ""
    fleet: Fleet = field(init=False)
    freshness: Freshness = field(init=False)
    store_trouble: str = ""  # why the last look could not write and list the object store; "" = it could
    _sources: Mapping[str, str] = field(init=False)
    _parsed: dict[str, _Parsed] = field(default_factory=dict)
    _beats_read_at: float | None = None  # monotonic time of the last good listing of beats

    def __post_init__(self) -> None:
        self.fleet = fleet_of(self.providers, self.clock.monotonic)
        self._sources = sources_of(self.providers)
        self.freshness = Freshness(self.poll_interval_s)

    def look(self) -> Snapshot:
        self.freshness.clocks(self.clock.now(), self.clock.monotonic())
        answers = self.fleet.look()
        rejected: list[tuple[str, str]] = []
        stored, fresh, requests = self._beats(rejected)
        now, monotonic = self.clock.now(), self.clock.monotonic()
        late_s = {
            name: monotonic - answer.asked_at
            for name, answer in answers.items()
            if isinstance(answer, Listed) and answer.asked_at is not None
        }
        listings = {name: self._listing(name, answer, late_s.get(name, 0.0)) for name, answer in answers.items()}
        parts, ages, unread = self._sources_read(listings, late_s)
        if fresh:
            ages[BEATS] = 0.0
        for source, age_s in (parts | ages).items():
            self.freshness.read(source, now, monotonic, age_s)
        return Snapshot(
            taken_at=now,
            monotonic=monotonic,
            listings=listings,
            by_place={
                name: {(machine.zone, machine.name): machine for machine in answer.listing.machines}
                for name, answer in answers.items()
                if isinstance(answer, Listed)
            },
            stored=stored,
            pushed=self.pushed(),
            fresh=frozenset(ages),
            observing_since=self.freshness.since(now),
            rejected=tuple(rejected),
            requests=requests + len(listings),
            unread=unread,
            listing_ages=late_s,
            ages=ages,
        )

    def _sources_read(
        self, listings: Mapping[str, MachineListing | str], late_s: Mapping[str, float]
    ) -> tuple[dict[str, float], dict[str, float], frozenset[str]]:
        """(source -> age of what was read, source of a complete listing -> age, zones on which nothing can rest). An
        answer that is older than a gap counts as the end of one: every limit begins anew."""
        parts: dict[str, float] = {}
        complete: dict[str, float] = {}
        unread: set[str] = set()
        for name, listing in listings.items():
            source, age_s = self._sources[name], late_s.get(name, 0.0)
            reached, missed = self._zones(name, listing)
            if self.freshness.is_gap(age_s):
                parts |= {source: age_s} | {machines_in(zone, source): age_s for zone in missed}
            parts |= {machines_in(zone, source): age_s for zone in reached}
            if not missed:
                complete[source] = age_s
            unread |= {zone_name(name, zone, source) for zone in missed}
        return parts, complete, frozenset(unread)

    def _zones(self, name: str, listing: MachineListing | str) -> tuple[frozenset[str], frozenset[str]]:
        """(zones of this provider that were read, those that were not). A listing that failed has read none; a zone
        that nobody asks for may be away for as long as it likes."""
        own = frozenset(offer.placement.zone for offer in self.providers[name].offers())
        missed = own if isinstance(listing, str) else own & listing.unreachable
        return own - missed, missed

    def _listing(self, name: str, answer: Listed | ProviderUnavailable, late_s: float) -> MachineListing | str:
        """A machine that an answer older than a gap shows was there; nothing else rests on it."""
        if isinstance(answer, Listed) and self.freshness.is_gap(late_s):
            return f"the listing is {late_s:.0f} s old"
        if isinstance(answer, Listed):
            return answer.listing
        metrics.OBSERVE_ERRORS.add(self._sources[name])
        log.warning(
            "machines unreadable",
            extra={telemetry.ACTION: "observe", telemetry.PROVIDER: name, telemetry.ERROR: str(answer)},
        )
        return f"machines cannot be read: {answer}"

    def _beats(self, rejected: list[tuple[str, str]]) -> tuple[dict[str, StoredBeat] | str, bool, int]:
        """(beats by run id, boot beats by the same with their suffix, or the reason why there are none; whether the
        canary proved them fresh; requests)."""
        canary = runfiles.canary(self.supervisor_id, self.scope)
        began = self.clock.monotonic()
        doing = "written"
        try:
            written = self.objects.put(canary, b"")
            doing = "read"
            found: dict[str, StoredBeat] = {}
            fresh, requests = False, 1
            for page in self.objects.pages(runfiles.BEATS):
                requests += 1
                for info in page.objects:
                    if runfiles.is_canary(info.key):
                        fresh = fresh or (info.key == canary and info.generation == written.generation)
                        continue
                    self._take(info, page.server_time, found, rejected)
        except StoreUnavailable as error:
            metrics.OBSERVE_ERRORS.add(BEATS)
            log.warning("beats unreadable", extra={telemetry.ACTION: "observe", telemetry.ERROR: str(error)})
            self.store_trouble = _trouble(error, doing)
            return f"the object store cannot be read: {error}", False, 1
        self.store_trouble = ""
        if len(self._parsed) > 2 * len(found) + 1000:
            self._parsed = {name: kept for name, kept in self._parsed.items() if name in found}
        if fresh:
            self._beats_read_at = began
        return found, fresh, requests

    def _take(
        self, info: ObjectInfo, server_time: float, found: dict[str, StoredBeat], rejected: list[tuple[str, str]]
    ) -> None:
        name = info.key[len(runfiles.BEATS) :]
        run_id = name.removesuffix(runfiles.BOOT)
        known = self._parsed.get(name)
        if known is None or known.generation != info.generation:
            beat: Beat | None = None
            try:
                beat = heartbeat.parse(info.metadata.get("beat", "").encode("utf-8", "replace"))
                if beat.run_id != run_id:
                    beat = None
                    raise BeatRejected("it names another run")
            except BeatRejected as error:
                rejected.append((run_id, str(error)))
                beat = None
            known = self._parsed[name] = _Parsed(info.generation, beat, self._beats_read_at)
        if known.beat is not None:
            found[name] = StoredBeat(known.beat, self._age_s(known, server_time - info.updated))

    def _age_s(self, known: _Parsed, told_s: float) -> float:
        """By the store's clocks, which a proxy's wrong Date can spoil: what the last good look did not show yet was
        written after it."""
        most_s = math.inf if known.after is None else self.clock.monotonic() - known.after
        return min(max(0.0, told_s), most_s)
