"""Which ends of several runs are one incident, and what an incident stops.

A signature is what an end may have in common with others: its error text, its code or image, its machine or zone. Three
runs with one signature within an hour are an incident. Only ends that are somebody's fault have signatures: three
preemptions in a zone are an ordinary hour there, and the zone records of lifecycle/offers know them already. A zone or
machine counts for faults of GPUs, boots and hosts; a code or image for failures of the command. A fault that only the
words of a command name sets no machine aside: any run can print them, and the machine is every owner's.

A code or image that failed at once in three runs of one owner is not launched again for that owner, unless another run
works with it. A machine with two faults of its GPU within a day is not used again. A person ends both.

Pure, and a function of the ends of the last hour and the stored incidents: a new leader finds the same.
"""

from __future__ import annotations

import heapq
import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace

from supervisor.contract.heartbeat import Exit
from supervisor.domain.attempt import Attempt, training_s
from supervisor.domain.causes import Cause
from supervisor.domain.diagnosis.verdict import Certainty
from supervisor.domain.events import Event, EventKind
from supervisor.domain.incidents import BLOCKING_FAULTS, MEMBERS_MAX, Blocked, Common, Incident, Member, Signature
from supervisor.domain.machines import Placement
from supervisor.domain.run import Run
from supervisor.wording.incidents import closed_text, opened_text

RUNS_MIN = 3
WINDOW_S = 3600.0
FAULTS_WINDOW_S = 86_400.0  # of faults of one machine's GPU
AT_ONCE_S = 120.0  # of the command; without a step
QUIET_S = 86_400.0  # an incident that stops no launch is closed after so long without another end
ERROR_READ, ERROR_MAX = 1000, 160  # characters of an error text, before and after it is normalized
LETTERS_MIN = 6  # a text with fewer says too little to compare

# Ends whose last line is the error that ended the command.
_WITH_ERROR = frozenset(
    {
        Cause.USER_ERROR, Cause.COMMAND_NOT_FOUND, Cause.IMAGE_ERROR, Cause.LAUNCH_REJECTED, Cause.GPU_OOM,
        Cause.DISK_FULL, Cause.SETUP_FAILED,
    }
)  # fmt: skip
_OF_COMMAND = _WITH_ERROR | {Cause.HOST_OOM, Cause.STALLED, Cause.UNKNOWN}
_OF_IMAGE = frozenset({Cause.COMMAND_NOT_FOUND, Cause.IMAGE_ERROR, Cause.LAUNCH_REJECTED, Cause.BOOT_TIMEOUT})
_OF_PLACE = frozenset(
    {Cause.GPU_FAULT, Cause.GPU_UNAVAILABLE, Cause.BOOT_TIMEOUT, Cause.HOST_ERROR, Cause.HOST_REBOOTED}
)
# Without command_not_found: a command with a typing error says nothing about its code or image.
_AT_ONCE = frozenset({Cause.USER_ERROR, Cause.IMAGE_ERROR})

_ADDRESS = re.compile(r"\w{1,20}://\S+")
_PATH = re.compile(r"(?<![\w/\\])(?:[A-Za-z]:|~|\.{1,2})?(?:[/\\][\w.@+-]+){1,64}[/\\]?")
_WITH_DIGIT = re.compile(r"\w*\d\w*")  # numbers, hex, ids
_NUMBERS = re.compile(r"#(?:[.,:x-]?#)+")
_PREFIX = re.compile(r"^(?:\[[^\]]{1,40}\]:?\s*)+(?=\S)")  # of a rank or a logger


_Rank = tuple[int, int, int, Signature]


@dataclass(frozen=True, slots=True)
class Ended:
    member: Member
    signatures: tuple[Signature, ...]


def ended_of(run: Run, attempt: Attempt, machine: str) -> Ended | None:
    """An attempt that has ended, as a part of incidents; None = it can be no part of one. `machine`: the name of the
    computer, where it outlives its runs."""
    of_end = signatures(run, attempt, machine)
    if not of_end or attempt.ended_at is None or attempt.cause is None:
        return None
    is_certain = attempt.verdict is None or attempt.verdict.certainty == Certainty.CERTAIN
    fault = attempt.cause == Cause.GPU_FAULT and bool(machine) and is_certain
    number, at = attempt.number, attempt.ended_at
    return Ended(Member(run.run_id, run.owner, number, at, attempt.cause, _at_once(attempt), fault), of_end)


