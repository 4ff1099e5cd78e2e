"""The baton knows of checkpoints that no beat has told of: an agent may die between the pointer's move and its beat.

Whenever a decision has the baton in hand (when an attempt ends, at a launch, while stopping and finishing), the newest
pointer is believed. Without this a run would call a checkpoint lost that it will resume from, and count an attempt that
made one as an attempt without progress.
"""

from __future__ import annotations

from dataclasses import replace

from supervisor.contract.baton import Baton
from supervisor.domain.attempt import Attempt
from supervisor.domain.observation import Observation, Seen
from supervisor.domain.run import Run


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
                replace(
                    run, attempt=replace(attempt, step_kept=step, step_last=reached(attempt.step_last, step))
                )
                if _less(attempt.step_kept, step)
                else run
            )
        elif (
            pulse is not None and pulse.launch_id == attempt.launch_id and _less(pulse.checkpoint_step, step)
        ):
            run = replace(run, pulse=replace(pulse, checkpoint_step=step))
    if not _less(run.checkpoint_step, step) and run.checkpoint_bytes is not None:
        return run
    size = sum(entry.size for entry in baton.checkpoint.files)
    newest = step if run.checkpoint_step is None else max(step, run.checkpoint_step)
    return replace(run, checkpoint_step=newest, checkpoint_bytes=size)


def reached(told: int | None, saved: int | None) -> int | None:
    """The last step of an attempt: a checkpoint may be ahead of the last beat. None = no step was ever told."""
    return told if told is None or saved is None else max(told, saved)


def _held_by(baton: Baton, attempt: Attempt) -> bool:
    return baton.holder is not None and baton.holder.launch_id == attempt.launch_id


def _less(known: int | None, step: int) -> bool:
    return known is None or known < step
