"""The short way of `decide`: a run trains, and since its last decision only step, sequence and figures have moved.

That is nearly every run in nearly every tick. Where each of five things is as before (the stop, the machine, the phase,
what the baton and the agent say of checkpoints, the limits), no rule but three can have a result: the beat, a warning,
and the time of the next limit. The short way applies these, and leaves everything else to the rules, so also a beat
with new signs of an end. It is not a rule of its own: a property compares its decisions with those of the rules.
"""

from __future__ import annotations

from supervisor.contract.heartbeat import TRAINING, Beat
from supervisor.domain.attempt import Attempt, Pulse
from supervisor.domain.observation import Observation, Seen, World
from supervisor.domain.policies import Limits
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.lifecycle.decision import Decision
from supervisor.lifecycle.ending.machines import STOPPING_STATES
from supervisor.lifecycle.events.warnings import with_warnings
from supervisor.lifecycle.living.beats import restart, with_beat
from supervisor.lifecycle.living.drilling import is_drilling, is_due
from supervisor.lifecycle.living.limits import limit_passed, next_limit_at
from supervisor.lifecycle.living.moving import may_move
from supervisor.lifecycle.offers.choosing import lacks
from supervisor.lifecycle.phases.changing import may_change


def trains_on(run: Run, obs: Observation, world: World, now: float) -> Decision | None:
    """The decision of the rules; None: only they can decide. `run` has no times of a wrong clock any more."""
    attempt, seen = run.attempt, obs.beat
    if run.status != Status.RUNNING or attempt is None or attempt.ended_at is not None or not isinstance(seen, Seen):
        return None
    beat: Beat = seen.value
    if not (
        beat.launch_id == attempt.launch_id
        and _stop_is_as_before(run, obs, beat)
        and _machine_is_as_before(run, obs, world)
        and _phase_is_as_before(attempt, run.pulse, beat)
        and _checkpoints_are_as_before(obs, beat)
        and run.key not in world.yields
        and run.yielding.launch_id != attempt.launch_id
        and not may_move(run, beat)
        and not is_drilling(run, beat)
    ):
        return None
    if beat.signs != (run.pulse.signs if run.pulse is not None else ""):
        return None
    after = with_beat(run, obs, world, now)
    if after.pulse is None or not _is_in_time(after, after.pulse, world, now) or is_due(after, now):
        return None
    if may_change(after, now):
        return None
    limits, before = run.policy.limits, run.pulse
    check_after = next_limit_at(after, now) if _has_limits(limits) else None
    decision = Decision(after, check_after=check_after)
    same_figures = before is not None and before.telemetry == after.pulse.telemetry
    return decision if same_figures and limits.budget_usd is None else with_warnings(run, decision, now)


def _stop_is_as_before(run: Run, obs: Observation, beat: Beat) -> bool:
    """Nobody stops the run, and its agent neither leaves nor expects its machine to leave."""
    return (
        run.stop is None
        and not isinstance(obs.stop, Seen)
        and beat.stop_generation is None
        and beat.left is None
        and beat.notice_s is None
        and beat.exit is None
    )


def _machine_is_as_before(run: Run, obs: Observation, world: World) -> bool:
    """It is listed, as it was, it is not stopping, no earlier one retires, and the settings have its provider."""
    machine = obs.machine
    return (
        isinstance(machine, Seen)
        and machine.value.state not in STOPPING_STATES
        and not run.retiring
        and not run.hold
        and run.away is None
        and not lacks(run, world)
    )


def _phase_is_as_before(attempt: Attempt, pulse: Pulse | None, beat: Beat) -> bool:
    """It trains, and has trained before, in the same start of the agent."""
    return beat.phase == TRAINING and attempt.training_at is not None and not restart(pulse, beat)


def _checkpoints_are_as_before(obs: Observation, beat: Beat) -> bool:
    """Neither the baton nor the beat says anything about checkpoints that were rejected, removed or moved."""
    return not isinstance(obs.baton, Seen) and beat.pruned is None and beat.rejected_checkpoint is None


def _is_in_time(run: Run, pulse: Pulse, world: World, now: float) -> bool:
    """Neither silent nor stalled, no hang is reported, and within the limits of the run. A pulse of the future was made
    by a wrong clock."""
    stall = run.policy.stall
    return (
        0.0 <= now - pulse.beat_at <= stall.silence_s
        and pulse.phase == TRAINING
        and pulse.first_progress_at is not None
        and pulse.stall_polls < stall.polls
        and not pulse.hang_looks
        and (not _has_limits(run.policy.limits) or limit_passed(run, now, world) is None)
    )


def _has_limits(limits: Limits) -> bool:
    return limits.deadline is not None or limits.max_runtime_s is not None or limits.budget_usd is not None
