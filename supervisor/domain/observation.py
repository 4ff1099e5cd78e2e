"""What a decision sees: the observation of its run, and the world around it.

An observation is everything seen of one run at one instant. Each part is Seen, Absent or Unknown: a part that could not
be read is not absent. `NOT_READ` is the Unknown of parts that are read only on request (`wants` of a decision). The
world holds settings, offers, zone records and how fresh each source is. A source is read on its own: the beats, and the
machines of each provider.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from supervisor.contract.baton import Baton, FileEntry
from supervisor.contract.heartbeat import Beat
from supervisor.contract.identifiers import parse_launch_id
from supervisor.domain.causes import Cause
from supervisor.domain.incidents import Blocked
from supervisor.domain.machines import (
    NO_OTHER_WAY,
    Away,
    Capacity,
    Machine,
    Meter,
    Offer,
    OfferKey,
    Outlook,
    Placement,
    Quota,
    ZoneRecord,
)
from supervisor.domain.policies import Knobs
from supervisor.domain.profile import Profile
from supervisor.domain.run import WriteOff
from supervisor.domain.status import Status

T = TypeVar("T")
BATON, STOP, LOOKUP = "baton", "stop", "lookup"  # parts that a decision may want
MACHINES, BEATS = "machines", "beats"  # sources
# Sources of an absence. Of a late listing: the machine was gone by then, and others may have appeared since.
LISTING, LATE_LISTING, WRITTEN_OFF = "listing", "late listing", "written off"
OBSERVE_S = 10.0  # how long a tick waits for one of several providers; a cloud lists 10,000 machines in about 5 s
GAP_POLLS = 2.0


@dataclass(frozen=True, slots=True)
class Seen(Generic[T]):
    value: T
    age_s: float = 0.0
    source: str = ""


@dataclass(frozen=True, slots=True)
class Absent:
    """A complete and fresh read does not contain it."""

    age_s: float = 0.0
    source: str = ""


@dataclass(frozen=True, slots=True)
class Unknown:
    reason: str
    away: Away | None = None  # its zone cannot be read
    torn: bool = False  # it was read and cannot be parsed: only a person can fix it
    taken: bool = False  # a foreign machine has this name: a repeated request for ours gets a definite refusal


NOT_READ = Unknown("not read")
Part = Seen[T] | Absent | Unknown


def gap_s(poll_interval_s: float) -> float:
    """An older reading does not show the present. A source that responds within one tick and one poll interval is never
    that old."""
    return max(GAP_POLLS * poll_interval_s, OBSERVE_S + poll_interval_s)


def unless_written_off(part: Part[Machine], launch_id: str, written_off: WriteOff | None) -> Part[Machine]:
    """A machine that cannot be read, and that a person has written off, is absent. One that can be read is not."""
    if written_off is None or not isinstance(part, Unknown) or part.taken:
        return part
    covered = parse_launch_id(launch_id) <= parse_launch_id(written_off.launch_id)
    return Absent(0.0, WRITTEN_OFF) if covered else part


@dataclass(frozen=True, slots=True)
class CreateFailed:
    """A definite end of a create call: it makes no machine."""

    launch_id: str
    cause: Cause  # no_capacity, quota, launch_rejected or queued
    detail: str
    of_run: bool = False  # the run itself was refused, in any zone
    scope: str = "zone"  # of a quota: zone | region | project


@dataclass(frozen=True, slots=True)
class Sent:
    """Files of this launch travel to or from a host. `at`: of the last piece, by the supervisor's clock."""

    launch_id: str
    at: float


@dataclass(frozen=True, slots=True)
class Pinned:
    """The result of a PinImage. `digest` "" and no `problem`: the provider runs no images."""

    pinned_for: str
    digest: str = ""  # name@sha256:...
    problem: str = ""  # missing | hidden | unavailable
    detail: str = ""
    at: float = 0.0  # on the supervisor's clock


