"""Which machines of ours serve no run, and what each machine of a listing is for. Pure, on the tick's own listing.

A machine is ours only if it carries the supervisor id of this database; any other is reported, never touched. It
belongs to a run by its labels alone (supervisor id, run id, launch id), never by its name. The listing was read before
the rows, and a row is committed before its machine is requested. So a machine of ours without a row is a leftover, not
one that is being created. More than three, and over 20 % of ours, at once means that our own view is wrong.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from supervisor.contract.identifiers import parse_launch_id
from supervisor.domain.attempt import Attempt, Retiring
from supervisor.domain.machines import Machine, MachineListing, MachineState
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.wording.figures import age_text

AGE_FLOOR_S = 30.0
REFUSE_OVER = 3
REFUSE_SHARE = 0.2


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """`refused`: too many at once, so none is released. `foreign`: how many machines are not ours."""

    release: tuple[Machine, ...] = ()
    refused: tuple[Machine, ...] = ()
    foreign: int = 0


def plan(listing: MachineListing, supervisor_id: str, expected: Collection[str], now: float) -> SweepPlan:
    """`expected`: names of all machines that unsettled runs have (`expected_names`)."""
    ours = [machine for machine in listing.machines if machine.supervisor_id == supervisor_id]
    leaked = tuple(machine for machine in ours if machine.name not in expected and _old_enough(machine, now))
    foreign = len(listing.machines) - len(ours)
    if len(leaked) > REFUSE_OVER and len(leaked) > REFUSE_SHARE * len(ours):
        return SweepPlan(refused=leaked, foreign=foreign)
    return SweepPlan(release=leaked, foreign=foreign)


def expected_names(runs: Iterable[Run]) -> set[str]:
    """Machines of a live try, and those that are retiring or kept."""
    names = set[str]()
    for run in runs:
        names.update(call.machine_name for call in (run.open_try, run.open_rival) if call is not None)
        names.update(item.ref.name for item in run.retiring)
    return names


def _old_enough(machine: Machine, now: float) -> bool:
    # A second safeguard beside "row before call". A platform that reports no age has none to give.
    return machine.created_at is None or now - machine.created_at >= AGE_FLOOR_S


# --- what each machine is for -----------------------------------------------------------------------------------------


class Use(StrEnum):
    SERVES = "serves"  # the live attempt of its run, or the attempt that is being placed
    RETIRING = "retiring"  # its attempt is over, and it is being released
    KEPT = "kept"  # its attempt is over, and a person still needs it
    ORPHAN = "orphan"  # ours, and it serves no run
    ELSEWHERE = "elsewhere"  # ours, and its run is led from another bucket or project, or cannot be read
    FOREIGN = "foreign"  # another supervisor's, or without any label


@dataclass(frozen=True, slots=True)
class Claim:
    """One machine that a run has, by its row. `until`: epoch seconds, of a machine that is kept or being released."""

    run_id: str
    launch_id: str
    machine_name: str
    provider: str
    zone: str
    use: Use
    attempt: int
    price_usd_per_h: float | None
    obtained: bool = True  # False: requested, and not answered yet
    until: float | None = None
    left: bool = False  # its processes are gone, and its host is still billed
    whole: bool = False  # of the machine of this name, whichever launch of the run it carries


@dataclass(frozen=True, slots=True)
class Verdict:
    """`why` says it in a sentence. `release`: it may be released now, because it serves no run."""

    use: Use
    why: str
    claim: Claim | None = None
    release: bool = False


def claims(runs: Iterable[Run], now: float) -> tuple[Claim, ...]:
    """Every machine that these runs have, with what it is for."""
    return tuple(claim for run in runs for claim in (*_live_claims(run), *_retiring_claims(run, now)))


def _live_claims(run: Run) -> Iterable[Claim]:
    for try_ in (run.open_try, run.open_rival):
        if try_ is None:
            continue
        yield Claim(
            run.run_id,
            try_.launch_id,
            try_.machine_name,
            try_.placement.provider,
            try_.placement.zone,
            Use.SERVES,
            try_.attempt,
            try_.price_usd_per_h,
            obtained=run.live_attempt is not None,
            whole=try_.on is not None,
        )


def _retiring_claims(run: Run, now: float) -> Iterable[Claim]:
    for item in run.retiring:
        kept = run.status == Status.AWAITING_TEARDOWN or (run.terminal and item.until > now)
        if item.kept is not None:
            kept = not item.kept.given_up
        own = (attempt for attempt in (item.attempt, run.attempt) if attempt is not None)
        yield Claim(
            run.run_id,
            item.launch_id,
            item.ref.name,
            item.ref.provider,
            item.ref.zone,
            Use.KEPT if kept else Use.RETIRING,
            parse_launch_id(item.launch_id)[1],
            _price(item, own),
            until=item.until,
            whole=item.kept is not None,
            left=item.bill is not None and item.bill.left_at is not None,
        )


def _price(item: Retiring, own: Iterable[Attempt]) -> float | None:
    """Of a kept machine that is off: of its disks."""
    if item.kept is not None and item.kept.off_at is not None:
        return item.kept.usd_per_h
    return next((attempt.price_usd_per_h for attempt in own if attempt.launch_id == item.launch_id), None)


class Inventory:
    """Judges machines by the claims of all runs. `elsewhere`: id of a run of ours that may go on without being among
    the claims -> why, such as that another cell leads it."""

    def __init__(self, supervisor_id: str, machine_claims: Iterable[Claim], elsewhere: Mapping[str, str]) -> None:
        self._supervisor_id, self._elsewhere = supervisor_id, elsewhere
        self._by_launch = {(claim.run_id, claim.launch_id): claim for claim in machine_claims}
        self._whole = {claim.machine_name: claim for claim in self._by_launch.values() if claim.whole}
        self._names = {claim.machine_name for claim in self._by_launch.values()}

    def judge(self, machine: Machine, now: float) -> Verdict:
        if machine.supervisor_id != self._supervisor_id:
            other = "another supervisor's" if machine.supervisor_id else "it carries no supervisor's id"
            return Verdict(Use.FOREIGN, f"not ours: {other}")
        claim = self._by_launch.get((machine.run_id, machine.launch_id)) or self._whole.get(machine.name)
        if claim is not None:
            return Verdict(claim.use, _why(claim, now), claim)
        if machine.run_id in self._elsewhere:
            return Verdict(Use.ELSEWHERE, self._elsewhere[machine.run_id])
        if machine.name in self._names:
            return Verdict(Use.ORPHAN, "a live run has a machine of this name, and its labels name another launch")
        if machine.state is MachineState.ENDING:
            return Verdict(Use.ORPHAN, "serves no live run; it is being deleted already")
        if not _old_enough(machine, now):
            return Verdict(Use.ORPHAN, f"serves no live run, but is younger than {AGE_FLOOR_S:g} s")
        return Verdict(Use.ORPHAN, "carries our label and serves no live run", release=True)


def _why(claim: Claim, now: float) -> str:
    if claim.use is Use.SERVES:
        verb = "serves" if claim.obtained else "is requested by"
        return f"{verb} attempt {claim.attempt} of {claim.run_id}"
    left_s = 0.0 if claim.until is None else claim.until - now
    if claim.use is Use.KEPT:
        return f"kept for {claim.run_id}" + (f" for another {age_text(left_s)}" if left_s > 0 else "")
    soon = f", in {age_text(left_s)} at the latest" if left_s > 0 else ""
    return f"attempt {claim.attempt} of {claim.run_id} is over; being released{soon}"
