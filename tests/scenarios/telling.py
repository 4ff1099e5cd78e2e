"""Watched in every story: what happened once is announced once, in one word."""

from __future__ import annotations

from collections import defaultdict

from supervisor.domain.causes import Cause
from supervisor.domain.events import announced
from tests.scenarios.stage import Stage

ENDS = {"preempted", "stalled", "attempt_ended"}
FINALS = {"giving_up", "failed", "budget_100", "results_unverified", "completed", "partial", "stopped"}
# Limits that pass at the very look that sees an attempt end are another thing to tell.
OTHER_THINGS = {Cause.DEADLINE, Cause.BUDGET, Cause.MAX_RUNTIME}


def told_twice(stage: Stage) -> list[str]:
    """Runs of which one look announces the end of an attempt and, for the same reason, the end of the run; or an end of
    the run more than once in a generation."""
    looks: dict[tuple[str, float], set[str]] = defaultdict(set)
    finals: dict[tuple[str, int], int] = defaultdict(int)
    for one in stage.rows.events(None, 0, 100_000):
        word = announced(one.event)
        if not one.run_id or word is None:
            continue
        if word in FINALS:
            finals[one.run_id, one.generation] += 1
        if word in ENDS or (word in FINALS and one.event.data.get("cause") not in OTHER_THINGS):
            looks[one.run_id, one.at].add(word)
    found = [f"{run_id} told its end twice: {words}" for (run_id, _), words in looks.items() if len(words) > 1]
    return [*found, *(f"{key} ended {count} times" for key, count in finals.items() if count > 1)]
