"""A run whose training is on its way.

Judged in this order: stop, the end of the command, the machine, silence, progress, limits.
"""

from __future__ import annotations

from dataclasses import replace

from supervisor.contract import heartbeat
from supervisor.contract.heartbeat import Beat
from supervisor.domain.causes import Cause
from supervisor.domain.events import Event, EventKind
from supervisor.domain.machines import MachineState
from supervisor.domain.observation import BEATS, Absent, Observation, Seen, World
from supervisor.domain.run import Run, with_pulse
from supervisor.domain.status import Status
from supervisor.lifecycle.decision import Decision, moved, tell
from supervisor.lifecycle.ending import machines
from supervisor.lifecycle.ending.ending import End, end_attempt
from supervisor.lifecycle.ending.exits import gpu_fault, word_of
from supervisor.lifecycle.living.checkpoints import begun_from_nothing, heed_rejection
from supervisor.lifecycle.living.limits import next_limit_at
from supervisor.lifecycle.living.liveness import (
    beat_of,
    follow,
    identified,
    reckoned,
    silent_s,
    stall_reason,
    with_times,
)
from supervisor.lifecycle.living.overriding import heed_marker, stopped_by
from supervisor.lifecycle.phases.stopping import begin_stopping, stop_for_limit


def run_on(run: Run, obs: Observation, world: World, now: float) -> Decision:
    attempt = run.live_attempt
    assert attempt is not None
    beat = beat_of(obs.beat, attempt.launch_id)
    run = _heed_stop(run, obs, beat, now)
    if run.stop is not None:
        return begin_stopping(run, now)
    before = run
    news: tuple[Event, ...] = ()
    if beat is not None:
        pulse = follow(run.pulse, beat, now, world.knobs.poll_interval_s)
        timed = identified(with_times(attempt, beat.value, now), obs)
        timed = reckoned(timed, run.pulse, pulse, run.policy.stall.boot_timeout_s)
        if pulse is not run.pulse or timed is not attempt:
            run = with_pulse(run, pulse, timed)
        run, from_nothing = begun_from_nothing(run, attempt, beat.value)
        run, news = heed_rejection(run, beat.value)
        news = (*news, *from_nothing)
    decision = _judge(before, run, beat, obs, world, now)
    return replace(decision, events=(*news, *decision.events)) if news else decision


def _judge(before: Run, run: Run, beat: Seen[Beat] | None, obs: Observation, world: World, now: float) -> Decision:
    telemetry_before = before.pulse.telemetry if before.pulse is not None else ""
    ended = (
        _command_ended(run, beat, obs, world=world, now=now, telemetry_before=telemetry_before)
        if beat is not None
        else None
    )
    if ended is not None:
        return ended
    lost = machines.lost(run, obs, world, now)
    if lost is not None:
        return _with_pulse(lost, run) if isinstance(lost, Decision) else end_attempt(run, lost, world, now)
    end = _silent(run, obs, world, now) or _stalled(run, beat, obs, world, now)
    if end is not None:
        return end_attempt(run, end, world, now)
    return stop_for_limit(run, world, now) or _goes_on(before, run, obs, now)


def _goes_on(before: Run, run: Run, obs: Observation, now: float) -> Decision:
    if run.hold and isinstance(obs.machine, Seen):
        run = replace(run, hold="")
    pulse_only = run is not before and before.attempt is run.attempt and before.hold == run.hold
    return Decision(run, check_after=next_limit_at(run, now), pulse_only=pulse_only)


def _with_pulse(decision: Decision, run: Run) -> Decision:
    return replace(decision, pulse_only=decision.run is run and not decision.events)


def _heed_stop(run: Run, obs: Observation, beat: Seen[Beat] | None, now: float) -> Run:
    run = heed_marker(run, obs, now)
    marker = beat.value.stop_generation if beat is not None else None
    return run if marker is None else stopped_by(run, marker, now)


def _command_ended(
    run: Run, beat: Seen[Beat], obs: Observation, *, world: World, now: float, telemetry_before: str
) -> Decision | None:
    """Exit 0, or a failure after the last step, is finishing; any other end has its cause; a notice seen inside the
    machine is authoritative. `telemetry_before`: the figures of the machine before this beat.
    """
    value = beat.value
    saving = value.exit is None and value.phase == heartbeat.FINISHING
    if saving or (value.exit is not None and value.exit.work_done):
        text = _finishing_text(value)
        event = tell(EventKind.FINISHING, text)
        return Decision(moved(run, Status.FINISHING, now), (event,), again=True)
    word = word_of(value, obs, world, telemetry_before)
    if word is None:
        return None
    return end_attempt(run, replace(word, stopped_at=machines.stopped_at(obs, now)), world, now)


def _finishing_text(beat: Beat) -> str:
    if beat.exit is not None and beat.exit.after_work:
        return "The command failed after its last step; its results are being saved."
    return "The command has done its work; its results are being saved."


def _silent(run: Run, obs: Observation, world: World, now: float) -> End | None:
    """The machine is up and its agent silent, while the store is fresh and no breaker is open."""
    attempt = run.live_attempt
    assert attempt is not None
    machine = machines.at_hand(obs, world)
    if (
        machine is None
        or machine.state not in (MachineState.UP, MachineState.STARTING)
        or BEATS not in world.fresh
        or BEATS in world.breakers_open
        or not isinstance(obs.beat, Seen | Absent)
    ):
        return None
    quiet_s = silent_s(run.pulse, attempt, world, now)
    if quiet_s <= run.policy.stall.silence_s:
        return None
    evidence = f"no beat for {quiet_s:.0f} s (limit {run.policy.stall.silence_s:.0f} s) while the machine is up"
    return End(Cause.AGENT_LOST, evidence, machines.readings(obs), inferred=BEATS)


def _stalled(run: Run, beat: Seen[Beat] | None, obs: Observation, world: World, now: float) -> End | None:
    """Needs a beat in hand: whoever is silent is judged by silence, not by steps."""
    if beat is None or run.pulse is None or machines.at_hand(obs, world) is None:
        return None
    reason = stall_reason(run, run.pulse, world, now)
    if reason is None:
        return None
    fault = gpu_fault(run.pulse.telemetry)
    if fault:
        return End(Cause.GPU_FAULT, f"{fault}; {reason}", machines.readings(obs))
    return End(Cause.STALLED, reason, machines.readings(obs))