@dataclass(frozen=True, slots=True)
class Verification:
    """The results of `done` compared with the store: problems = files that are missing or differ."""

    launch_id: str
    results_sha256: str
    files: tuple[FileEntry, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MeterReport:
    """What an action reports of the bill of a machine. `good`: of a verb, it was carried out; of a read, the bill has
    ended. A read that failed is not good: could not read is not stopped. `at`: on the supervisor's clock. `readings`:
    the evidence for the verb."""

    machine: str  # its name
    verb: str
    good: bool
    text: str
    at: float
    readings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HostUser:
    """Who has a machine on a host. `waits`: its work is verified, and it asks for the end of the host's bill. `works`:
    it may ask later. One with neither only has a machine that is released, or a request that may give none."""

    name: str
    key: int = 0  # of its run; 0 = it belongs to another cell or supervisor
    waits: bool = False
    works: bool = False


@dataclass(frozen=True, slots=True)
class Observation:
    """`beat`: the newest beat of this run from any source, parsed and authenticated."""

    machine: Part[Machine] = NOT_READ
    beat: Part[Beat] = NOT_READ
    baton: Part[Baton] = NOT_READ
    stop: Part[str] = NOT_READ  # the object generation of the .stop marker
    lookup: Part[Machine] = NOT_READ  # the machine read by its id or name, after the listing
    create: Part[CreateFailed] = NOT_READ
    rival: Part[Machine] = NOT_READ  # the machine of `Run.open_rival`, and the end of its create call
    rival_create: Part[CreateFailed] = NOT_READ
    sent: Part[Sent] = NOT_READ
    pin: Part[Pinned] = NOT_READ
    verification: Part[Verification] = NOT_READ
    verb: Part[MeterReport] = NOT_READ  # the last try to stop the bill of its machine
    meter: Part[MeterReport] = NOT_READ  # the last read of that bill
    finalised: Part[bool] = NOT_READ  # baton closed, beat deleted, manifest written
    retiring: tuple[Part[Machine], ...] = ()  # in the order of run.retiring


def sources_of(providers: Collection[str]) -> dict[str, str]:
    """Provider -> the source of its machines."""
    if len(providers) == 1:
        return dict.fromkeys(providers, MACHINES)
    return {name: f"{MACHINES} of {name}" for name in providers}


def machines_in(zone: str, source: str = MACHINES) -> str:
    """The source of one zone's machines: a listing may reach only some zones."""
    return f"{source}:{zone}"


def zone_name(provider: str, zone: str, source: str = MACHINES) -> str:
    """The name of a zone in `World.unread` and in sentences: two providers may have zones of the same name."""
    return zone if source == MACHINES else f"{zone} of {provider}"


@dataclass(frozen=True, slots=True)
class Yield:
    """A run shall yield its machine. `to`: the key of the run that gets it. `why`: one clause."""

    to: int
    why: str


@dataclass(frozen=True, slots=True)
class World:
    knobs: Knobs
    offers: Mapping[str, tuple[Offer, ...]] = field(default_factory=dict)  # by provider, in order of preference
    zones: Mapping[OfferKey, ZoneRecord] = field(default_factory=dict)
    observing_since: Mapping[str, float] = field(default_factory=dict)  # source -> read without a gap since
    fresh: frozenset[str] = frozenset()  # sources proven fresh in this tick (complete listing, canary)
    breakers_open: frozenset[str] = frozenset()  # sources on whose evidence nothing is ended
    irreplaceable: frozenset[str] = frozenset()  # providers whose machines cannot be recreated
    memory_grows: frozenset[str] = frozenset()  # providers whose next machine has more memory after host_oom
    races: frozenset[str] = frozenset()  # providers where two machines may be requested for one
    warnings_s: Mapping[str, float] = field(default_factory=dict)  # provider -> `Traits.warning_s`, where it has one
    # The wall clock minus `now`, after a step of the wall clock that `now` does not follow yet; for deadlines.
    wall_ahead_s: float = 0.0
    sources: Mapping[str, str] = field(default_factory=dict)  # provider -> the source of its machines
    # Zones that the last listing did not reach, by `zone_name`: nothing is started there.
    unread: frozenset[str] = frozenset()
    capacities: Mapping[str, Capacity] = field(default_factory=dict)  # by provider, where our machines are the limit
    quotas: Mapping[tuple[str, str], Quota] = field(default_factory=dict)  # by provider and shape, where there are any
    # Runs of those providers that may launch now (by key), and where (lifecycle/offers/queueing); None = our own
    # machines do not limit it.
    may_launch: Mapping[int, Offer | None] = field(default_factory=dict)
    # Statuses of the runs that waiting runs name in `after`, by run id; one that is missing was not read.
    statuses: Mapping[str, Status] = field(default_factory=dict)
    # Runs without a slot of their group (by key), and why (lifecycle/offers/groups). Those `without_offer` may wait for
    # the platform, the others wait for the group.
    no_slot: Mapping[int, str] = field(default_factory=dict)
    without_offer: frozenset[int] = frozenset()
    # Runs (by key) beyond the limits of the settings, and why (lifecycle/offers/turns); some of these are in
    # `without_offer` too. `used_at`: owner -> the last request of a run of theirs.
    no_turn: Mapping[int, str] = field(default_factory=dict)
    used_at: Mapping[str, float] = field(default_factory=dict)
    # Of lifecycle/offers/making_room: running runs that shall yield their machine, by key; and runs whose pause is over
    # because a machine that was yielded to them is gone, with the zones of these.
    yields: Mapping[int, Yield] = field(default_factory=dict)
    freed: Mapping[int, OfferKey] = field(default_factory=dict)
    # Profiles by (provider, zone), with the last reading of the host where there is one; a zone that is missing is not
    # judged before a launch. `judged`: what was found there in this tick; `choices`: what a request gets in this round,
    # None = it is not kept (lifecycle/offers/choosing).
    profiles: Mapping[tuple[str, str], Profile] = field(default_factory=dict)
    store_url: str = ""
    blocked: Blocked | None = None  # by incidents; None = they could not be read, and nothing is blocked
    judged: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)
    choices: dict[Any, Any] | None = field(default=None, compare=False, repr=False)

    # By provider and zone, hosts whose bill runs until somebody stops it, and who has machines there.
    meters: Mapping[tuple[str, str], Meter] = field(default_factory=dict)
    host_users: Mapping[tuple[str, str], tuple[HostUser, ...]] = field(default_factory=dict)
    closing: frozenset[str] = frozenset()  # those of `unread` that are given back: their end is approved
    # What own calls of the past say about the next machine; an offer that is missing has had none.
    outlooks: Mapping[OfferKey, Outlook] = field(default_factory=dict)

    def machines_of(self, provider: str) -> str:
        """The source of this provider's machines."""
        return self.sources.get(provider, MACHINES)

    def meter_at(self, place: Placement) -> Meter | None:
        """None = the release of a machine there is no loss: it can be had again, or it costs nothing."""
        meter = self.meters.get((place.provider, place.zone))
        return NO_OTHER_WAY if meter is None and place.provider in self.irreplaceable else meter

    def lacks(self, provider: str) -> bool:
        """The settings do not have this provider (any more)."""
        return bool(self.sources) and provider not in self.sources

    def profile_of(self, place: Placement) -> Profile | None:
        """Of the machines there; None = not known."""
        try:
            return self.profiles[place.provider, place.zone]
        except KeyError:
            return None

    def quota_of(self, place: Placement) -> Quota | None:
        """None = its platform counts no hours."""
        return self.quotas.get((place.provider, place.shape))

    def zone_of(self, place: Placement) -> str:
        return zone_name(place.provider, place.zone, self.machines_of(place.provider))