def signatures(run: Run, attempt: Attempt, machine: str) -> tuple[Signature, ...]:
    """In the order of Common. () for an end that is nobody's fault, or one of the run's own: a stop, a limit."""
    cause, place = attempt.cause, attempt.placement
    of_place = cause in _OF_PLACE
    by_image = cause in _OF_IMAGE or (_at_once(attempt) and not attempt.code)
    zone = f"{place.provider}/{place.zone}"
    values = (
        (Common.ERROR, normalized(_error(attempt.exit, attempt.evidence)) if cause in _WITH_ERROR else ""),
        (Common.CODE, attempt.code if cause in _OF_COMMAND else ""),
        (Common.IMAGE, image_of(run) if by_image else ""),
        (Common.MACHINE, machine_value(place, machine) if of_place and machine else ""),
        (Common.ZONE, zone if of_place else ""),
    )
    return tuple(Signature(kind, value) for kind, value in values if value)


def machine_value(place: Placement, machine: str) -> str:
    """A node may be in several zones (partitions) of its cluster."""
    return f"{place.provider}/{machine}"


def image_of(run: Run) -> str:
    """What its machines run: the digest once it is known. "" = no image."""
    return run.image.digest or run.policy.image or ""


def normalized(error: str) -> str:
    """The error text without what differs between two runs: paths, addresses, and words with digits. "" = what is left
    says too little."""
    text = _PREFIX.sub("", error.strip()[:ERROR_READ])
    for pattern, word in ((_ADDRESS, "URL"), (_PATH, "PATH"), (_WITH_DIGIT, "#"), (_NUMBERS, "#")):
        text = pattern.sub(word, text)
    text = " ".join(text.split())[:ERROR_MAX]
    bare = text.replace("PATH", "").replace("URL", "")
    return text if sum(map(str.isalpha, bare)) >= LETTERS_MIN else ""


def _error(end: Exit | None, evidence: str) -> str:
    """An image that never ran has the platform's words."""
    return evidence if end is None else end.last_line


def _at_once(attempt: Attempt) -> bool:
    """The command failed by itself, within two minutes and before its first step."""
    stepped = attempt.step_last is not None and attempt.step_last > (attempt.step_from or 0)
    ran_s = training_s(attempt, attempt.ended_at or attempt.started_at)
    return attempt.cause in _AT_ONCE and not stepped and ran_s <= AT_ONCE_S


def has_worked(run: Run, now: float | None = None) -> bool:
    """It has trained longer than a failure at once, so its code and image work. `now` None: without its live
    attempt."""
    live_s = 0.0 if now is None else training_s(run.live_attempt, now)
    return run.reported or run.training_s + live_s > AT_ONCE_S


# --- groups -----------------------------------------------------------------------------------------------------------


def in_window(end: Ended, now: float) -> bool:
    """It still counts. A time ahead of now was written before the clock was set back."""
    return now - (FAULTS_WINDOW_S if end.member.fault else WINDOW_S) < end.member.at <= now


def grouped(
    ends: Iterable[Ended], stored: Sequence[Incident], works: Callable[[Signature], bool], now: float
) -> list[Incident]:
    """The incidents that are new (their id is 0) or differ from the stored ones. `stored`: the open incidents, and
    those that were closed within the window: ends before the closing open no other one. `works`: a run works with this
    code or image. Each end is looked at a few times only, however many incidents there are."""
    homes = [incident for incident in stored if incident.closed_at is None]
    home_of: dict[Signature, int] = {}
    for at, incident in enumerate(homes):
        for signature in incident.common:
            home_of.setdefault(signature, at)
    closed_at = _closed_at(stored)
    changed: dict[int, Incident] = {}
    free: list[Ended] = []
    for end in sorted(ends, key=lambda end: (end.member.at, end.member.run_id, end.member.attempt)):
        of_end = end.signatures
        if not in_window(end, now) or any(end.member.at <= closed_at.get(each, -math.inf) for each in of_end):
            continue
        home = min((home_of[each] for each in of_end if each in home_of), default=None)
        if home is None:
            free.append(end)
        elif homes[home].is_closed_for(end.member):
            continue
        elif (after := _joined(homes[home], end, works)) is not homes[home]:
            homes[home] = changed[after.id] = after
    return [*changed.values(), *_new_ones(free, works, now)]


