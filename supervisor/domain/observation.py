"""What a decision sees: the observation of its run, and the world around it.

An observation is everything seen of one run at one instant. Each part is Seen, Absent or Unknown: could not read is not
absent. `NOT_READ` is the Unknown of parts that are read only on request: a decision that needs one asks for it
(`wants`). The world holds settings, offers, what zones taught us, and how fresh each source is. A
source is what is read by itself: the beats, and the machines of each provider.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from supervisor.contract.baton import Baton, FileEntry
from supervisor.contract.heartbeat import Beat
from supervisor.domain.causes import Cause
from supervisor.domain.machines import Capacity, Machine, Offer, OfferKey, Placement, ZoneRecord
from supervisor.domain.policies import Knobs

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Seen(Generic[T]):
    value: T
    age_s: float = 0.0
    source: str = ""


@dataclass(frozen=True, slots=True)
class Absent:
    """A complete and fresh read did not contain it."""

    age_s: float = 0.0
    source: str = ""


@dataclass(frozen=True, slots=True)
class Unknown:
    reason: str
    since: float | None = None
    torn: bool = False  # it was read and cannot be understood: only a person can mend it
    taken: bool = False  # another's machine has this name: asking for ours again is answered with a definite no


NOT_READ = Unknown("not read")
OBSERVE_S = 10.0  # so long a look waits for one provider of several; a cloud lists 10,000 machines in some 5 s
GAP_POLLS = 2.0


def gap_s(poll_interval_s: float) -> float:
    """A reading that is older says what was, not what is. Who answers within a look and a poll is never that old."""
    return max(GAP_POLLS * poll_interval_s, OBSERVE_S + poll_interval_s)


Part = Seen[T] | Absent | Unknown


@dataclass(frozen=True, slots=True)
class CreateFailed:
    """A definite end of a create call: no machine will come of it."""

    launch_id: str
    cause: Cause  # no_capacity, quota, launch_rejected or queued
    detail: str
    of_run: bool = False  # this run was refused, whatever the place
    scope: str = "zone"  # how far a quota reaches: zone | region | project


@dataclass(frozen=True, slots=True)
class Pinned:
    """The answer to a PinImage. `digest` "" and no `problem`: the provider runs no images."""

    pinned_for: str
    digest: str = ""  # name@sha256:...
    problem: str = ""  # missing | hidden | unavailable
    detail: str = ""
    at: float = 0.0  # when it was answered, on the supervisor's clock


@dataclass(frozen=True, slots=True)
class Verification:
    """The results of `done` compared with the store: problems = files that are missing or differ."""

    launch_id: str
    results_sha256: str
    files: tuple[FileEntry, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Observation:
    """`beat` is the newest beat of this run from any source, already parsed and authenticated."""

    machine: Part[Machine] = NOT_READ
    beat: Part[Beat] = NOT_READ
    baton: Part[Baton] = NOT_READ
    stop: Part[str] = NOT_READ  # the .stop marker's object generation
    lookup: Part[Machine] = NOT_READ  # the machine asked for by id or name, after the listing
    create: Part[CreateFailed] = NOT_READ
    pin: Part[Pinned] = NOT_READ
    verification: Part[Verification] = NOT_READ
    finalised: Part[bool] = NOT_READ  # baton closed, beat deleted, manifest written
    retiring: tuple[Part[Machine], ...] = ()  # in the order of run.retiring


BATON, STOP, LOOKUP = "baton", "stop", "lookup"


MACHINES, BEATS = "machines", "beats"  # sources


def sources_of(providers: Collection[str]) -> dict[str, str]:
    """Provider -> the source of its machines."""
    if len(providers) == 1:
        return dict.fromkeys(providers, MACHINES)
    return {name: f"{MACHINES} of {name}" for name in providers}


def machines_in(zone: str, source: str = MACHINES) -> str:
    """The source of one zone's machines: a listing may reach some zones and not others."""
    return f"{source}:{zone}"


def zone_name(provider: str, zone: str, source: str = MACHINES) -> str:
    """A zone as `World.unread` and sentences name it: two providers may have zones of the same name."""
    return zone if source == MACHINES else f"{zone} of {provider}"


@dataclass(frozen=True, slots=True)
class World:
    knobs: Knobs
    offers: Mapping[str, tuple[Offer, ...]] = field(default_factory=dict)  # by provider, in order of preference
    zones: Mapping[OfferKey, ZoneRecord] = field(default_factory=dict)
    observing_since: Mapping[str, float] = field(default_factory=dict)  # source -> read without a gap since
    fresh: frozenset[str] = frozenset()  # sources proven fresh in this tick (complete listing, canary)
    breakers_open: frozenset[str] = frozenset()  # sources on whose word nothing is ended
    irreplaceable: frozenset[str] = frozenset()  # providers whose machines cannot be had back
    # After a step, while `now` goes on as before: the wall clock minus `now`. Deadlines go by the wall clock.
    wall_ahead_s: float = 0.0
    sources: Mapping[str, str] = field(default_factory=dict)  # provider -> the source of its machines
    # Zones that the last listing did not reach, by `zone_name`: nothing is started there.
    unread: frozenset[str] = frozenset()
    capacities: Mapping[str, Capacity] = field(default_factory=dict)  # by provider, where our machines are the limit
    # Runs of these providers that may ask now, and where (lifecycle/offers/queueing); None = nothing of
    # ours is in its way.
    may_launch: Mapping[int, Offer | None] = field(default_factory=dict)

    def machines_of(self, provider: str) -> str:
        """The source of this provider's machines."""
        return self.sources.get(provider, MACHINES)

    def lacks(self, provider: str) -> bool:
        """It is not in the settings (any more)."""
        return bool(self.sources) and provider not in self.sources

    def zone_of(self, place: Placement) -> str:
        return zone_name(place.provider, place.zone, self.machines_of(place.provider))
