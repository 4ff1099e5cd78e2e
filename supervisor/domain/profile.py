"""Profiles: what people know of a platform before they launch there. For people and for gates; traits steer the code.

Each value is a Fact: it has a source, a date and a note that says where it comes from. None is unknown; nothing invents
a value for it, and it is shown as unknown. "" as a text means that there is none (no mirror is needed, nothing is
billed), and NO_LIMIT as a number that there is no such limit.

The survival matrix is the list of storage tiers: what of each survives which end. The danger clocks are derived: what
happens to money or data if nobody acts. `merge` puts together what a preset documents, what a user says and what was
measured on the machine.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, date, datetime
from enum import StrEnum
from functools import reduce
from typing import Any, Generic, TypeVar

from supervisor.domain.machines import HostFacts

T = TypeVar("T")
NO_LIMIT = math.inf
HOME = "~"
ANY = "*"  # in a path pattern: one folder of any name
MEMORY_PATHS = ("/dev/shm", "/run")  # noqa: S108 - file systems in memory on every Linux: tmpfs(5)


class Source(StrEnum):
    """From the weakest to the strongest."""

    DOCUMENTED = "documented"
    USER = "user"
    MEASURED = "measured"


class End(StrEnum):
    """The columns of the survival matrix."""

    PROCESS = "process end"
    REQUEUE = "requeue elsewhere"
    STOP = "machine stop"
    DESTROY = "machine destroy"


class Survival(StrEnum):
    YES = "yes"
    NO = "no"
    VERIFY = "verify first"  # it depends; look at the machine before you rely on it


class Stops(StrEnum):
    """Whether a teardown verb stops the meter. PARTLY: what is left, such as a disk, is still billed."""

    YES = "yes"
    NO = "no"
    PARTLY = "partly"


class Reach(StrEnum):
    """How machines reach the supervisor's object store. DOOR: through the supervisor, for the objects of one run.
    OUTPUT: not while they run; what they leave is fetched when they have ended."""

    DIRECT = "direct"
    RELAY = "relay"
    DOOR = "door"
    OUTPUT = "output"


class By(StrEnum):
    """Who does a teardown verb."""

    SUPERVISOR = "the supervisor"
    COMMAND = "a command"
    WEBHOOK = "a webhook"
    PERSON = "a person"


@dataclass(frozen=True, slots=True)
class Fact(Generic[T]):
    """`value` None = unknown. `on`: the day, YYYY-MM-DD. `note`: where the value comes from, and how to read it. A
    known value has all three; an unknown one may have them too (such as where to measure it). Raises ValueError."""

    value: T | None = None
    source: Source | None = None
    on: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        if self.on:
            date.fromisoformat(self.on)
        if self.value is not None and not (self.source and self.on and self.note):
            raise ValueError(f"{self.value!r} needs a source, a date and a note that says where it comes from")

    @property
    def is_known(self) -> bool:
        return self.value is not None


UNKNOWN: Fact[Any] = Fact()


@dataclass(frozen=True, slots=True)
class Tier:
    """One storage tier. `paths`: patterns; each covers a folder (or an address) and all that is below it, `*` is one
    folder of any name and `~` the user's home. The caps are of the machine: measured there, never a constant."""

    name: str
    paths: tuple[str, ...] = ()
    survives_process: Fact[Survival] = UNKNOWN
    survives_requeue: Fact[Survival] = UNKNOWN
    survives_stop: Fact[Survival] = UNKNOWN
    survives_destroy: Fact[Survival] = UNKNOWN
    bytes_cap: Fact[int] = UNKNOWN
    inodes_cap: Fact[int] = UNKNOWN

    def survives(self, end: End) -> Fact[Survival]:
        return {
            End.PROCESS: self.survives_process,
            End.REQUEUE: self.survives_requeue,
            End.STOP: self.survives_stop,
            End.DESTROY: self.survives_destroy,
        }[end]


