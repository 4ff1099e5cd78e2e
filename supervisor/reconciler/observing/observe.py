"""Look at the world in bulk, before the database is read: one machine listing, one beat listing. Never decides.

Could not read is not absent: a listing that failed makes its parts Unknown, and a zone that was not reached makes its
machines Unknown, and those alone. A listing of beats counts as fresh only when it shows the canary that was written
just before it. What a machine says while it boots lies beside the beats and is read with them.
"""

from __future__ import annotations

import errno
import logging
import math
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from supervisor.contract import heartbeat, runfiles
from supervisor.contract.heartbeat import Beat, BeatRejected
from supervisor.contract.identifiers import parse_launch_id
from supervisor.domain.attempt import Try
from supervisor.domain.machines.machine import Machine, MachineListing
from supervisor.domain.machines.room import Room
from supervisor.domain.observation import Absent, Part, Seen, Unknown
from supervisor.domain.world import BEATS, MACHINES, machines_in
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
from supervisor.reconciler.observing.freshness import Freshness
from supervisor.telemetry import logs as telemetry
from supervisor.telemetry import metrics

log = logging.getLogger(__name__)

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
    """One look. `listings`: provider -> listing, or the reason why there is none."""

    taken_at: float
    monotonic: float
    listings: Mapping[str, MachineListing | str]
    by_place: Mapping[
        str, Mapping[tuple[str, str], Machine]
    ]  # provider -> (zone, name): one zone knows a name once
    stored: Mapping[str, StoredBeat] | str
    pushed: Pushed
    fresh: frozenset[str]
    observing_since: Mapping[str, float]
    rejected: tuple[tuple[str, str], ...] = ()  # (run_id, why) of beats that are not beats
    requests: int = 0  # how many calls this look has cost
    unread: frozenset[str] = frozenset()  # zones that no listing reached

    def machine(
        self, provider: str, zone: str, name: str, supervisor_id: str, launch_id: str, now: float
    ) -> Part[Machine]:
        listing = self.listings.get(provider, "no such provider")
        if isinstance(listing, str):
            return Unknown(listing)
        if zone in listing.unreachable:
            return Unknown(f"zone {zone} could not be read")
        age_s = max(0.0, now - self.taken_at)
        machine = self.by_place[provider].get((zone, name))
        if machine is None:
            return Absent(age_s, "listing")
        if machine.supervisor_id != supervisor_id or machine.launch_id != launch_id:
            return Unknown(f"a machine named {name} belongs to another launch", taken=True)
        return Seen(machine, age_s, "listing")

    def rooms(self) -> dict[str, Room]:
        """By provider, of those whose places are limited by our own machines and that were read."""
        told = {name: found.room for name, found in self.listings.items() if not isinstance(found, str)}
        return {name: room for name, room in told.items() if room is not None}

    def lists(self, try_: Try) -> bool:
        """Its machine is in the listing."""
        place = try_.placement
        return (place.zone, try_.machine_name) in self.by_place.get(place.provider, {})

    def beat(self, run_id: str, forged: Collection[str] = ()) -> Part[Beat]:
        """The newest beat of any source: the highest (launch, sequence) wins content, the smaller age freshness.
        `forged`: sources, of "store" and "boot", that were found to lie, as if they were not there."""
        written = {} if isinstance(self.stored, str) else self.stored
        stored = None if "store" in forged else written.get(run_id)
        boot = None if "boot" in forged else written.get(run_id + runfiles.BOOT)
        agents = self._agents_beat(run_id, stored)
        if boot is None or (isinstance(agents, Seen) and _order(agents.value) >= _order(boot.beat)):
            return agents
        return Seen(boot.beat, boot.age_s, "boot")

    def _agents_beat(self, run_id: str, stored: StoredBeat | None) -> Part[Beat]:
        pushed = self.pushed.get(run_id)
        if pushed is None and stored is None:
            return Unknown(self.stored) if isinstance(self.stored, str) else Absent(0.0, "listing")
        if pushed is None:
            assert stored is not None
            return Seen(stored.beat, stored.age_s, "store")
        push_age_s = max(0.0, self.monotonic - pushed[1])
        if stored is None or _order(pushed[0]) >= _order(stored.beat):
            same = stored is not None and stored.beat.launch_id == pushed[0].launch_id
            age_s = min(push_age_s, stored.age_s) if same and stored is not None else push_age_s
            return Seen(pushed[0], age_s, "push")
        return Seen(stored.beat, stored.age_s, "store")


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


def _order(beat: Beat) -> tuple[tuple[int, int, int], int]:
    return parse_launch_id(beat.launch_id), beat.sequence


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
    freshness: Freshness = field(init=False)
    store_trouble: str = ""  # why the last look could not write and list the object store; "" = it could
    _parsed: dict[str, _Parsed] = field(default_factory=dict)
    _beats_read_at: float | None = None  # monotonic time of the last good listing of beats

    def __post_init__(self) -> None:
        self.freshness = Freshness(self.poll_interval_s)

    def look(self) -> Snapshot:
        self.freshness.clocks(self.clock.now(), self.clock.monotonic())
        listings = {name: self._machines(provider) for name, provider in self.providers.items()}
        rejected: list[tuple[str, str]] = []
        stored, fresh, requests = self._beats(rejected)
        now, monotonic = self.clock.now(), self.clock.monotonic()
        sources = {BEATS} if fresh else set()
        reached, unread = self._zones(listings)
        if not unread:
            sources.add(MACHINES)
        for source in (*sources, *map(machines_in, reached)):
            self.freshness.read(source, now, monotonic)
        return Snapshot(
            taken_at=now,
            monotonic=monotonic,
            listings=listings,
            by_place={
                name: {(machine.zone, machine.name): machine for machine in found.machines}
                for name, found in listings.items()
                if not isinstance(found, str)
            },
            stored=stored,
            pushed=self.pushed(),
            fresh=frozenset(sources),
            observing_since=self.freshness.since(now),
            rejected=tuple(rejected),
            requests=requests + len(listings),
            unread=unread,
        )

    def _zones(self, listings: Mapping[str, MachineListing | str]) -> tuple[frozenset[str], frozenset[str]]:
        """(zones of ours that were read just now, those that were not). A listing that failed has read none; a zone
        that nobody asks for may be away for as long as it likes."""
        offered: set[str] = set()
        unread: set[str] = set()
        for name, found in listings.items():
            own = {offer.placement.zone for offer in self.providers[name].offers()}
            offered |= own
            unread |= own if isinstance(found, str) else own & found.unreachable
        return frozenset(offered - unread), frozenset(unread)

    def _machines(self, provider: Provider) -> MachineListing | str:
        try:
            return provider.machines()
        except ProviderUnavailable as error:
            metrics.OBSERVE_ERRORS.add(MACHINES)
            log.warning(
                "machines unreadable",
                extra={
                    telemetry.ACTION: "observe",
                    telemetry.PROVIDER: provider.name,
                    telemetry.ERROR: str(error),
                },
            )
            return f"machines cannot be read: {error}"

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
        self,
        info: ObjectInfo,
        server_time: float,
        found: dict[str, StoredBeat],
        rejected: list[tuple[str, str]],
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
