"""How often a training should save on a machine that may be preempted: often enough to lose little, rarely enough to
cost little.

Young's and Daly's rule for a hazard that does not change is an interval of sqrt(2 x cost / hazard): the loss that is
expected then is as large as the cost of a save. The hazard of a spot machine changes with its age: most of those that
are preempted early are so within the first hour. So the rule here is the same one without the assumption: a save is
due as soon as the loss that is expected since the last one has reached its cost.

Shared with the agent: Python 3.8, standard library only; pure.
"""

from __future__ import annotations

import math
from typing import Iterator, Tuple

# (until this age in seconds, preemptions per machine and hour). From 1,442 preemptible machines of a cloud in 2019
# (github.com/kadupitiya/goog-preemption-data, Apache-2.0; Kadupitiya, Jadhao and Sharma, arXiv 1911.05160), as
# tools/hazard_curve.py prints them: preemptions divided by the hours that the machines were seen at that age. Half of
# the lives end by their owner's stop, and count as seen until then; the old limit of 24 h is left out. Others' machines
# may be preempted at another rate, so each run's own count weighs in (`factor_of`).
CURVE = ((900.0, 0.31), (1800.0, 0.13), (3600.0, 0.11), (10_800.0, 0.052), (21_600.0, 0.020), (math.inf, 0.0092))
SOONEST_S, LATEST_S = 60.0, 7200.0  # bounds of an interval, whatever is measured
LEAST_COST_S, USUAL_COST_S = 1.0, 10.0  # of a save; the second one until one was measured
PRIOR = 2.0  # preemptions that a run's own count is mixed with, as many as the curve expects


def interval_s(age_s: float, cost_s: float, factor: float) -> float:
    """How long after a save at this age of the machine the next one is due. `cost_s`: by how long a save holds up the
    training; `factor`: how much likelier a preemption is here than by CURVE, 0 = there are none."""
    left, begin_s = max(LEAST_COST_S, cost_s), 0.0
    for end_s, hazard_per_h in _pieces(age_s):
        rate = factor * hazard_per_h / 3600.0
        loss_s = rate * (end_s * end_s - begin_s * begin_s) / 2.0 if rate > 0 else 0.0
        if rate > 0 and loss_s >= left:
            return min(LATEST_S, max(SOONEST_S, math.sqrt(begin_s * begin_s + 2.0 * left / rate)))
        left, begin_s = left - loss_s, end_s
    return LATEST_S


def _pieces(age_s: float) -> Iterator[Tuple[float, float]]:
    """(seconds from this age until the next change, hazard until then)."""
    for until_s, hazard_per_h in CURVE:
        if until_s > age_s:
            yield until_s - age_s, hazard_per_h


def expected(age_s: float) -> float:
    """How many preemptions a machine that reaches this age meets on the way, by CURVE."""
    total, begin_s = 0.0, 0.0
    for until_s, hazard_per_h in CURVE:
        total += hazard_per_h * max(0.0, min(age_s, until_s) - begin_s) / 3600.0
        begin_s = until_s
    return total


def factor_of(preemptions: int, machines: int, hours: float) -> float:
    """How much likelier a preemption is than by CURVE, by what happened to so many machines in so many hours in all."""
    by_curve = machines * expected(3600.0 * hours / machines) if machines else 0.0
    return (PRIOR + preemptions) / (PRIOR + by_curve)
