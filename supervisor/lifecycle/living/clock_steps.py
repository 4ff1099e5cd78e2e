"""Times in a row that only a wrong wall clock can have written, and what they become.

A start that lies ahead of now counts from now. A pause that ends further ahead than any pause of its kind is over.
Which clock is believed is decided in reconciler/system_clock.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from supervisor.domain.attempt import Retiring
from supervisor.domain.causes import Cause
from supervisor.domain.observation import World
from supervisor.domain.run import Run
from supervisor.lifecycle.living.beats import TOLERANCE_S
from supervisor.lifecycle.offers.choosing import longest_pause_s
from supervisor.wording.sessions import WEEK_S

_STARTS = ("status_since", "down_since")
_STARTS_IN_GROUPS = {"waiting": ("since",), "person": ("since", "reminded_at")}
_ATTEMPT_STARTS = (
    "requested_at", "started_at", "up_at", "running_at", "training_at", "pull_at", "pulled_at", "finishing_at",
)  # fmt: skip


def righted(run: Run, world: World, now: float) -> Run:
    """The run without times that only a wrong clock can have written; the same object where there are none."""
    changes: dict[str, Any] = dict.fromkeys(_ahead(run, _STARTS, now), now)
    for name, starts_in_group in _STARTS_IN_GROUPS.items():
        group: Any = getattr(run, name)
        ahead = _ahead(group, starts_in_group, now)
        if ahead:
            changes[name] = replace(group, **dict.fromkeys(ahead, now))
    longest_s = WEEK_S if run.cause == Cause.QUOTA_HOURS else longest_pause_s(world)
    if run.next_at is not None and run.next_at > now + longest_s + TOLERANCE_S:
        changes["next_at"] = now
    retiring = tuple(_righted_item(item, run, world, now) for item in run.retiring)
    if any(after is not before for after, before in zip(retiring, run.retiring, strict=True)):
        changes["retiring"] = retiring
    if run.kept_until is not None and run.kept_until > now + run.policy.keep_s + TOLERANCE_S:
        changes["kept_until"] = max((item.until for item in retiring), default=now)
    attempt = run.live_attempt
    if attempt is not None and attempt.agent_at is None:  # else the agent's own count corrects these times
        wrong = _ahead(attempt, _ATTEMPT_STARTS, now)
        if wrong:
            starts: dict[str, Any] = dict.fromkeys(wrong, now)
            changes["attempt"] = replace(attempt, **starts)
    return replace(run, **changes) if changes else run


def _ahead(value: object, names: tuple[str, ...], now: float) -> list[str]:
    return [name for name in names if (getattr(value, name) or 0.0) > now + TOLERANCE_S]


def _righted_item(item: Retiring, run: Run, world: World, now: float) -> Retiring:
    knobs = world.knobs
    longest_s = max(
        run.policy.keep_s, run.policy.keep.for_s if item.kept else 0.0, knobs.ask_limit_s, knobs.notice_overlap_s
    )
    ahead_s = item.since - now
    if ahead_s > TOLERANCE_S:  # both were written by the same clock
        item = replace(item, since=now, until=max(now, item.until - ahead_s))
    if item.until > now + longest_s + TOLERANCE_S:
        item = replace(item, until=now)
    if item.up_at is not None and item.up_at > now + TOLERANCE_S:
        item = replace(item, up_at=now)
    bill = item.bill
    if bill is not None and max(bill.tried_at or 0.0, bill.done_at or 0.0) > now + TOLERANCE_S:
        tried_at, done_at = (None if at is None else min(at, now) for at in (bill.tried_at, bill.done_at))
        item = replace(item, bill=replace(bill, tried_at=tried_at, done_at=done_at))
    return item
