"""The limits that a user pays for: deadline, budget, training time. Never extended by our own absence.

A deadline is a time of the wall clock, whatever that says. Budget and training time are lengths of time: they go by
the agent's own count (liveness.reckoned), so a wall clock that steps neither ends a run nor bills an hour.
"""

from __future__ import annotations

from supervisor.domain.causes import Cause
from supervisor.domain.run import Run
from supervisor.domain.spending import run_cost_usd, training_s
from supervisor.domain.world import World
from supervisor.lifecycle.living.liveness import watched_since
from supervisor.wording.figures import age_text


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
