"""Stop wins over every restart, but never over finished and verified work.

The agent is asked to save and leave; when it has left, or its grace has passed, the baton is closed, and only then is
the machine released. The run is terminal when the machine is known gone, never before.
"""

from __future__ import annotations

from dataclasses import replace

from supervisor.domain.actions import AskAgentToStop, CloseBaton, Release, VerifyResults, WriteStopMarker
from supervisor.domain.attempt import Try
from supervisor.domain.causes import Cause
from supervisor.domain.events import EventKind
from supervisor.domain.machines import MachineState
from supervisor.domain.observation import BATON, LOOKUP, NOT_READ, STOP, Absent, Observation, Seen, Unknown, World
from supervisor.domain.run import Run, StopRequest, unneeded
from supervisor.domain.status import Status
from supervisor.lifecycle.decision import Decision, moved, tell, unchanged
from supervisor.lifecycle.ending import machines
from supervisor.lifecycle.ending.ending import End, close_attempt, ended_event
from supervisor.lifecycle.living.limits import limit_passed
from supervisor.lifecycle.living.liveness import beat_of, heard, machines_since
from supervisor.lifecycle.living.overriding import done_elsewhere, done_of, is_torn
from supervisor.lifecycle.phases.beginning import begin_attempt, obtained

CREATE_SETTLED_S = 180.0  # a create call has been answered or has given up long before (deadline of a call: 60 s)


def begin_stopping(run: Run, now: float) -> Decision:
    assert run.stop is not None
    waits_for = "waiting for the final checkpoint"
    if run.live_attempt is None:
        waits_for = "the old machine is being released" if run.retiring else "a request is still open"
    text = f"Stop asked for by {run.stop.actor} ({run.stop.cause}); {waits_for}."
    told = run.stop.source == "api"  # that door wrote its event with the request
    events = () if told else (tell(EventKind.STOP_REQUESTED, text, actor=run.stop.actor),)
    return Decision(moved(unneeded(run), Status.STOPPING, now), events, again=True)


def stop_for_limit(run: Run, world: World, now: float) -> Decision | None:
    """A limit of the run ends it like a stop: the checkpoint is saved first; the run ends failed."""
    passed = limit_passed(run, now, world)
    if passed is None:
        return None
    cause, detail = passed
    return begin_stopping(replace(run, stop=StopRequest("supervisor", now, cause, "limit"), detail=detail), now)


def stop(run: Run, obs: Observation, world: World, now: float) -> Decision:
    if obs.baton is NOT_READ:
        return unchanged(run, wants=frozenset({BATON, STOP}))
    done = done_of(run, obs)
    if done is not None and run.cause == Cause.RESULTS_UNVERIFIED:
        seen = obs.verification
        if not isinstance(seen, Seen) or seen.value.launch_id != done.launch_id:
            return Decision(run, actions=(VerifyResults(done),))
        done = None if seen.value.problems else done
    if done is not None:
        return done_elsewhere(run, now)
    if run.live_attempt is not None:
        return _leave(run, obs, world, now)
    if run.open_try is not None:
        return _await_create(run, obs, world, now)
    if run.retiring:
        return unchanged(run)
    return _ended(run, now)


def _await_create(run: Run, obs: Observation, world: World, now: float) -> Decision:
    """A create call may still bring a machine: wait for its answer, then delete. A 404 now proves nothing."""
    try_ = run.open_try
    assert try_ is not None
    refused = isinstance(obs.create, Seen) and obs.create.value.launch_id == try_.launch_id
    if isinstance(obs.machine, Seen) and obs.machine.value.state != MachineState.ASKED:
        machine_id = obs.machine.value.machine_id
        return Decision(begin_attempt(run, try_, machine_id, now), (obtained(try_, machine_id),), again=True)
    if isinstance(obs.machine, Seen) and not refused:
        assert run.stop is not None
        return call_off(run, try_, obs, f"stop asked for by {run.stop.actor}")
    settled_at = machines_since(world, try_.placement, try_.requested_at, now) + CREATE_SETTLED_S
    if isinstance(obs.machine, Absent) and now >= settled_at and obs.lookup is NOT_READ:
        return unchanged(run, wants=frozenset({LOOKUP}))
    proven = isinstance(obs.machine, Absent) and now >= settled_at and isinstance(obs.lookup, Absent)
    if refused or proven:
        ended = replace(try_, ended_at=now, outcome=Cause.STOP_REQUESTED, detail="stopped before a machine came")
        return Decision(replace(run, try_=ended), again=True)
    return unchanged(run, check_after=settled_at)


