"""Checkpoints of a run: which one counts, which were rejected, and which were removed.

The baton may name a checkpoint that no beat has reported: an agent may die between the pointer's move and its beat. So
a decision that has the baton believes its newest pointer. Without this a run would call a checkpoint lost that it
will resume from, and count an attempt that saved one as an attempt without progress.

A checkpoint that does not verify is rejected by the agent, which takes the newest older one that does. The run stops
counting on it too; otherwise its next checkpoint would not count as newer.

A beat says how many checkpoints its agent has removed so far, and names the last few. The attempt's row remembers how
many were recorded, so that a late or repeated beat, or a restarted supervisor, records none of them twice. Removals
within ten minutes are one event, unless a beat cannot name them all: a training that saves twice a minute for a month
must not fill the history. The end of the attempt records the rest at once.
"""

from __future__ import annotations

from dataclasses import replace

from supervisor.contract.heartbeat import FINISHED, FINISHING, MAX_PRUNED, Beat, Pruned
from supervisor.domain.attempt import Attempt
from supervisor.domain.events import Event, EventKind
from supervisor.domain.observation import Observation, Seen
from supervisor.domain.run import Run
from supervisor.lifecycle.decision import new_event
from supervisor.lifecycle.living.beats import beat_of
from supervisor.wording.figures import count_text, plural

REMOVALS_PAUSE_S = 600.0


def with_pointer(run: Run, obs: Observation, now: float) -> Run:
    """The run with the newest checkpoint that the baton names; the same object when that is not news."""
    baton = obs.baton.value if isinstance(obs.baton, Seen) else None
    if baton is None or baton.checkpoint is None:
        return run
    if run.rerun and baton.generation != run.generation:
        return run  # it starts over: that checkpoint belongs to an earlier generation
    step, attempt = baton.checkpoint.step, run.attempt
    if attempt is not None and baton.holder is not None and baton.holder.launch_id == attempt.launch_id:
        run = _with_step_kept(run, attempt, step, now)
    if not _is_newer(step, run.files.checkpoint_step) and run.files.checkpoint_bytes is not None:
        return run
    size = sum(entry.size for entry in baton.checkpoint.files)
    newest = step if run.files.checkpoint_step is None else max(step, run.files.checkpoint_step)
    return replace(run, files=replace(run.files, checkpoint_step=newest, checkpoint_bytes=size))


def _with_step_kept(run: Run, attempt: Attempt, step: int, now: float) -> Run:
    """The run after `attempt`, its own, saved the checkpoint of this step."""
    pulse = run.pulse
    if attempt.ended_at is not None and _is_newer(step, attempt.step_kept):
        return replace(run, attempt=replace(attempt, step_kept=step, step_last=reached(attempt.step_last, step)))
    if attempt.ended_at is not None or pulse is None or pulse.launch_id != attempt.launch_id:
        return run
    if not _is_newer(step, pulse.checkpoint_step):
        return run
    return replace(run, pulse=replace(pulse, checkpoint_step=step, checkpoint_at=now))


def _is_newer(step: int, before: int | None) -> bool:
    return before is None or before < step


def reached(reported: int | None, saved: int | None) -> int | None:
    """The last step of an attempt: a checkpoint may be ahead of the last beat. None = no step was ever reported."""
    return reported if reported is None or saved is None else max(reported, saved)


def with_rejection(run: Run, beat: Beat) -> tuple[Run, tuple[Event, ...]]:
    """(the run after what this beat of its live attempt says of its restore, the events). The attempt already has the
    times of this beat."""
    attempt, rejected = run.live_attempt, beat.rejected_checkpoint
    if attempt is None or rejected is None:
        return run, ()
    if attempt.training_at is not None:
        newest = _without_rejected(run.files.checkpoint_step, rejected, attempt.step_from)
        run = replace(
            run,
            files=replace(run.files, checkpoint_step=newest),
            no_progress_base=_without_rejected(run.no_progress_base, rejected, attempt.step_from),
        )
    if attempt.step_rejected == rejected:
        return run, ()
    why = f" ({beat.message})" if beat.message else ""
    text = (
        f"Attempt {attempt.number} did not restore checkpoint {rejected:,}, because it does not verify{why}. "
        "It tries the checkpoints before it, newest first."
    )
    after = replace(run, attempt=replace(attempt, step_rejected=rejected))
    return after, (new_event(EventKind.CHECKPOINT_REJECTED, text, step=rejected),)


def _without_rejected(step: int | None, rejected: int, restored: int | None) -> int | None:
    """`step`, unless it is the rejected one or a later one: then the step that was restored."""
    return restored if step is not None and step >= rejected else step


def with_fresh_start(run: Run, before: Attempt, beat: Beat) -> tuple[Run, tuple[Event, ...]]:
    """(the run, the events) when its attempt begins to train without a checkpoint although the run has some: none of
    them counts any more. `before`: the attempt until this beat. The event explains a step 1 before anybody sees it."""
    attempt = run.live_attempt
    if attempt is None or before.training_at is not None or attempt.training_at is None:
        return run, ()
    lost = run.files.checkpoint_step if run.files.checkpoint_step is not None else before.step_rejected
    if attempt.step_from is not None or lost is None or beat.left is not None:
        return run, ()
    text = f"Attempt {attempt.number} begins from nothing: no checkpoint up to step {lost:,} could be restored."
    files = replace(run.files, checkpoint_step=beat.checkpoint_step)
    after = replace(run, files=files, no_progress_base=None)
    return after, (new_event(EventKind.CHECKPOINT_REJECTED, text, step=lost, from_nothing=True),)


def with_removals(run: Run, obs: Observation, now: float) -> tuple[Run, tuple[Event, ...]]:
    """(the run, the events) after what a beat of its newest attempt, ended or not, says of removed checkpoints."""
    attempt = run.attempt
    beat = beat_of(obs.beat, attempt.launch_id) if attempt is not None else None
    pruned = beat.value.pruned if beat is not None else None
    if attempt is None or beat is None or pruned is None:
        return run, ()
    count = pruned.count - attempt.pruned
    over = attempt.ended_at is not None or beat.value.phase in (FINISHING, FINISHED)
    if count <= 0 or (not over and count < MAX_PRUNED and _recorded_lately(attempt, now)):
        return run, ()
    after = replace(run, attempt=replace(attempt, pruned=pruned.count, pruned_at=now))
    return after, (_removals_event(pruned, count),)


def _recorded_lately(attempt: Attempt, now: float) -> bool:
    """False too where that lies in the future: the clock was set back since."""
    return attempt.pruned_at is not None and 0 <= now - attempt.pruned_at < REMOVALS_PAUSE_S


def _removals_event(pruned: Pruned, count: int) -> Event:
    named = pruned.last[-count:]
    by_reason: dict[str, list[int]] = {}
    for step, why in named:
        by_reason.setdefault(why, []).append(step)
    clauses = [f"{_steps_text(steps)} removed: {why}" for why, steps in by_reason.items()]
    if count > len(named):
        clauses.append(f"{plural(count - len(named), 'earlier one')} removed")
    text = "; ".join(clauses)
    steps = [step for step, _ in named]
    return new_event(EventKind.CHECKPOINTS_REMOVED, text[0].upper() + text[1:] + ".", steps=steps, count=count)


def _steps_text(steps: list[int]) -> str:
    words = [count_text(step) for step in steps]
    if len(words) == 1:
        return f"checkpoint {words[0]}"
    return f"checkpoints {', '.join(words[:-1])} and {words[-1]}"
