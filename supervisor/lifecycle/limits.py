"""The limits that a user pays for: deadline, budget, training time. Never extended by our own absence.

A deadline is a time of the wall clock, whatever that says. Budget and training time are lengths of time: they go by
the agent's own count (liveness.reckoned), so a wall clock that steps neither ends a run nor bills an hour.
"""

from __future__ import annotations

from supervisor.domain.attempt import Attempt, Retiring
from supervisor.domain.causes import Cause
from supervisor.domain.run import Run
from supervisor.domain.world import World
from supervisor.lifecycle.figures import age_text
from supervisor.lifecycle.liveness import watched_since


def attempt_cost_usd(attempt: Attempt, now: float) -> float | None:
    """What the machine of this attempt has cost until it ran no more, or so far. None = no known price."""
    if attempt.price_usd_per_h is None:
        return None
    return attempt.price_usd_per_h * billed_h(attempt, now)


def on_demand_usd(attempt: Attempt, now: float) -> float:
    """What the same time would have cost on demand; 0 where that price is not known."""
    return (attempt.on_demand_usd_per_h or 0.0) * billed_h(attempt, now)


def billed_h(attempt: Attempt, now: float) -> float:
    """Hours that its machine is billed for until it ran no more, or so far; never below the platform's minimum."""
    end = attempt.stopped_at if attempt.stopped_at is not None else attempt.gone_at
    lasted_s = (now if end is None else end) - attempt.started_at - attempt.drift_s
    return max(attempt.minimum_s, lasted_s) / 3600.0


def run_cost_usd(run: Run, now: float) -> float:
    """Cost of the whole run so far, machines that are kept or on their way out included; attempts without a known price
    are left out (`run.cost_known` is False then)."""
    live = run.live_attempt
    so_far = (attempt_cost_usd(live, now) or 0.0) if live is not None else 0.0
    return run.cost_usd + so_far + sum(h * (one.price_usd_per_h or 0.0) for one, h in _after_work(run, now))


def run_on_demand_usd(run: Run, now: float) -> float:
    """What the same time would have cost on demand."""
    live = run.live_attempt
    so_far = on_demand_usd(live, now) if live is not None else 0.0
    kept = sum(h * (one.on_demand_usd_per_h or 0.0) for one, h in _after_work(run, now))
    return run.on_demand_usd + so_far + kept


def _after_work(run: Run, now: float) -> list[tuple[Attempt, float]]:
    """Attempts that are over and whose machine is billed on, with the hours since: the row gets them when it stops. A
    machine that waits for a person's approval does so for a day."""
    found = []
    for item in run.retiring:
        attempt, _ = attempt_of(run, item)
        if attempt is not None and attempt.ended_at is not None and attempt.stopped_at is None:
            found.append((attempt, max(0.0, billed_h(attempt, now) - billed_h(attempt, attempt.ended_at))))
    return found


def attempt_of(run: Run, item: Retiring) -> tuple[Attempt | None, bool]:
    """The attempt whose machine this is, while it is not known gone; and whether it is the run's own."""
    own = run.attempt is not None and run.attempt.launch_id == item.launch_id
    attempt = run.attempt if own else item.attempt
    return (None if attempt is None or attempt.gone_at is not None else attempt), own


def training_s(attempt: Attempt | None, now: float) -> float:
    """How long this attempt has trained, by its agent's own count: no step of our clock is in it."""
    if attempt is None or attempt.training_at is None:
        return 0.0
    return max(0.0, (attempt.ended_at or now) - attempt.training_at - attempt.drift_s)


def counted_until(run: Run, world: World, now: float) -> float:
    """Until when the live attempt counts towards the limits of the run: now, but after a step of the clock, until the
    agent's next count, without the step."""
    attempt, pulse = run.live_attempt, run.pulse
    if attempt is None:
        return now
    heard = pulse is not None and pulse.launch_id == attempt.launch_id and pulse.sequence > 0
    last = pulse.beat_at if heard and pulse is not None else attempt.started_at
    return last + now - watched_since(world, last, now)


def limit_passed(run: Run, now: float, world: World | None = None) -> tuple[Cause, str] | None:
    """The first limit of the run that has been passed, with both numbers. `world` None: for a person who asks."""
    limits = run.policy.limits
    wall = now if world is None else now + world.wall_ahead_s
    if limits.deadline is not None and wall >= limits.deadline:
        return Cause.DEADLINE, f"the deadline passed {age_text(wall - limits.deadline)} ago"
    now = now if world is None else counted_until(run, world, now)
    if limits.max_runtime_s is not None:
        trained_s = run.training_s + training_s(run.live_attempt, now)
        if trained_s >= limits.max_runtime_s:
            return Cause.MAX_RUNTIME, f"{trained_s:.0f} s of training, limit {limits.max_runtime_s:.0f} s"
    if limits.budget_usd is not None:
        spent = run_cost_usd(run, now) - run.budget_from_usd
        if spent >= limits.budget_usd:
            return Cause.BUDGET, f"${spent:.2f} spent, budget ${limits.budget_usd:.2f}"
    return None


def next_limit_at(run: Run, now: float) -> float | None:
    """When the soonest of these limits will pass, if the run goes on as it does now."""
    limits, live, due = run.policy.limits, run.live_attempt, []
    if limits.deadline is not None:
        due.append(limits.deadline)
    if limits.max_runtime_s is not None and live is not None and live.training_at is not None:
        due.append(now + limits.max_runtime_s - run.training_s - training_s(live, now))
    if limits.budget_usd is not None and live is not None and live.price_usd_per_h:
        left_usd = limits.budget_usd + run.budget_from_usd - run_cost_usd(run, now)
        due.append(now + left_usd / live.price_usd_per_h * 3600.0)
    return min(due) if due else None