def call_off(run: Run, try_: Try, obs: Observation, reason: str) -> Decision:
    """The platform still looks for room: it need not, and no agent is there to be asked."""
    assert isinstance(obs.machine, Seen)
    ref = replace(try_.ref, machine_id=obs.machine.value.machine_id or None)
    return Decision(run, actions=(Release(ref, try_.launch_id, reason, machines.readings(obs)),))


def _leave(run: Run, obs: Observation, world: World, now: float) -> Decision:
    run = heard(run, obs, world, now)
    attempt = run.live_attempt
    request = run.stop
    assert attempt is not None
    assert request is not None
    watched = machines_since(world, attempt.placement, run.status_since, now)
    grace_ends = watched + run.policy.stop_grace_s
    gone = _machine_over(obs)
    if not (gone or _agent_left(run, obs) or now >= grace_ends):
        actions = [AskAgentToStop(attempt.ref)]
        if isinstance(obs.stop, Absent):
            return Decision(run, actions=(*actions, WriteStopMarker(request.actor)), check_after=grace_ends)
        return Decision(run, actions=tuple(actions), check_after=grace_ends)
    if isinstance(obs.baton, Unknown) and not is_torn(obs.baton):
        return unchanged(run, check_after=grace_ends)
    if isinstance(obs.baton, Seen) and obs.baton.value.closed is None:
        return Decision(run, actions=(CloseBaton(str(request.cause)),))
    record = obs.machine.value.record if isinstance(obs.machine, Seen) else None
    evidence = f"stop asked for by {request.actor}" + (f"; meanwhile {record.cause}: {record.detail}" if record else "")
    end = End(request.cause, evidence, machines.readings(obs), machine_gone=isinstance(obs.lookup, Absent))
    after = close_attempt(run, end, now)
    return Decision(after, (ended_event(after, end, now, last=True),), again=True)


def _machine_over(obs: Observation) -> bool:
    if isinstance(obs.machine, Seen):
        return obs.machine.value.state == MachineState.ENDED
    return isinstance(obs.machine, Absent)


def _agent_left(run: Run, obs: Observation) -> bool:
    attempt = run.live_attempt
    assert attempt is not None
    beat = beat_of(obs.beat, attempt.launch_id)
    if beat is not None and (beat.value.left is not None or beat.value.exit is not None):
        return True
    holder = obs.baton.value.holder if isinstance(obs.baton, Seen) else None
    return holder is not None and holder.launch_id == attempt.launch_id and holder.left


def _ended(run: Run, now: float) -> Decision:
    assert run.stop is not None
    asked = run.stop.cause == Cause.STOP_REQUESTED
    status = Status.STOPPED if asked else Status.FAILED
    detail = f"by {run.stop.actor}" if asked else run.detail
    unverified = f" {run.detail}." if run.cause == Cause.RESULTS_UNVERIFIED else ""
    if asked and unverified:
        detail = f"{detail}; {run.detail}"
    after = moved(replace(run, cause=run.stop.cause, detail=detail, next_at=None), status, now)
    kind = EventKind.STOPPED if asked else EventKind.FAILED
    at = "none" if run.files.checkpoint_step is None else f"{run.files.checkpoint_step:,}"
    text = (
        f"{'Stopped by ' + run.stop.actor if asked else 'Ended: ' + run.stop.cause}. Checkpoint kept: {at}."
        + unverified
    )
    return Decision(after, (tell(kind, text, cause=run.stop.cause),), again=True)
