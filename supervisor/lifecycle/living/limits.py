"""Limits of an attempt and of its run: from when each one counts, and whether it has passed, with both numbers.

Progress is judged where progress is due, beats elsewhere, and nothing while we cannot see. Limits that end an attempt
count from the latest of their own start and the moment since which their source has been read without a gap.

The end of a budget, a deadline or a training time is a notice: the training gets its whole `stop_grace_s` and the time
of an upload, and what that takes is kept of the limit beforehand. So the limit itself holds.

Deadline, budget and training time are never extended by our own absence. A deadline is a time of the wall clock.
Budget and training time are lengths of time by the agent's own count (`beats.with_agent_clock`), so a wall clock that
steps neither ends a run nor bills an hour.
"""

from __future__ import annotations

from supervisor.contract import heartbeat
from supervisor.domain.attempt import Attempt, Pulse, training_s
from supervisor.domain.causes import Cause
from supervisor.domain.machines import Placement
from supervisor.domain.observation import BEATS, World, machines_in
from supervisor.domain.policies import StallLimits
from supervisor.domain.run import Run, run_cost_usd
from supervisor.lifecycle.decision import soonest
from supervisor.wording.figures import age_text, money_text
from supervisor.wording.forecast import leaving_s
from supervisor.wording.stalls import HANG_LOOKS, hang_in, hang_reason, is_spared

SETUP_MARGIN_S = 120.0  # the agent itself ends a setup at its limit, and says so
KEPT_SHARE = 0.15  # of a limit at most: a tiny one leaves time to train too, and the warning at 80 % comes before


def watched_since(world: World, since: float, now: float, source: str = BEATS) -> float:
    """Where a limit that ends something begins: its own start, or the moment since which we read the source. A start
    in the future was written before the wall clock was set back: only what we have observed since counts."""
    if since > now:
        return world.observing_since.get(source, now)
    return max(since, world.observing_since.get(source, since))


def machines_since(world: World, place: Placement, since: float, now: float) -> float:
    """`watched_since` for the machines of one zone: a partial listing may have read it or not."""
    source = world.machines_of(place.provider)
    own = machines_in(place.zone, source)
    return watched_since(world, since, now, own if own in world.observing_since else source)


def seen_since(attempt: Attempt, world: World, since: float, now: float) -> float:
    """`watched_since` for what the agent of this attempt reports: its beats, and the zone of its machine. While a zone
    cannot be read, its machines may be cut off from the store too, and say nothing without being ill."""
    return max(watched_since(world, since, now), machines_since(world, attempt.placement, since, now))


def silent_s(pulse: Pulse | None, attempt: Attempt, world: World, now: float) -> float:
    """How long beats have been missing while we could have read them; 0 while they arrive."""
    last = pulse.beat_at if pulse is not None and pulse.launch_id == attempt.launch_id else attempt.started_at
    return now - seen_since(attempt, world, last, now)


def stall_reason(run: Run, pulse: Pulse, world: World, now: float) -> str | None:
    """Why this attempt is stalled, with the figures; None while it is not."""
    limits, attempt = run.policy.stall, run.live_attempt
    assert attempt is not None
    in_phase_s = now - seen_since(attempt, world, pulse.phase_since, now)
    if pulse.phase != heartbeat.TRAINING:
        limit_s = _phase_limit_s(limits, pulse.phase)
        if limit_s is not None and in_phase_s > limit_s:
            return f"{in_phase_s:.0f} s in phase {pulse.phase}, limit {limit_s:.0f} s"
        return None
    hang = hang_in(pulse)
    if hang is not None and pulse.hang_looks >= HANG_LOOKS:
        return hang_reason(hang)
    if pulse.first_progress_at is not None:
        since_s = now - seen_since(attempt, world, pulse.progress_at or pulse.first_progress_at, now)
        if pulse.stall_polls < limits.polls or is_spared(pulse, limits, since_s):
            return None
        return f"{pulse.stall_polls} polls without progress at step {pulse.step}"
    # A first step is due only in a run that has reported steps before; others are never judged by steps.
    if run.reported and in_phase_s > limits.first_progress_s:
        return f"no first step after {in_phase_s:.0f} s of training, limit {limits.first_progress_s:.0f} s"
    return None


