"""Checkpoints that the agent has removed by the run's own rule are told, each one once.

A beat says how many its agent has removed so far, and names the last few. The attempt's row remembers how many were
told: a late, repeated or shuffled beat tells nothing again, and neither does a supervisor that was started anew. What
a dead agent removed after its last beat is told by nobody; what it left behind is removed and told by the next one.

A training that saves twice a minute for a month must not fill the history: what is removed within ten minutes is one
event, unless there is more of it than a beat can name. The end of the attempt tells the rest at once.

A checkpoint that the baton names and that does not verify is not used, and somebody hears of it, once.

The agent drops it from the baton and takes the newest older one that verifies. What the supervisor believed of it goes
too, else the run would boast of a checkpoint that nobody has, and its next one would not count as newer.

The baton knows of checkpoints that no beat has told of: an agent may die between the pointer's move and its beat.

Whenever a decision has the baton in hand (when an attempt ends, at a launch, while stopping and finishing), the newest
pointer is believed. Without this a run would call a checkpoint lost that it will resume from, and count an attempt that
made one as an attempt without progress.
"""

from __future__ import annotations

from dataclasses import replace

from supervisor.contract.baton import Baton
from supervisor.contract.heartbeat import FINISHED, FINISHING, MAX_PRUNED, Beat, Pruned
from supervisor.domain.attempt import Attempt
from supervisor.domain.events import Event, EventKind
from supervisor.domain.observation import Observation, Seen
from supervisor.domain.run import Run
from supervisor.lifecycle.decision import tell
from supervisor.lifecycle.living.liveness import beat_of
from supervisor.wording.figures import count_text, plural


def with_pointer(run: Run, obs: Observation) -> Run:
    """The run with the newest checkpoint that the baton names; the same object when that is not news."""
    baton = obs.baton.value if isinstance(obs.baton, Seen) else None
    if baton is None or baton.checkpoint is None:
        return run
    if run.rerun and baton.generation != run.generation:
        return run  # it starts over: what lies there is not its own
    step, attempt, pulse = baton.checkpoint.step, run.attempt, run.pulse
    if attempt is not None and _held_by(baton, attempt):
        if attempt.ended_at is not None:
            run = (
                replace(run, attempt=replace(attempt, step_kept=step, step_last=reached(attempt.step_last, step)))
                if _less(attempt.step_kept, step)
                else run
            )
        elif pulse is not None and pulse.launch_id == attempt.launch_id and _less(pulse.checkpoint_step, step):
            run = replace(run, pulse=replace(pulse, checkpoint_step=step))
    if not _less(run.files.checkpoint_step, step) and run.files.checkpoint_bytes is not None:
        return run
    size = sum(entry.size for entry in baton.checkpoint.files)
    newest = step if run.files.checkpoint_step is None else max(step, run.files.checkpoint_step)
    return replace(run, files=replace(run.files, checkpoint_step=newest, checkpoint_bytes=size))


def reached(reported: int | None, saved: int | None) -> int | None:
    """The last step of an attempt: a checkpoint may be ahead of the last beat. None = no step was ever told."""
    return reported if reported is None or saved is None else max(reported, saved)


def _held_by(baton: Baton, attempt: Attempt) -> bool:
    return baton.holder is not None and baton.holder.launch_id == attempt.launch_id


def _less(step_before: int | None, step: int) -> bool:
    return step_before is None or step_before < step


def heed_rejection(run: Run, beat: Beat) -> tuple[Run, tuple[Event, ...]]:
    """The run after what this beat of its live attempt says of its restore, and what there is to tell. The attempt has
    taken the beat's times already."""
    attempt, rejected = run.live_attempt, beat.rejected_checkpoint
    if attempt is None or rejected is None:
        return run, ()
    if attempt.training_at is not None:
        newest = _at_most(run.files.checkpoint_step, rejected, attempt.step_from)
        run = replace(
            run,
            files=replace(run.files, checkpoint_step=newest),
            no_progress_base=_at_most(run.no_progress_base, rejected, attempt.step_from),
        )
    if attempt.step_rejected == rejected:
        return run, ()
    why = f" ({beat.message})" if beat.message else ""
    text = (
        f"Attempt {attempt.number} did not take checkpoint {rejected:,}, because it does not verify{why}. "
        "The ones before it are tried, newest first."
    )
    after = replace(run, attempt=replace(attempt, step_rejected=rejected))
    return after, (tell(EventKind.CHECKPOINT_REJECTED, text, step=rejected),)


def begun_from_nothing(run: Run, before: Attempt, beat: Beat) -> tuple[Run, tuple[Event, ...]]:
    """At the first word of its training (`before`: the attempt until this beat): it took none of the run's checkpoints,
    so none of them counts any more. Told before anybody is surprised by a step 1."""
    attempt = run.live_attempt
    if attempt is None or before.training_at is not None or attempt.training_at is None:
        return run, ()
    lost = run.files.checkpoint_step if run.files.checkpoint_step is not None else before.step_rejected
    if attempt.step_from is not None or lost is None or beat.left is not None:
        return run, ()
    text = f"Attempt {attempt.number} begins from nothing: no checkpoint up to step {lost:,} could be restored."
    files = replace(run.files, checkpoint_step=beat.checkpoint_step)
    after = replace(run, files=files, no_progress_base=None)
    return after, (tell(EventKind.CHECKPOINT_REJECTED, text, step=lost, from_nothing=True),)


def _at_most(step: int | None, rejected: int, taken: int | None) -> int | None:
    """`step`, unless it is the rejected one or a later one: then the one that was taken."""
    return taken if step is not None and step >= rejected else step


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
    clauses = [f"{_steps(steps)} removed: {why}" for why, steps in by_reason.items()]
    if news > len(named):
        clauses.append(f"{plural(news - len(named), 'earlier one')} removed")
    text = "; ".join(clauses)
    steps = [step for step, _ in named]
    return tell(EventKind.CHECKPOINTS_REMOVED, text[0].upper() + text[1:] + ".", steps=steps, count=news)


def _steps(steps: list[int]) -> str:
    words = [count_text(step) for step in steps]
    if len(words) == 1:
        return f"checkpoint {words[0]}"
    return f"checkpoints {', '.join(words[:-1])} and {words[-1]}"