def _closed_at(stored: Iterable[Incident]) -> dict[Signature, float]:
    """By what closed incidents have in common, when the last one of them was closed."""
    latest: dict[Signature, float] = {}
    for incident in stored:
        if incident.closed_at is not None:
            for signature in incident.common:
                latest[signature] = max(incident.closed_at, latest.get(signature, -math.inf))
    return latest


def _new_ones(free: Sequence[Ended], works: Callable[[Signature], bool], now: float) -> list[Incident]:
    """Of ends that are part of no incident: the largest group first, so that one failure is one incident.

    A group only shrinks while others are taken, so its place in the heap is looked at again when it comes up."""
    left = _Left(free, now)
    heap = [left.rank(signature) for signature, group in left.groups.items() if group.is_incident(signature.kind)]
    heapq.heapify(heap)
    opened = []
    while heap:
        ranked = heapq.heappop(heap)
        signature = ranked[-1]
        if not left.groups[signature].is_incident(signature.kind):
            continue
        if (rank := left.rank(signature)) != ranked:
            heapq.heappush(heap, rank)
            continue
        members = left.members(signature)
        incident = Incident(0, _common(members), (), now, now)
        for end in members:
            incident = _joined(incident, end, works)
        opened.append(incident)
        left.take(incident.common)
    return opened


class _Left:
    """Ends that are part of no incident yet, by what they have in common. The counts of a group are kept, so that no
    group is gone through before it is an incident."""

    def __init__(self, ends: Sequence[Ended], now: float) -> None:
        self._ends = ends
        self._is_left = [True] * len(ends)
        self._since = now - WINDOW_S
        self.groups: dict[Signature, _Group] = {}
        for at, end in enumerate(ends):
            for signature in end.signatures:
                self.groups.setdefault(signature, _Group()).add(at, end, self._since)

    def rank(self, signature: Signature) -> _Rank:
        """The smallest is the next incident: the most runs, then the oldest end, then the order of Common."""
        group = self.groups[signature]
        while group.first < len(group.ends) and not self._is_left[group.ends[group.first]]:
            group.first += 1
        oldest = group.ends[min(group.first, len(group.ends) - 1)]
        return -len(group.runs), oldest, self._ends[oldest].signatures.index(signature), signature

    def members(self, signature: Signature) -> list[Ended]:
        return [self._ends[at] for at in self.groups[signature].ends if self._is_left[at]]

    def take(self, common: Iterable[Signature]) -> None:
        """Everything that shares one of these is left no more."""
        for at in (at for shared in common for at in self.groups[shared].ends):
            if self._is_left[at]:
                self._is_left[at] = False
                for signature in self._ends[at].signatures:
                    self.groups[signature].remove(self._ends[at], self._since)


@dataclass
class _Group:
    """`ends`: indexes, the oldest first, also of those that are left no more; `first`: of the first one that may be
    left. `runs`, `lately`: by run, its ends that are left; of those the ones within the hour."""

    ends: list[int] = field(default_factory=list)
    first: int = 0
    runs: Counter[str] = field(default_factory=Counter)
    lately: Counter[str] = field(default_factory=Counter)
    faults: int = 0

    def add(self, at: int, end: Ended, since: float) -> None:
        self.ends.append(at)
        self.runs[end.member.run_id] += 1
        if end.member.at > since:
            self.lately[end.member.run_id] += 1
        self.faults += end.member.fault

    def remove(self, end: Ended, since: float) -> None:
        for runs in (self.runs, self.lately) if end.member.at > since else (self.runs,):
            runs[end.member.run_id] -= 1
            if not runs[end.member.run_id]:
                del runs[end.member.run_id]
        self.faults -= end.member.fault

    def is_incident(self, kind: Common) -> bool:
        is_faulty = kind == Common.MACHINE and self.faults >= BLOCKING_FAULTS
        return is_faulty or len(self.lately) >= RUNS_MIN


