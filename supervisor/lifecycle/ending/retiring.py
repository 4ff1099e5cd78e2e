"""Machines whose attempt is over: each is released when it is due, and dropped only when it is known gone.

Billing goes on until the machine stops, by the platform's record or by the first tick that observes it. A machine whose
bill only an approved verb ends (`Bill`) is released only after the approval. On a host that release ends the run's own
processes and not the bill, so the machine stays on record (phases/teardown).
"""

from __future__ import annotations

from dataclasses import replace

from supervisor.domain.actions import Action, Release
from supervisor.domain.attempt import Attempt, Retiring, attempt_on, billed_h
from supervisor.domain.causes import Cause
from supervisor.domain.events import Event, EventKind
from supervisor.domain.ledger import with_bill_of
from supervisor.domain.machines import How, Machine, MachineState
from supervisor.domain.observation import Absent, Observation, Seen, Unknown
from supervisor.domain.run import Run, attempt_of
from supervisor.lifecycle.decision import Decision, new_event, soonest
from supervisor.lifecycle.ending.keeping import followed, without_kept
from supervisor.lifecycle.ending.machines import STOPPING_STATES, reading_text


def retire(run: Run, obs: Observation, now: float) -> Decision:
    """What to do about `run.retiring`. No release on an Unknown. `parted` includes the run's own attempt."""
    kept: list[Retiring] = []
    events: list[Event] = []
    releases: list[Action] = []
    parted: list[Attempt] = []
    before = run.retiring
    for item, part in zip(before, obs.retiring or (Unknown("not read"),) * len(before), strict=False):
        if item.bill is not None and not (isinstance(part, Absent) and item.bill.how is How.RELEASE):
            if isinstance(part, Seen) and run.approved_end is not None and not run.awaits_pull:
                releases.append(_release(item, part))
            kept.append(item)
            continue
        if isinstance(part, Absent) and _may_yet_come(item, part, now):
            kept.append(item)
            continue
        if isinstance(part, Absent):
            text = f"{'Machine' if item.kept is None else 'The kept machine'} {item.ref.name} is gone."
            if item.lost_until is None or item.attempt is not None:  # else it never came
                events.append(new_event(EventKind.MACHINE_RELEASED, text, machine=item.ref.name))
            run, gone = gone_for_good(run, item, now)
            parted += [] if gone is None or item.lost_until is not None else [gone]
            continue
        current = item
        if isinstance(part, Seen) and item.kept is not None:
            current, news, actions = followed(run, item, item.kept, part.value, reading=_reading(part), now=now)
            events += news
            releases += actions
            run, current = _observed(run, current, part.value, now)
        elif isinstance(part, Seen):
            run, current = _with_bill_of_loser(run, item, part.value, now)
            if now >= item.until or part.value.state == MachineState.ENDED:
                releases.append(_release(current, part))
            run, current = _observed(run, current, part.value, now)
        kept.append(current)
    unchanged = len(kept) == len(before) and all(after is item for after, item in zip(kept, before, strict=True))
    after = run if unchanged else replace(run, retiring=tuple(kept))
    return Decision(after, tuple(events), tuple(releases), parted=tuple(parted))


def lost_launches(run: Run) -> frozenset[str]:
    """The launches of machines that lost a race and are not known gone."""
    return frozenset(item.launch_id for item in run.retiring if item.lost_until is not None)


def holder_gone(run: Run) -> bool:
    """No machine of an earlier attempt is left. One that lost a race counts only where the baton names it as holder:
    who raises or marks the baton looks (acting/batonwork)."""
    return all(item.lost_until is not None for item in run.retiring)


def _may_yet_come(item: Retiring, part: Absent, now: float) -> bool:
    """A machine that lost its race and was never seen: until its create call has ended for certain, a listing without
    it proves nothing."""
    return item.lost_until is not None and item.attempt is None and now - part.age_s < item.lost_until