def _phase_limit_s(limits: StallLimits, phase: str) -> float | None:
    return {
        heartbeat.SETUP: limits.setup_s + SETUP_MARGIN_S,
        heartbeat.RESTORE: limits.restore_s,
        heartbeat.CHECKPOINT: limits.checkpoint_s,
        heartbeat.EVALUATION: limits.evaluation_s,
    }.get(phase)


def limit_passed(run: Run, now: float, world: World | None = None) -> tuple[Cause, str] | None:
    """The first limit of the run that has passed, with both numbers. `world` None: no observation is at hand, as when
    a person changes a limit."""
    limits = run.policy.limits
    wall = now if world is None else now + world.wall_ahead_s
    if limits.deadline is not None and wall >= limits.deadline - _kept_s(run, limits.deadline - run.generation_at):
        left_s = limits.deadline - wall
        if left_s <= 0:
            return Cause.DEADLINE, f"the deadline passed {age_text(-left_s)} ago"
        return Cause.DEADLINE, f"the deadline is in {age_text(left_s)}, which are kept for the last save"
    now = now if world is None else _counted_until(run, world, now)
    if limits.max_runtime_s is not None:
        trained_s, kept_s = run.training_s + training_s(run.live_attempt, now), _kept_s(run, limits.max_runtime_s)
        if trained_s >= limits.max_runtime_s - kept_s:
            kept = f" and {kept_s:.0f} s kept for the last save" if trained_s < limits.max_runtime_s else ""
            return Cause.MAX_RUNTIME, f"{trained_s:.0f} s of training{kept}, limit {limits.max_runtime_s:.0f} s"
    if limits.budget_usd is not None:
        spent, kept_usd = run_cost_usd(run, now) - run.money.budget_from_usd, _kept_usd(run, limits.budget_usd)
        if spent >= limits.budget_usd - kept_usd:
            kept = f" and {money_text(kept_usd)} kept for the last save" if spent < limits.budget_usd else ""
            return Cause.BUDGET, f"${spent:.2f} spent{kept}, budget ${limits.budget_usd:.2f}"
    return None


def _kept_s(run: Run, whole_s: float) -> float:
    """Of a limit of this length, for leaving. A command that does not train yet has nothing to save."""
    attempt = run.live_attempt
    if attempt is None or attempt.training_at is None:
        return 0.0
    return min(leaving_s(run), KEPT_SHARE * max(0.0, whole_s))


def _kept_usd(run: Run, whole_usd: float) -> float:
    """The same of a budget. Between two machines too: none is rented that could only pay for its own end."""
    attempt = run.attempt if run.has_begun else None
    if attempt is None or attempt.training_at is None or not attempt.price_usd_per_h:
        return 0.0
    return min(leaving_s(run) * attempt.price_usd_per_h / 3600.0, KEPT_SHARE * whole_usd)


def _counted_until(run: Run, world: World, now: float) -> float:
    """Until when the live attempt counts towards the limits of its run: now, but without a step of the clock that the
    agent's next count has not shown yet."""
    attempt, pulse = run.live_attempt, run.pulse
    if attempt is None:
        return now
    has_beat = pulse is not None and pulse.launch_id == attempt.launch_id and pulse.sequence > 0
    last = pulse.beat_at if has_beat and pulse is not None else attempt.started_at
    return last + now - watched_since(world, last, now)


def next_limit_at(run: Run, now: float) -> float | None:
    """When the soonest of the run's limits will pass, if the run goes on as it does now."""
    limits, live = run.policy.limits, run.live_attempt
    deadline_at = runtime_at = budget_at = None
    if limits.deadline is not None:
        deadline_at = limits.deadline - _kept_s(run, limits.deadline - run.generation_at)
    if limits.max_runtime_s is not None and live is not None and live.training_at is not None:
        left_s = limits.max_runtime_s - _kept_s(run, limits.max_runtime_s)
        runtime_at = now + left_s - run.training_s - training_s(live, now)
    if limits.budget_usd is not None and live is not None and live.price_usd_per_h:
        left_usd = limits.budget_usd - _kept_usd(run, limits.budget_usd)
        left_usd += run.money.budget_from_usd - run_cost_usd(run, now)
        budget_at = now + left_usd / live.price_usd_per_h * 3600.0
    return soonest(deadline_at, runtime_at, budget_at)
