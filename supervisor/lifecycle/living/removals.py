"""Checkpoints that the agent has removed by the run's own rule are told, each one once.

A beat says how many its agent has removed so far, and names the last few. The attempt's row remembers how many were
told: a late, repeated or shuffled beat tells nothing again, and neither does a supervisor that was started anew. What
a dead agent removed after its last beat is told by nobody; what it left behind is removed and told by the next one.

A training that saves twice a minute for a month must not fill the history: what is removed within ten minutes is one
event, unless there is more of it than a beat can name. The end of the attempt tells the rest at once.
"""

from __future__ import annotations

from dataclasses import replace

from supervisor.contract.heartbeat import FINISHED, FINISHING, MAX_PRUNED, Pruned
from supervisor.domain.attempt import Attempt
from supervisor.domain.events import Event, EventKind
from supervisor.domain.observation import Observation
from supervisor.domain.run import Run
from supervisor.lifecycle.decision import tell
from supervisor.lifecycle.living.liveness import beat_of
from supervisor.wording.figures import count_text, plural

PAUSE_S = 600.0


def heed_removals(run: Run, obs: Observation, now: float) -> tuple[Run, tuple[Event, ...]]:
    """The run after what a beat of its newest attempt, over or not, says of removed checkpoints, and what to tell."""
    attempt = run.attempt
    beat = beat_of(obs.beat, attempt.launch_id) if attempt is not None else None
    pruned = beat.value.pruned if beat is not None else None
    news = pruned.count - attempt.pruned if attempt is not None and pruned is not None else 0
    if attempt is None or beat is None or pruned is None or news <= 0:
        return run, ()
    over = attempt.ended_at is not None or beat.value.phase in (FINISHING, FINISHED)
    if not over and news < MAX_PRUNED and _told_lately(attempt, now):
        return run, ()
    after = replace(run, attempt=replace(attempt, pruned=pruned.count, pruned_at=now))
    return after, (_event(pruned, news),)


def _told_lately(attempt: Attempt, now: float) -> bool:
    """False too where that was in the future: the clock was set back since."""
    return attempt.pruned_at is not None and 0 <= now - attempt.pruned_at < PAUSE_S


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