def _with_bill_of_loser(run: Run, item: Retiring, machine: Machine, now: float) -> tuple[Run, Retiring]:
    """The bill of a machine that lost a race begins when it is first seen. A request that the platform still looks for
    costs nothing."""
    if item.call is None or item.attempt is not None or machine.state == MachineState.ASKED:
        return run, item
    bill = replace(attempt_on(item.call, run.generation, machine.machine_id, now), ended_at=now, cause=Cause.RACE_LOST)
    ref = replace(item.ref, machine_id=machine.machine_id or None)
    return replace(run, money=with_bill_of(run.money, bill, now)), replace(item, ref=ref, attempt=bill)


def next_due(run: Run, now: float) -> float | None:
    """When the next machine that may still stay must go."""
    return soonest(*(item.until for item in run.retiring if item.until > now))


def _observed(run: Run, item: Retiring, machine: Machine, now: float) -> tuple[Run, Retiring]:
    """Billing ends when the machine stops. It goes on with every tick that observes it running, also one that requests
    its release."""
    attempt, own = attempt_of(run, item)
    if attempt is None or attempt.stopped_at is not None:
        return run, item
    if machine.state not in STOPPING_STATES:
        return run, replace(item, up_at=now) if now >= item.until and item.up_at != now else item
    recorded_at = machine.record.at if machine.record is not None else None
    stopped = _stopped(attempt, now if recorded_at is None else recorded_at, now)
    billed = _billed(run, attempt, stopped)
    return (replace(billed, attempt=stopped), item) if own else (billed, replace(item, attempt=stopped))


def _release(item: Retiring, part: Seen[Machine]) -> Release:
    return Release(item.ref, item.launch_id, item.note, (_reading(part),))


def _reading(part: Seen[Machine]) -> str:
    return f"listing: {reading_text(part)}"


def gone_for_good(run: Run, item: Retiring, now: float) -> tuple[Run, Attempt | None]:
    """(the run with what the machine has cost; its attempt, which has no machine any more). Where no tick saw it stop,
    it stopped at the tick that requested its release; where none did, that is unknown, and it is billed until now."""
    attempt, own = attempt_of(run, item)
    run = run if item.kept is None else without_kept(run, item.kept, now)
    if item.launch_id == run.yielding.launch_id:
        run = replace(run, yielding=replace(run.yielding, gone_at=now))
    if attempt is None:
        return run, None
    gone = replace(attempt, gone_at=now)
    billed = run
    if attempt.stopped_at is None:
        stopped = _stopped(gone, now if item.up_at is None else item.up_at, now)
        billed = _billed(run, attempt, stopped)
        gone = gone if item.up_at is None else stopped
    if item.lost_until is not None:
        billed = _with_race(billed, billed_h(gone, now), gone.price_usd_per_h)
    return replace(billed, attempt=gone if own else run.attempt), gone


def _with_race(run: Run, hours: float, price_usd_per_h: float | None) -> Run:
    """The row of a machine that lost a race is dropped here, so the run keeps what it was billed for."""
    races_s = run.money.races_s + 3600.0 * hours
    races_usd = run.money.races_usd + hours * (price_usd_per_h or 0.0)
    return replace(run, money=replace(run.money, races_s=races_s, races_usd=races_usd))


def _stopped(attempt: Attempt, at: float, now: float) -> Attempt:
    """Never before its work was over, which is billed already, and never in the future: the platform's clock may
    differ from ours."""
    return replace(attempt, stopped_at=min(max(at, attempt.ended_at or attempt.started_at), now))


def _billed(run: Run, attempt: Attempt, stopped: Attempt) -> Run:
    """The run with what its machine cost since the attempt was over."""
    ended_at = attempt.ended_at or attempt.started_at
    more_h = max(0.0, billed_h(stopped, ended_at) - billed_h(attempt, ended_at))
    return replace(
        run,
        money=replace(
            run.money,
            cost_usd=run.money.cost_usd + more_h * (attempt.price_usd_per_h or 0.0),
            on_demand_usd=run.money.on_demand_usd + more_h * (attempt.on_demand_usd_per_h or 0.0),
        ),
    )