@dataclass(frozen=True, slots=True)
class Verb:
    """One way to give a machine back. `end`: the column of the survival matrix that says what is left; None = no
    column fits. `command`: for a person to copy, with {name}, {zone}, {account}; "" = none. `undo`: the machine can be
    had back with its data. `left_usd_per_gb_month`: the price of the storage that is left, 0 = nothing is billed."""

    verb: str
    end: End | None = None
    by: By | None = None
    command: str = ""
    stops_meter: Fact[Stops] = UNKNOWN
    undo: Fact[bool] = UNKNOWN
    left_usd_per_gb_month: Fact[float] = UNKNOWN


@dataclass(frozen=True, slots=True)
class Profile:
    """Of a provider's machines, in one zone or in all. Seconds and dollars as the names say.

    `meter_stop`: the verb that stops the bill, "" = nothing is billed. `irreversible`: that verb deletes the machine's
    disk and nothing brings it back. `detach`: what keeps a process alive without its connection. `notice_s`: from the
    platform's notice to the signal that ends the processes, `kill_grace_s`: from there to the kill. `native_requeue`:
    the platform itself starts the work again. `session_cap_s`, `idle_cap_s`: the platform ends a machine after that
    time, or after so long without activity. `region_lock`: what can be used in one region only. `shared_fs`: the path
    of a file system that several machines share. `mirror`: the address to use in place of the Hugging Face Hub.

    Beyond the common fields: `preemptible`: the platform may take a machine back at any time. `dead_man_s`: our own
    limit, after which the platform deletes the machine without us. `stopped_kept_s`: how long a stopped machine is kept
    before it is deleted. `unpaid`: what happens to data when the balance is used up, in words. `host`: what the last
    reading found there; None = the platform makes a new machine for each attempt, or it is this computer."""

    kind: str
    title: str
    meter_stop: Fact[str] = UNKNOWN
    irreversible: Fact[bool] = UNKNOWN
    detach: Fact[str] = UNKNOWN
    preemptible: Fact[bool] = UNKNOWN
    notice_s: Fact[float] = UNKNOWN
    kill_grace_s: Fact[float] = UNKNOWN
    survives_connection_drop: Fact[bool] = UNKNOWN
    survives_reboot: Fact[bool] = UNKNOWN
    native_requeue: Fact[bool] = UNKNOWN
    session_cap_s: Fact[float] = UNKNOWN
    idle_cap_s: Fact[float] = UNKNOWN
    dead_man_s: Fact[float] = UNKNOWN
    stopped_kept_s: Fact[float] = UNKNOWN
    unpaid: Fact[str] = UNKNOWN
    quota: Fact[str] = UNKNOWN
    region_lock: Fact[str] = UNKNOWN
    shared_fs: Fact[str] = UNKNOWN
    egress_usd_per_gb: Fact[float] = UNKNOWN
    cross_zone_usd_per_gb: Fact[float] = UNKNOWN
    local_nvme: Fact[str] = UNKNOWN  # its path
    driver_cuda_max: Fact[str] = UNKNOWN  # such as 12.4
    mirror: Fact[str] = UNKNOWN
    store_reach: Fact[Reach] = UNKNOWN
    ssh_copies_files: Fact[bool] = UNKNOWN
    ports_change_on_restart: Fact[bool] = UNKNOWN
    tiers: tuple[Tier, ...] = ()
    verbs: tuple[Verb, ...] = ()
    host: HostFacts | None = None

    @property
    def facts(self) -> Mapping[str, Fact[Any]]:
        """Without those of the tiers and the verbs."""
        return facts_of(self)

    @property
    def meter_verb(self) -> Verb | None:
        """The verb that stops the bill; None = nothing is billed, or no verb is known."""
        return next((verb for verb in self.verbs if verb.verb == self.meter_stop.value), None)

    @property
    def is_apart(self) -> bool:
        """The object store is on no machine of its own, whatever the path of its folder."""
        return self.store_reach.value in (Reach.RELAY, Reach.DOOR, Reach.OUTPUT)

    @property
    def saving_s(self) -> float | None:
        """From the notice to the kill: the time for a last checkpoint. None = unknown."""
        notice_s, grace_s = self.notice_s.value, self.kill_grace_s.value
        return None if notice_s is None or grace_s is None else notice_s + grace_s


