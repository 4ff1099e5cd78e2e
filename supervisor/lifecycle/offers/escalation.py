"""When a run asks for another kind of machine than it began with: after some preemptions, or near its deadline.

Off unless the run's policy says so. Nothing is remembered but when it was preempted: what follows from that is worked
out anew for each placement, so that a run goes back to its first wish when the preemptions lie far enough behind.
"""

from __future__ import annotations

from supervisor.domain.policies import Policy
from supervisor.domain.run import Run

NEXT_SHAPE, ON_DEMAND = "next_shape", "on_demand"
KEPT = 32  # preemptions that are remembered


def markets_of(run: Run, now: float) -> tuple[bool, ...]:
    """Spot (True) and on-demand (False) in the order in which they are asked for."""
    policy = run.policy
    if not policy.spot:
        return (False,)
    if _to_on_demand(run, now):
        return (False, True)
    return (True, False) if policy.allow_on_demand else (True,)


def shapes_of(run: Run, offered: tuple[str, ...], now: float) -> tuple[str, ...]:
    """The run's shapes in the order in which they are asked for; without any of its own the first one offered."""
    shapes = run.policy.shapes or offered[:1]
    steps = _steps(run, now) if run.policy.escalate_to == NEXT_SHAPE else 0
    first = max(0, min(steps, len(shapes) - 1))
    return (*shapes[first:], *shapes[:first])


def why(run: Run, now: float) -> str:
    """In words, for the history; "" = it asks for what it always did."""
    policy = run.policy
    if policy.spot and _near_deadline(run, now):
        return "on-demand first, because its deadline is near"
    if _steps(run, now) == 0 or (policy.escalate_to == ON_DEMAND and not policy.spot):
        return ""
    wish = "on-demand first" if policy.escalate_to == ON_DEMAND else "the next shape first"
    count = len(_recent(run.counters.preempted_at, policy, now))
    return f"{wish}, after {count} preemptions within {policy.escalate_window_s / 3600:g} h"


def with_preemption(known: tuple[float, ...], policy: Policy, now: float) -> tuple[float, ...]:
    """What is remembered after one more. Nothing where nobody counts them."""
    return (*_recent(known, policy, now), now)[-KEPT:] if policy.escalate_after > 0 else ()


def _to_on_demand(run: Run, now: float) -> bool:
    return _near_deadline(run, now) or (run.policy.escalate_to == ON_DEMAND and _steps(run, now) > 0)


def _near_deadline(run: Run, now: float) -> bool:
    left_s, deadline = run.policy.on_demand_before_deadline_s, run.policy.limits.deadline
    return left_s is not None and deadline is not None and deadline - now <= left_s


def _steps(run: Run, now: float) -> int:
    """How many times the preemptions of the window are as many as the policy bears."""
    after = run.policy.escalate_after
    return len(_recent(run.counters.preempted_at, run.policy, now)) // after if after > 0 else 0


def _recent(known: tuple[float, ...], policy: Policy, now: float) -> tuple[float, ...]:
    """A time ahead of now was written before the wall clock was set back: it says nothing."""
    return tuple(at for at in known if now - policy.escalate_window_s < at <= now)