def _common(group: Sequence[Ended]) -> tuple[Signature, ...]:
    """Shared by all: the code rather than its image, the machine rather than its zone."""
    shared = [each for each in group[0].signatures if all(each in end.signatures for end in group)]
    kinds = {each.kind for each in shared}
    wider = {Common.IMAGE} if Common.CODE in kinds else set()
    wider |= {Common.ZONE} if Common.MACHINE in kinds else set()
    order = list(Common)
    return tuple(sorted((each for each in shared if each.kind not in wider), key=lambda each: order.index(each.kind)))


def _joined(incident: Incident, end: Ended, works: Callable[[Signature], bool]) -> Incident:
    """With this end; the same object where it is part of it already."""
    member = end.member
    last_at = max(incident.last_at, member.at) if incident.members else member.at
    if any((each.run_id, each.attempt) == (member.run_id, member.attempt) for each in incident.members):
        return incident
    if len(incident.members) >= MEMBERS_MAX and incident.closings:
        open_ones = tuple(each for each in incident.members if not incident.is_closed_for(each))
        incident = replace(incident, members=open_ones)
    if len(incident.members) >= MEMBERS_MAX:
        return replace(incident, last_at=last_at) if last_at > incident.last_at else incident
    failing, machine = incident.failing, incident.of(Common.MACHINE)
    fits = member.at_once and failing is not None and failing in end.signatures
    lacks = tuple(each.kind for each in incident.common if each not in end.signatures)
    member = replace(member, at_once=fits, fault=member.fault and machine in end.signatures, lacks=lacks)
    after = replace(incident, members=(*incident.members, member), last_at=last_at)
    return replace(after, blocks=after.blocks or _blocks(after, works))


def _blocks(incident: Incident, works: Callable[[Signature], bool]) -> bool:
    failing = incident.failing
    if failing is not None and incident.blocked_owners() and not works(failing):
        return True
    return incident.has_faulty_machine()


def is_over(incident: Incident, now: float) -> bool:
    """A quiet day has passed, and it stops no launch."""
    return not incident.blocks and now - incident.last_at >= QUIET_S


# --- what they stop ---------------------------------------------------------------------------------------------------


def blocked_by(incidents: Iterable[Incident]) -> Blocked:
    failing: dict[tuple[str, Common, str], int] = {}
    machines: dict[str, int] = {}
    for incident in incidents:
        if incident.closed_at is not None or not incident.blocks:
            continue
        subject, machine = incident.failing, incident.of(Common.MACHINE)
        if subject is not None:
            failing |= {(owner, subject.kind, subject.value): incident.id for owner in incident.blocked_owners()}
        if machine is not None and incident.has_faulty_machine():
            machines[machine.value] = incident.id
    return Blocked(failing, machines)


def failing_incident(run: Run, blocked: Blocked) -> tuple[Signature, int] | None:
    """What this run would start with and must not, with the incident. A run that has worked is not stopped."""
    if not blocked.failing or has_worked(run):
        return None
    for kind, value in ((Common.CODE, run.policy.code or ""), (Common.IMAGE, image_of(run))):
        incident = blocked.failing.get((run.owner, kind, value)) if value else None
        if incident is not None:
            return Signature(kind, value), incident
    return None


def host_incident(place: Placement, blocked: Blocked) -> int | None:
    """The incident that stops launches on this host; its zone has its name."""
    return blocked.machines.get(machine_value(place, place.zone))


def bad_nodes(place: Placement, blocked: Blocked) -> tuple[str, ...]:
    """The machines of this provider that no run may use."""
    provider = machine_value(place, "")
    return tuple(sorted(value.removeprefix(provider) for value in blocked.machines if value.startswith(provider)))


# --- events -----------------------------------------------------------------------------------------------------------


def opened_event(incident: Incident) -> Event:
    return Event(EventKind.INCIDENT, opened_text(incident), data=_data(incident))


def closed_event(incident: Incident) -> Event:
    """By the supervisor, after a quiet day."""
    return Event(EventKind.INCIDENT_CLOSED, closed_text(incident), data=_data(incident))


def _data(incident: Incident) -> dict[str, object]:
    return {
        "incident": incident.id,
        "cause": incident.cause,
        "common": {str(each.kind): each.value for each in incident.common},
        "run_ids": list(incident.runs),
        "count": len(incident.runs),
        "blocks": incident.blocks,
    }
