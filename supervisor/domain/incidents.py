"""Incidents: several runs that ended within an hour and have something in common, as one record with one alert.

An incident lasts until a person closes it, or until a day without another end where it stops no launch. Runs of several
owners may be part of it: an owner sees only runs of that owner, and closes it only for these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

BLOCKING_RUNS = 3  # runs of one owner that failed at once with a code or an image
BLOCKING_FAULTS = 2  # of the GPU, on one machine, in so many runs
MEMBERS_MAX = 200
# Codes of the checks of G0 with which incidents hold a run.
KNOWN_TO_FAIL, PLACE_QUARANTINED = "KNOWN_TO_FAIL", "PLACE_QUARANTINED"


class Common(StrEnum):
    """What the ends have in common; in this order, the first is what the incident is called after."""

    ERROR = "error"  # the error text without its numbers and paths
    CODE = "code"  # the hash of the code bundle
    IMAGE = "image"  # its digest, or its name where it has none
    MACHINE = "machine"  # provider/name, of a computer that outlives its runs
    ZONE = "zone"  # provider/zone


@dataclass(frozen=True, slots=True)
class Signature:
    kind: Common
    value: str


@dataclass(frozen=True, slots=True)
class Member:
    """An attempt that ended. `at_once`: it failed at once, by the code or the image that the incident has in common.
    `fault`: of the GPU, on the machine that it has in common. `lacks`: what the incident has in common, and not it."""

    run_id: str
    owner: str
    attempt: int
    at: float
    cause: str
    at_once: bool = False
    fault: bool = False
    lacks: tuple[Common, ...] = ()


@dataclass(frozen=True, slots=True)
class Closing:
    """The owner of a part of the runs has closed the incident for them: their ends until then count no more."""

    owner: str
    at: float
    by: str
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Incident:
    """Times are epoch seconds. `id` 0: it is not stored yet. `members`: MEMBERS_MAX at most, the first ones.
    `blocks`: no run starts with its code or image, or on its machine. `closed_at` None: it is open."""

    id: int
    common: tuple[Signature, ...]
    members: tuple[Member, ...]
    opened_at: float
    last_at: float
    blocks: bool = False
    closed_at: float | None = None
    closed_by: str = ""
    reason: str = ""  # why it was closed
    closings: tuple[Closing, ...] = ()  # by owners, while it is open for others; one for each

    @property
    def runs(self) -> tuple[str, ...]:
        """Each once, in the order of their ends."""
        return tuple(dict.fromkeys(member.run_id for member in self.members))

    @property
    def owners(self) -> frozenset[str]:
        return frozenset(member.owner for member in self.members)

    @property
    def cause(self) -> str:
        """The most frequent cause."""
        return Counter(member.cause for member in self.members).most_common(1)[0][0] if self.members else ""

    @property
    def failing(self) -> Signature | None:
        """The code, else the image, that its ends have in common."""
        return self.of(Common.CODE) or self.of(Common.IMAGE)

    def of(self, kind: Common) -> Signature | None:
        return next((signature for signature in self.common if signature.kind == kind), None)

    def blocked_owners(self) -> tuple[str, ...]:
        """Whose runs do not start with its code or image: the failures of one owner stop no run of another."""
        runs = {(each.owner, each.run_id) for each in self.members if each.at_once and not self.is_closed_for(each)}
        counts = Counter(owner for owner, _ in runs)
        return tuple(owner for owner, count in counts.items() if count >= BLOCKING_RUNS)

    def closing_of(self, owner: str) -> Closing | None:
        return next((each for each in self.closings if each.owner == owner), None)

    def is_closed_for(self, member: Member) -> bool:
        """Its owner has closed the incident since that end."""
        closing = self.closing_of(member.owner)
        return closing is not None and member.at <= closing.at

    def closed_for(self, closing: Closing) -> Incident:
        """Closed for the runs of one owner; as a whole where it is open for nobody any more."""
        others = tuple(each for each in self.closings if each.owner != closing.owner)
        after = replace(self, closings=(*others, closing))
        if all(after.is_closed_for(member) for member in after.members):
            return replace(after, closed_at=closing.at, closed_by=closing.by, reason=closing.reason)
        return replace(after, blocks=self.blocks and (bool(after.blocked_owners()) or self.has_faulty_machine()))

    def has_faulty_machine(self) -> bool:
        """By two runs: what the beats of one run report may be forged, and the machine is every owner's."""
        return len({member.run_id for member in self.members if member.fault}) >= BLOCKING_FAULTS

    def seen_by(self, owner: str) -> Incident:
        """With the runs of this owner alone, and only what one of them has in common: an error text or an image may be
        another owner's. Where the owner has closed it, with the ends since then, or closed."""
        own = tuple(member for member in self.members if member.owner == owner)
        if len(own) == len(self.members) and not self.closings:
            return self
        closing, since = self.closing_of(owner), tuple(each for each in own if not self.is_closed_for(each))
        own = since or own
        common = tuple(each for each in self.common if any(each.kind not in member.lacks for member in own))
        times = [member.at for member in own] or [self.opened_at]
        blocks = self.blocks and (owner in self.blocked_owners() or self.has_faulty_machine())
        seen = replace(
            self, common=common, members=own, last_at=max(times), blocks=blocks, closed_by="", reason="", closings=()
        )
        if closing is None or since:
            return seen
        return replace(seen, closed_at=closing.at, closed_by=closing.by, reason=closing.reason)


@dataclass(frozen=True, slots=True)
class Blocked:
    """What open incidents keep from being launched, with the id of the incident. `failing`: by owner, kind and value of
    a code or an image. `machines`: by the value of their signature."""

    failing: Mapping[tuple[str, Common, str], int] = field(default_factory=dict)
    machines: Mapping[str, int] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.failing or self.machines)
