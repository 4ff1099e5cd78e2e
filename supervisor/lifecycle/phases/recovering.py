"""Between two attempts: late words of the ended one are heard, then the next zone is chosen (placing)."""

from __future__ import annotations

from dataclasses import replace

from supervisor.domain.events import Event, EventKind
from supervisor.domain.observation import BATON, NOT_READ, Observation
from supervisor.domain.run import Run
from supervisor.domain.world import World
from supervisor.lifecycle.decision import Decision, tell
from supervisor.lifecycle.living.liveness import beat_of
from supervisor.lifecycle.living.overriding import heed_marker
from supervisor.lifecycle.phases.placing import place
from supervisor.lifecycle.phases.stopping import begin_stopping


def recover(run: Run, obs: Observation, world: World, now: float) -> Decision:
    """A late beat may bring the last checkpoint, or the news that the work is done; it never revives the attempt."""
    heeded = heed_marker(run, obs, now)
    if heeded.stop is not None and run.retiring:
        return begin_stopping(heeded, now)
    run, events, finished = _late_beat(heeded, obs)
    if finished and obs.baton is NOT_READ:
        return Decision(run, events, wants=frozenset({BATON}))
    decision = place(run, obs, world, now)
    return replace(decision, events=(*events, *decision.events)) if events else decision


def _late_beat(run: Run, obs: Observation) -> tuple[Run, tuple[Event, ...], bool]:
    """(run with what the beat taught, events, whether the command says it finished)."""
    attempt = run.attempt
    beat = beat_of(obs.beat, attempt.launch_id) if attempt is not None else None
    if attempt is None or beat is None:
        return run, (), False
    value = beat.value
    finished = value.exit is not None and value.exit.work_done
    newer = value.checkpoint_step is not None and value.checkpoint_step > (
        attempt.step_kept if attempt.step_kept is not None else -1
    )
    last = (
        value.step if value.step is not None and value.step > (attempt.step_last or 0) else attempt.step_last
    )
    if not newer and last == attempt.step_last:
        return run, (), finished
    kept = value.checkpoint_step if newer else attempt.step_kept
    steps = [step for step in (run.checkpoint_step, kept) if step is not None]
    after = replace(
        run,
        attempt=replace(attempt, step_kept=kept, step_last=last),
        checkpoint_step=max(steps, default=None),
    )
    if not newer:
        return after, (), finished
    text = f"A late beat of attempt {attempt.number}: checkpoint {kept:,} is safe."
    return after, (tell(EventKind.LATE_BEAT, text, checkpoint_step=kept),), finished
