"""What no plan can undercut, also one that knows the whole trace beforehand.

The work that has to be done is a constraint; here a second of work is paid with a price instead (Lagrange). For each
price the cheapest plan is a dynamic program over the ticks and the three things that can be held, and its value is a
bound from below for every plan that does all the work. The best price gives the best bound. The exact optimum was
0.2 % above it on 90 of the cases, where a search found it in 0.5 s a case: too long for 1,080.
"""

from __future__ import annotations

from tools.policy.traces import ON_DEMAND_USD, SPOT_USD, TICK_S, WORK_S, H

SPOT_TICK_USD, ON_DEMAND_TICK_USD = SPOT_USD * TICK_S / H, ON_DEMAND_USD * TICK_S / H
GOLDEN = (5**0.5 - 1) / 2
ROUNDS = 18  # the price is then known to 0.02 %


def bound_usd(up: tuple[bool, ...], changeover_s: float) -> float:
    """`up` reaches until the deadline; a changeover takes less than a tick."""
    low = SPOT_TICK_USD / TICK_S
    high = 1.2 * ON_DEMAND_TICK_USD / (TICK_S - changeover_s)
    left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
    at_left, at_right = _value(up, changeover_s, left), _value(up, changeover_s, right)
    for _ in range(ROUNDS):
        if at_left < at_right:
            low, left, at_left = left, right, at_right
            right = low + GOLDEN * (high - low)
            at_right = _value(up, changeover_s, right)
        else:
            high, right, at_right = right, left, at_left
            left = high - GOLDEN * (high - low)
            at_left = _value(up, changeover_s, left)
    return max(at_left, at_right)


def _value(up: tuple[bool, ...], changeover_s: float, usd_per_s: float) -> float:
    """From the last tick back: the least that the rest costs, after what is paid for its work."""
    full, first = usd_per_s * TICK_S, usd_per_s * (TICK_S - changeover_s)
    spot_new, spot_kept = SPOT_TICK_USD - first, SPOT_TICK_USD - full
    paid_new, paid_kept = ON_DEMAND_TICK_USD - first, ON_DEMAND_TICK_USD - full
    none = spot = paid = 0.0
    for is_up in reversed(up):
        start_paid = paid_new + paid
        if is_up:
            start_spot = spot_new + spot
            none, spot, paid = (
                min(none, start_paid, start_spot),
                min(none, start_paid, spot_kept + spot),
                min(none, paid_kept + paid, start_spot),
            )
        else:
            none, paid = min(none, start_paid), min(none, paid_kept + paid)
            spot = none  # it is lost here
    return none + usd_per_s * WORK_S
