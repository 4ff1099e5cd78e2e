"""Machines whose attempt is over: each is released when its time has come, and dropped only when it is known gone."""

from __future__ import annotations

from dataclasses import dataclass, replace

from supervisor.domain.actions import Release
from supervisor.domain.attempt import Attempt, Retiring
from supervisor.domain.events import Event, EventKind
from supervisor.domain.machine import Machine, MachineState
from supervisor.domain.observation import Absent, Observation, Part, Seen, Unknown
from supervisor.domain.run import Run
from supervisor.lifecycle.decision import tell


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
    for item, part in zip(
        run.retiring, obs.retiring or (Unknown("not read"),) * len(run.retiring), strict=False
    ):
        if isinstance(part, Absent):
            events.append(
                tell(EventKind.MACHINE_RELEASED, f"Machine {item.ref.name} is gone.", machine=item.ref.name)
            )
            run, gone = _gone(run, item, now)
            parted += [] if gone is None else [gone]
            continue
        kept.append(item)
        if isinstance(part, Seen) and _due(item, part, now):
            releases.append(Release(item.ref, item.launch_id, item.note, (_reading(part),)))
    after = run if len(kept) == len(run.retiring) else replace(run, retiring=tuple(kept))
    return Retired(after, tuple(events), tuple(releases), tuple(parted))


def earlier(retired: Retired, run: Run) -> tuple[Attempt, ...]:
    """Those of them that are not `run`'s own: the next attempt may begin in the very decision that saw them gone."""
    return tuple(one for one in retired.parted if run.attempt is None or one.number != run.attempt.number)


def next_due(run: Run, now: float) -> float | None:
    """When the next machine must go that may still stay now."""
    return min((item.until for item in run.retiring if item.until > now), default=None)


def _due(item: Retiring, part: Seen[Machine], now: float) -> bool:
    return now >= item.until or part.value.state == MachineState.ENDED


def _gone(run: Run, item: Retiring, now: float) -> tuple[Run, Attempt | None]:
    """Billing ends when the machine is known gone, not when its attempt was over."""
    own = run.attempt is not None and run.attempt.launch_id == item.launch_id
    attempt = run.attempt if own else item.attempt
    if attempt is None or attempt.gone_at is not None:
        return run, None
    more_h = max(0.0, now - (attempt.ended_at or now)) / 3600.0
    gone = replace(attempt, gone_at=now)
    billed = replace(
        run,
        attempt=gone if own else run.attempt,
        cost_usd=run.cost_usd + more_h * (attempt.price_usd_per_h or 0.0),
        on_demand_usd=run.on_demand_usd + more_h * (attempt.on_demand_usd_per_h or 0.0),
    )
    return billed, gone


def _reading(part: Part[Machine]) -> str:
    assert isinstance(part, Seen)
    return f"listing: {part.value.state}, {part.age_s:.0f} s old"
