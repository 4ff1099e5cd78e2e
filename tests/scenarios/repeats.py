"""Checked in every story: one fact is announced once, as one kind of event."""

from __future__ import annotations

from collections import defaultdict

from supervisor.domain.causes import Cause
from supervisor.domain.events import announced
from tests.scenarios.stage import Stage

ENDS = {"preempted", "stalled", "attempt_ended"}
FINALS = {"giving_up", "failed", "budget_100", "results_unverified", "completed", "partial", "stopped"}
# A limit that passes in the same tick as the end of an attempt is another fact.
OTHER_FACTS = {Cause.DEADLINE, Cause.BUDGET, Cause.MAX_RUNTIME}


def announced_twice(stage: Stage) -> list[str]:
    """Runs for which one tick announces the end of an attempt and, for the same reason, the end of the run; and runs
    whose end is announced more than once in a generation."""
    ticks: dict[tuple[str, float], set[str]] = defaultdict(set)
    finals: dict[tuple[str, int], int] = defaultdict(int)
    for stored in stage.rows.events(None, 0, 100_000):
        kind = announced(stored.event)
        if not stored.run_id or kind is None:
            continue
        if kind in FINALS:
            finals[stored.run_id, stored.generation] += 1
        if kind in ENDS or (kind in FINALS and stored.event.data.get("cause") not in OTHER_FACTS):
            ticks[stored.run_id, stored.at].add(kind)
    twice = [f"{run_id} announced its end twice: {kinds}" for (run_id, _), kinds in ticks.items() if len(kinds) > 1]
    return [*twice, *(f"{key} ended {count} times" for key, count in finals.items() if count > 1)]
