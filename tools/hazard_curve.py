"""Preemptions of spot machines by their age, as constants for supervisor/contract/saving.py:

    python -m tools.hazard_curve data.json

`data.json` is the data set of github.com/kadupitiya/goog-preemption-data: one object for each machine, with its life in
seconds and the operation that ended it. A machine that its owner stopped was seen until then and not preempted. Who
leaves these machines out, or counts them as preempted, finds that 39 % are gone within an hour, and not 15 %.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

EDGES_S = (900.0, 1800.0, 3600.0, 10_800.0, 21_600.0, math.inf)
LIMIT_S = 86_000.0  # the platform ended every machine after 24 h: that is no preemption of a machine without the limit
PREEMPTED = "compute.instances.preempted"

Life = tuple[float, bool]  # (seconds, it was preempted then)


def lives(machines: Iterable[Mapping[str, Any]]) -> list[Life]:
    return [(min(row["time_in_sec"], LIMIT_S), PREEMPTED in row and row["time_in_sec"] < LIMIT_S) for row in machines]


def hazards(seen: Sequence[Life], edges_s: Sequence[float] = EDGES_S) -> list[tuple[float, float]]:
    """(until this age in seconds, preemptions per machine and hour). Ages at which no machine was seen are left out."""
    rows, begin_s = [], 0.0
    for end_s in edges_s:
        hours = sum(max(0.0, min(life_s, end_s) - begin_s) for life_s, _ in seen) / 3600.0
        preempted = sum(1 for life_s, is_preempted in seen if is_preempted and begin_s <= life_s < end_s)
        if hours > 0:
            rows.append((end_s, preempted / hours))
        begin_s = end_s
    return rows


def gone_within(seen: Sequence[Life], age_s: float) -> float:
    """The share that is preempted by this age (Kaplan and Meier)."""
    left, at_risk = 1.0, len(seen)
    for life_s, is_preempted in sorted(seen, key=lambda life: (life[0], not life[1])):
        if life_s > age_s:
            break
        left *= 1.0 - 1.0 / at_risk if is_preempted else 1.0
        at_risk -= 1
    return 1.0 - left


def main() -> None:
    seen = lives(json.loads(Path(sys.argv[1]).read_text()).values())
    for until_s, hazard_per_h in hazards(seen):
        print(f"until {until_s:g} s: {hazard_per_h:.2g} per hour")
    print(f"{len(seen)} machines; preempted within an hour: {gone_within(seen, 3600.0):.1%}")


if __name__ == "__main__":
    main()
