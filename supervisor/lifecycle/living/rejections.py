"""A checkpoint that the baton names and that does not verify is not used, and somebody hears of it, once.

The agent drops it from the baton and takes the newest older one that verifies. What the supervisor believed of it goes
too, else the run would boast of a checkpoint that nobody has, and its next one would not count as newer.
"""

from __future__ import annotations

from dataclasses import replace

from supervisor.contract.heartbeat import Beat
from supervisor.domain.attempt import Attempt
from supervisor.domain.events import Event, EventKind
from supervisor.domain.run import Run
from supervisor.lifecycle.decision import tell


def heed_rejection(run: Run, beat: Beat) -> tuple[Run, tuple[Event, ...]]:
    """The run after what this beat of its live attempt says of its restore, and what there is to tell. The attempt has
    taken the beat's times already."""
    attempt, rejected = run.live_attempt, beat.rejected_checkpoint
    if attempt is None or rejected is None:
        return run, ()
    if attempt.training_at is not None:
        run = replace(
            run,
            checkpoint_step=_at_most(run.checkpoint_step, rejected, attempt.step_from),
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
    lost = run.checkpoint_step if run.checkpoint_step is not None else before.step_rejected
    if attempt.step_from is not None or lost is None or beat.left is not None:
        return run, ()
    text = (
        f"Attempt {attempt.number} begins from nothing: no checkpoint up to step {lost:,} could be restored."
    )
    after = replace(run, checkpoint_step=beat.checkpoint_step, no_progress_base=None)
    return after, (tell(EventKind.CHECKPOINT_REJECTED, text, step=lost, from_nothing=True),)


def _at_most(known: int | None, rejected: int, taken: int | None) -> int | None:
    """`known`, unless it is the rejected one or a later one: then the one that was taken."""
    return taken if known is not None and known >= rejected else known
