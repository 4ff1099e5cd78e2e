"""What a wrong wall clock left in a row.

A start that lies ahead of now, and a pause that ends further ahead than any pause of its kind, were written while the
clock was wrong: the start counts from now, and the pause is over. The rest of what holds after a step of the clock is
elsewhere: which clock is believed (reconciler/system_clock), how long a machine worked (liveness.reckoned), and which
limits go by that (limits).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from supervisor.domain.attempt import Retiring
from supervisor.domain.run import Run
from supervisor.domain.world import World
from supervisor.lifecycle.living.liveness import TOLERANCE_S
from supervisor.lifecycle.offers.choosing import longest_pause_s

_STARTS = ("status_since", "waiting_since", "needs_person_at", "reminded_at", "down_since")
_ATTEMPT_STARTS = ("requested_at", "started_at", "up_at", "running_at", "training_at", "pull_at", "pulled_at")


def righted(run: Run, world: World, now: float) -> Run:
    """The run without times that only a wrong clock can have written; the same object where there are none."""
    changes: dict[str, Any] = dict.fromkeys(_ahead(run, _STARTS, now), now)
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