def day_of(at: float) -> str:
    """The day of a fact that was found at this time (epoch seconds), in UTC."""
    return datetime.fromtimestamp(at, UTC).date().isoformat()


def facts_of(part: Profile | Tier | Verb) -> dict[str, Fact[Any]]:
    """Field name -> fact, in order."""
    values = {field.name: getattr(part, field.name) for field in fields(part)}
    return {name: value for name, value in values.items() if isinstance(value, Fact)}


# --- the survival of a path -------------------------------------------------------------------------------------------


def tier_of(profile: Profile, path: str, home: str = "") -> Tier | None:
    """The tier with the longest pattern that covers this path; None = unknown. `path`: absolute, below `~`, or an
    address such as store://bucket/runs; links are resolved already, so a relative path or one with `..` is unknown.
    `home`: the absolute path of the user's home on the machine. Without it an absolute path that only `/` covers is
    unknown where the home is a tier of its own."""
    parts = _parts(path, home)
    matches = [
        (len(pattern), tier)
        for tier in profile.tiers
        for pattern in (_parts(text, home) for text in tier.paths)
        if _covers(pattern, parts)
    ]
    if not matches:
        return None
    length, tier = max(matches, key=lambda match: match[0])
    may_be_home = not home and length == 1 and parts[0] != HOME
    if may_be_home and any(HOME in other.paths for other in profile.tiers if other is not tier):
        return None
    return tier


def survival(profile: Profile, path: str, end: End, home: str = "") -> Fact[Survival]:
    """Whether what lies at this path survives this end. UNKNOWN where no tier covers it."""
    tier = tier_of(profile, path, home)
    return UNKNOWN if tier is None else tier.survives(end)


def _parts(path: str, home: str) -> tuple[str, ...]:
    """`/a/b` -> ('/', 'a', 'b'); `store://b/x` -> ('store:', 'b', 'x'); () = a path that says nothing."""
    if home and (path == HOME or path.startswith(HOME + "/")):
        path = home + path[len(HOME) :]
    parts = tuple(part for part in path.split("/") if part not in ("", "."))
    if ".." in parts:
        return ()
    if path.startswith("/"):
        return ("/", *parts)
    return parts if path == HOME or path.startswith(HOME + "/") or "://" in path else ()


def _covers(pattern: Sequence[str], parts: Sequence[str]) -> bool:
    if not pattern or len(pattern) > len(parts):
        return False
    return all(wanted in (ANY, part) for wanted, part in zip(pattern, parts, strict=False))


# --- danger clocks ----------------------------------------------------------------------------------------------------


class Danger(StrEnum):
    BILLS = "bills"  # until its verb; `after_s`: when it ends by itself, NO_LIMIT = never, None = unknown
    STOP_STILL_BILLS = "stop_still_bills"
    NO_UNDO = "no_undo"
    PREEMPTED = "preempted"  # `after_s`: from the notice to the kill, None = unknown
    SESSION_ENDS = "session_ends"
    IDLE_ENDS = "idle_ends"
    STOPPED_DELETED = "stopped_deleted"
    UNPAID = "unpaid"


@dataclass(frozen=True, slots=True)
class Clock:
    """What happens if nobody acts. `usd_per_h` None = the price is unknown. `verb`: the teardown verb that it is
    about, "" = unknown. `fact`: what it rests on."""

    danger: Danger
    fact: Fact[Any]
    usd_per_h: float | None = None
    after_s: float | None = None
    verb: str = ""


