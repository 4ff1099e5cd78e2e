"""Machines whose attempt is over: each is released when its time has come, and dropped only when it is known gone."""

from __future__ import annotations

from dataclasses import dataclass, replace

from supervisor.domain.actions import Release
from supervisor.domain.attempt import Attempt, Retiring
from supervisor.domain.events import Event, EventKind
from supervisor.domain.machines import Machine, MachineState
from supervisor.domain.observation import Absent, Observation, Part, Seen, Unknown
from supervisor.domain.run import Run, attempt_of, billed_h
from supervisor.lifecycle.decision import tell

GOING = frozenset({MachineState.ENDING, MachineState.ENDED})  # it runs no more


@dataclass(frozen=True, slots=True)
class Retired:
    """`run` without the machines that are gone; the releases that are due; and the attempts whose machines are now
    known gone."""

    run: Run
    events: tuple[Event, ...] = ()
    releases: tuple[Release, ...] = ()
    parted: tuple[Attempt, ...] = ()


def retire(run: Run, obs: Observation, now: float) -> Retired:
    """What is to be done about `run.retiring`. No release on an Unknown."""
    if not run.retiring:
        return Retired(run)
    kept, events, releases, parted = [], [], [], []
    before = run.retiring
    for item, part in zip(before, obs.retiring or (Unknown("not read"),) * len(before), strict=False):
        if isinstance(part, Absent):
            events.append(tell(EventKind.MACHINE_RELEASED, f"Machine {item.ref.name} is gone.", machine=item.ref.name))
            run, gone = _gone(run, item, now)
            parted += [] if gone is None else [gone]
            continue
        if isinstance(part, Seen):
            if _due(item, part, now):
                releases.append(Release(item.ref, item.launch_id, item.note, (_reading(part),)))
            run, looked_at = _looked_at(run, item, part.value, now)
            kept.append(looked_at)
        else:
            kept.append(item)
    unchanged = len(kept) == len(before) and all(kept_item is was for kept_item, was in zip(kept, before, strict=True))
    after = run if unchanged else replace(run, retiring=tuple(kept))
    return Retired(after, tuple(events), tuple(releases), tuple(parted))


def earlier(retired: Retired, run: Run) -> tuple[Attempt, ...]:
    """Those of them that are not `run`'s own: the next attempt may begin in the very decision that saw them gone."""
    return tuple(attempt for attempt in retired.parted if run.attempt is None or attempt.number != run.attempt.number)


def next_due(run: Run, now: float) -> float | None:
    """When the next machine must go that may still stay now."""
    return min((item.until for item in run.retiring if item.until > now), default=None)


def _due(item: Retiring, part: Seen[Machine], now: float) -> bool:
    return now >= item.until or part.value.state == MachineState.ENDED


def _looked_at(run: Run, item: Retiring, machine: Machine, now: float) -> tuple[Run, Retiring]:
    """Billing ends when the machine stops, by the platform's word or by the first look that sees it; and goes on with
    every look that sees it running, also one that asks for its release."""
    attempt, own = attempt_of(run, item)
    if attempt is None or attempt.stopped_at is not None:
        return run, item
    if machine.state not in GOING:
        return run, replace(item, up_at=now) if now >= item.until and item.up_at != now else item
    recorded_at = machine.record.at if machine.record is not None else None
    stopped = _stopped(attempt, now if recorded_at is None else recorded_at, now)
    billed = _billed(run, attempt, stopped)
    return (replace(billed, attempt=stopped), item) if own else (billed, replace(item, attempt=stopped))


def _gone(run: Run, item: Retiring, now: float) -> tuple[Run, Attempt | None]:
    """Where nobody saw it stop, it did so at the look that asked for its release; where nobody asked, it is not known,
    and it is billed until now."""
    attempt, own = attempt_of(run, item)
    if attempt is None:
        return run, None
    gone = replace(attempt, gone_at=now)
    billed = run
    if attempt.stopped_at is None:
        stopped = _stopped(gone, now if item.up_at is None else item.up_at, now)
        billed = _billed(run, attempt, stopped)
        gone = gone if item.up_at is None else stopped
    return replace(billed, attempt=gone if own else run.attempt), gone


def _stopped(attempt: Attempt, at: float, now: float) -> Attempt:
    """Never before its work was over, which is billed already, and never in the future: the platform's clock may be
    another one than ours."""
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


def _reading(part: Part[Machine]) -> str:
    assert isinstance(part, Seen)
    return f"listing: {part.value.state}, {part.age_s:.0f} s old"
