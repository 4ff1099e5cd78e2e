"""Checkpoints that the agent has removed by the run's own rule are told, each one once.

A beat says how many its agent has removed so far, and names the last few. The attempt's row remembers how many were
told: a late, repeated or shuffled beat tells nothing again, and neither does a supervisor that was started anew. What
a dead agent removed after its last beat is told by nobody; what it left behind is removed and told by the next one.
"""

from __future__ import annotations

from dataclasses import replace

from supervisor.domain.events import Event, EventKind
from supervisor.domain.heartbeat import Pruned
from supervisor.domain.observation import Observation
from supervisor.domain.run import Run
from supervisor.lifecycle.decision import tell
from supervisor.lifecycle.figures import count_text, plural
from supervisor.lifecycle.liveness import beat_of


def heed_removals(run: Run, obs: Observation) -> tuple[Run, tuple[Event, ...]]:
    """The run after what a beat of its newest attempt, over or not, says of removed checkpoints, and what to tell."""
    attempt = run.attempt
    beat = beat_of(obs.beat, attempt.launch_id) if attempt is not None else None
    pruned = beat.value.pruned if beat is not None else None
    if attempt is None or pruned is None or pruned.count <= attempt.pruned:
        return run, ()
    after = replace(run, attempt=replace(attempt, pruned=pruned.count))
    return after, (_event(pruned, pruned.count - attempt.pruned),)


def _event(pruned: Pruned, news: int) -> Event:
    named = pruned.last[-news:]
    by_reason: dict[str, list[int]] = {}
    for step, why in named:
        by_reason.setdefault(why, []).append(step)
    told = [f"{_steps(steps)} removed: {why}" for why, steps in by_reason.items()]
    if news > len(named):
        told.append(f"{plural(news - len(named), 'earlier one')} removed")
    text = "; ".join(told)
    steps = [step for step, _ in named]
    return tell(EventKind.CHECKPOINTS_REMOVED, text[0].upper() + text[1:] + ".", steps=steps, count=news)


def _steps(steps: list[int]) -> str:
    words = [count_text(step) for step in steps]
    if len(words) == 1:
        return f"checkpoint {words[0]}"
    return f"checkpoints {', '.join(words[:-1])} and {words[-1]}"
