"""Times that end something: the limits that a user pays for, and what a wrong wall clock left in a row.

Deadline, budget and training time are never extended by our own absence. A deadline is a time of the wall clock,
whatever that says. Budget and training time are lengths of time: they go by the agent's own count (liveness.reckoned),
so a wall clock that steps neither ends a run nor bills an hour.

A start that lies ahead of now, and a pause that ends further ahead than any pause of its kind, were written while the
clock was wrong: the start counts from now, and the pause is over. Which clock is believed stands in
reconciler/system_clock.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from supervisor.domain.attempt import Retiring
from supervisor.domain.causes import Cause
from supervisor.domain.observation import World
from supervisor.domain.run import Run, run_cost_usd, training_s
from supervisor.lifecycle.living.liveness import TOLERANCE_S, watched_since
from supervisor.lifecycle.offers.choosing import longest_pause_s
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
        spent = run_cost_usd(run, now) - run.money.budget_from_usd
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
        left_usd = limits.budget_usd + run.money.budget_from_usd - run_cost_usd(run, now)
        due.append(now + left_usd / live.price_usd_per_h * 3600.0)
    return min(due) if due else None


_STARTS = ("status_since", "down_since")
_STARTS_IN_GROUPS = {"waiting": ("since",), "person": ("since", "reminded_at")}
_ATTEMPT_STARTS = ("requested_at", "started_at", "up_at", "running_at", "training_at", "pull_at", "pulled_at")


def righted(run: Run, world: World, now: float) -> Run:
    """The run without times that only a wrong clock can have written; the same object where there are none."""
    changes: dict[str, Any] = dict.fromkeys(_ahead(run, _STARTS, now), now)
    for name, starts_in_group in _STARTS_IN_GROUPS.items():
        group: Any = getattr(run, name)
        ahead = _ahead(group, starts_in_group, now)
        if ahead:
            changes[name] = replace(group, **dict.fromkeys(ahead, now))
    if run.next_at is not None and run.next_at > now + longest_pause_s(world) + TOLERANCE_S:
        changes["next_at"] = now
    retiring = tuple(_righted_item(item, run, world, now) for item in run.retiring)
    if any(after is not before for after, before in zip(retiring, run.retiring, strict=True)):
        changes["retiring"] = retiring
    if run.kept_until is not None and run.kept_until > now + run.policy.keep_s + TOLERANCE_S:
        changes["kept_until"] = max((item.until for item in retiring), default=now)
    attempt = run.live_attempt
    if attempt is not None and attempt.agent_at is None:  # else the agent's count tells how wrong it is
        wrong = _ahead(attempt, _ATTEMPT_STARTS, now)
        if wrong:
            starts: dict[str, Any] = dict.fromkeys(wrong, now)
            changes["attempt"] = replace(attempt, **starts)
    return replace(run, **changes) if changes else run


def _ahead(value: object, names: tuple[str, ...], now: float) -> list[str]:
    return [name for name in names if (getattr(value, name) or 0.0) > now + TOLERANCE_S]


def _righted_item(item: Retiring, run: Run, world: World, now: float) -> Retiring:
    knobs = world.knobs
    longest_s = max(run.policy.keep_s, knobs.ask_limit_s, knobs.notice_overlap_s)
    ahead_s = item.since - now
    if ahead_s > TOLERANCE_S:  # both were written by the same clock
        item = replace(item, since=now, until=max(now, item.until - ahead_s))
    if item.until > now + longest_s + TOLERANCE_S:
        item = replace(item, until=now)
    if item.up_at is not None and item.up_at > now + TOLERANCE_S:
        item = replace(item, up_at=now)
    return item