def danger_clocks(profile: Profile, usd_per_h: float | None) -> tuple[Clock, ...]:
    """The most expensive first. `usd_per_h`: of the whole machine, None = unknown. A platform whose meter is unknown
    counts as billed; all other clocks need a known value."""
    verb = profile.meter_stop.value
    clocks = []
    if verb != "":
        ends_s = _ends_by_itself_s(profile.dead_man_s, profile.session_cap_s, profile.idle_cap_s)
        clocks.append(Clock(Danger.BILLS, profile.meter_stop, usd_per_h, ends_s, verb or ""))
    clocks += [
        Clock(Danger.STOP_STILL_BILLS, each.stops_meter, usd_per_h, verb=each.verb)
        for each in profile.verbs
        if each.stops_meter.value in (Stops.NO, Stops.PARTLY)
    ]
    if profile.irreversible.value:
        clocks.append(Clock(Danger.NO_UNDO, profile.irreversible, verb=verb or ""))
    if profile.preemptible.value:
        clocks.append(Clock(Danger.PREEMPTED, profile.preemptible, after_s=profile.saving_s))
    for danger, limit in (
        (Danger.SESSION_ENDS, profile.session_cap_s),
        (Danger.IDLE_ENDS, profile.idle_cap_s),
        (Danger.STOPPED_DELETED, profile.stopped_kept_s),
    ):
        if limit.value is not None and limit.value != NO_LIMIT:
            clocks.append(Clock(danger, limit, after_s=limit.value))
    if profile.unpaid.value:
        clocks.append(Clock(Danger.UNPAID, profile.unpaid))
    return tuple(clocks)


def _ends_by_itself_s(dead_man: Fact[float], session: Fact[float], idle: Fact[float]) -> float | None:
    """When the meter stops without anyone, at the latest. The dead-man switch and the cap of a session always end it;
    an idle cap may never run out, so it only takes away the word "never". None = unknown."""
    limits = [fact.value for fact in (dead_man, session)]
    finite = [limit for limit in limits if limit is not None and limit != NO_LIMIT]
    if finite:
        return min(finite)
    return NO_LIMIT if all(limit == NO_LIMIT for limit in (*limits, idle.value)) else None


# --- one profile from several -----------------------------------------------------------------------------------------

_RANKS: Mapping[Source | None, int] = {source: rank for rank, source in enumerate((None, *Source))}


def stronger(first: Fact[T], second: Fact[T]) -> Fact[T]:
    """A known value wins over an unknown one; then measured over user over documented; then the newer of the two; then
    the second."""
    return second if _strength(second) >= _strength(first) else first


def _strength(fact: Fact[Any]) -> tuple[bool, int, str]:
    return fact.is_known, _RANKS[fact.source], fact.on


def merge(first: Profile, *others: Profile) -> Profile:
    """Field by field the stronger fact; tiers and verbs are matched by their names, and new ones follow. Kind and title
    are of the first."""
    return reduce(_merge_two, others, first)


def _merge_two(first: Profile, second: Profile) -> Profile:
    others = second.facts
    facts = {name: stronger(fact, others[name]) for name, fact in first.facts.items()}
    tiers = _by_name((tier.name, tier) for tier in (*first.tiers, *second.tiers))
    verbs = _by_name((verb.verb, verb) for verb in (*first.verbs, *second.verbs))
    host = second.host or first.host
    return Profile(kind=first.kind, title=first.title, tiers=tiers, verbs=verbs, host=host, **facts)


Part = TypeVar("Part", Tier, Verb)


def _by_name(parts: Iterable[tuple[str, Part]]) -> tuple[Part, ...]:
    merged: dict[str, Part] = {}
    for name, part in parts:
        merged[name] = _merge_parts(merged[name], part) if name in merged else part
    return tuple(merged.values())


def _merge_parts(earlier: Part, later: Part) -> Part:
    values: dict[str, Any] = {}
    for field in fields(earlier):
        old, new = getattr(earlier, field.name), getattr(later, field.name)
        values[field.name] = stronger(old, new) if isinstance(old, Fact) else new or old
    return replace(earlier, **values)
