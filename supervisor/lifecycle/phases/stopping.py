"""A stop wins over every restart, but never over finished and verified work.

The agent gets the request to save and leave. When it has left, or its grace has passed, the baton is closed, and only
then is the machine released. The run is terminal when the machine is known to be gone, not before.
"""

from __future__ import annotations

from dataclasses import replace

from supervisor.domain.actions import Action, AskAgentToStop, CloseBaton, Release, VerifyResults, WriteStopMarker
from supervisor.domain.attempt import CREATE_SETTLED_S, Try
from supervisor.domain.causes import Cause
from supervisor.domain.events import EventKind
from supervisor.domain.machines import MachineState
from supervisor.domain.observation import BATON, LOOKUP, STOP, Absent, Observation, Seen, Unknown, World
from supervisor.domain.run import LIMIT, METRIC, Run, StopRequest, unneeded
from supervisor.domain.status import Status
from supervisor.lifecycle.decision import Decision, moved, new_event, unchanged, unread
from supervisor.lifecycle.diagnosis.diagnose import diagnose
from supervisor.lifecycle.diagnosis.reading import of_end
from supervisor.lifecycle.ending import machines
from supervisor.lifecycle.ending.ending import End, close_attempt, ended_event
from supervisor.lifecycle.ending.keeping import is_settled, put_back
from supervisor.lifecycle.living.beats import beat_of, lasting_metric, with_beat
from supervisor.lifecycle.living.limits import limit_passed, machines_since
from supervisor.lifecycle.living.overriding import done_of, finish_done_work, is_torn
from supervisor.lifecycle.phases.beginning import obtain
from supervisor.wording.forecast import stopping_s
from supervisor.wording.stalls import odd_text
from supervisor.wording.why import announced_facts


def begin_stopping(run: Run, now: float) -> Decision:
    assert run.stop is not None
    stopping = Decision(moved(unneeded(run), Status.STOPPING, now), again=True)
    if run.stop.source == "api":  # the API wrote its event with the request
        return stopping
    if run.stop.by_metric:
        text = f"{run.detail}. The run's `watch` ends it: no checkpoint that was saved since then is used."
        return replace(stopping, events=(new_event(EventKind.STOP_REQUESTED, text, actor=run.stop.actor),))
    waits_for = "waiting for the final checkpoint"
    if run.live_attempt is None:
        waits_for = "the old machine is being released" if run.retiring else "a request is still open"
    text = f"Stop requested by {run.stop.actor} ({run.stop.cause}); {waits_for}."
    return replace(stopping, events=(new_event(EventKind.STOP_REQUESTED, text, actor=run.stop.actor),))


def stop_for_limit(run: Run, world: World, now: float) -> Decision | None:
    """A limit of the run ends it like a stop: the checkpoint is saved first; the run ends as failed."""
    passed = limit_passed(run, now, world)
    if passed is None:
        return None
    cause, detail = passed
    return begin_stopping(replace(run, stop=StopRequest("supervisor", now, cause, LIMIT), detail=detail), now)


def stop_for_metric(run: Run, now: float) -> Decision | None:
    """A metric of `nan: stop` stays NaN or infinite. The agent holds the checkpoints back since its first such value,
    and goes on to do so while it leaves."""
    odd = lasting_metric(run)
    if odd is None:
        return None
    request = StopRequest("supervisor", now, Cause.USER_ERROR, METRIC)
    return begin_stopping(replace(run, stop=request, detail=odd_text(odd)), now)


def stop(run: Run, obs: Observation, world: World, now: float) -> Decision:
    if unread(obs, BATON):
        return unchanged(run, wants=frozenset({BATON, STOP}))
    done = done_of(run, obs)
    if done is not None and run.cause == Cause.RESULTS_UNVERIFIED:
        seen = obs.verification
        if not isinstance(seen, Seen) or seen.value.launch_id != done.launch_id:
            return Decision(run, actions=(VerifyResults(done),))
        done = None if seen.value.problems else done
    if done is not None:
        return finish_done_work(run, now)
    if run.live_attempt is not None:
        return _stop_agent(run, obs, world, now)
    if run.open_try is not None:
        return _await_create(run, run.open_try, obs, world, now)
    return _end(run, now) if is_settled(run) else unchanged(run)


def _await_create(run: Run, try_: Try, obs: Observation, world: World, now: float) -> Decision:
    """A create call may still bring a machine: wait for its answer, then delete. A 404 now proves nothing."""
    assert run.stop is not None
    refused = isinstance(obs.create, Seen) and obs.create.value.launch_id == try_.launch_id
    if isinstance(obs.machine, Seen) and obs.machine.value.state != MachineState.ASKED:
        return obtain(run, try_, obs.machine.value.machine_id, now)
    if isinstance(obs.machine, Seen) and not refused and try_.on is None:
        if isinstance(obs.baton, Unknown) and not is_torn(obs.baton):  # it may say that the work is done
            return unchanged(run)
        return cancel_request(run, try_, obs, f"stop requested by {run.stop.actor}")
    settled_at = machines_since(world, try_.placement, try_.requested_at, now) + CREATE_SETTLED_S
    settled = isinstance(obs.machine, Absent) and now >= settled_at
    if try_.on is not None:  # a kept machine goes back to those that are off: it is switched off if it comes up yet
        is_over = refused or (isinstance(obs.machine, Seen | Absent) and now >= settled_at)
        return _end_start(run, try_, now) if is_over else unchanged(run, check_after=settled_at)
    if settled and unread(obs, LOOKUP):
        return unchanged(run, wants=frozenset({LOOKUP}))
    if refused or (settled and isinstance(obs.lookup, Absent)):
        ended = replace(try_, ended_at=now, outcome=Cause.STOP_REQUESTED, detail="stopped before a machine came")
        return Decision(replace(run, try_=ended), again=True)
    return unchanged(run, check_after=settled_at)


def _end_start(run: Run, try_: Try, now: float) -> Decision:
    ended = replace(try_, ended_at=now, outcome=Cause.STOP_REQUESTED, detail="stopped before it was started", on=None)
    after, events = put_back(replace(run, try_=ended), try_, Cause.STOP_REQUESTED, ended.detail, now)
    return Decision(after, events, again=True)


def cancel_request(run: Run, try_: Try, obs: Observation, reason: str) -> Decision:
    """The platform still searches for capacity that is not needed any more, and no agent runs yet."""
    assert isinstance(obs.machine, Seen)
    ref = replace(try_.ref, machine_id=obs.machine.value.machine_id or None)
    return Decision(run, actions=(Release(ref, try_.launch_id, reason, machines.readings(obs)),))


def _stop_agent(run: Run, obs: Observation, world: World, now: float) -> Decision:
    run = with_beat(run, obs, world, now)
    attempt, request = run.live_attempt, run.stop
    assert attempt is not None
    assert request is not None
    watched = machines_since(world, attempt.placement, run.status_since, now)
    grace_ends = watched + stopping_s(run)
    if not (_machine_over(obs) or agent_left(attempt.launch_id, obs) or now >= grace_ends):
        actions: tuple[Action, ...] = (AskAgentToStop(attempt.ref),)
        if isinstance(obs.stop, Absent):
            actions = (*actions, WriteStopMarker(request.actor))
        return Decision(run, actions=actions, check_after=grace_ends)
    if isinstance(obs.baton, Unknown) and not is_torn(obs.baton):
        return unchanged(run, check_after=grace_ends)
    if isinstance(obs.baton, Seen) and obs.baton.value.closed is None:
        return Decision(run, actions=(CloseBaton(str(request.cause)),))
    record = obs.machine.value.record if isinstance(obs.machine, Seen) else None
    meanwhile = f"; meanwhile {record.cause}: {record.detail}" if record else ""
    why = run.detail if request.by_metric else f"stop requested by {request.actor}"
    verdict = diagnose(of_end(request.cause, why, why)) if request.by_metric else None
    end = End(
        request.cause, why + meanwhile, machines.readings(obs),
        machine_gone=isinstance(obs.lookup, Absent), verdict=verdict,
    )  # fmt: skip
    after = close_attempt(run, end, now)
    return Decision(after, (ended_event(after, end, now, last=True),), again=True)


def _machine_over(obs: Observation) -> bool:
    if isinstance(obs.machine, Seen):
        return obs.machine.value.state == MachineState.ENDED
    return isinstance(obs.machine, Absent)


def agent_left(launch_id: str, obs: Observation) -> bool:
    """The agent of this launch says, in its last beat or in the baton, that it works no more."""
    beat = beat_of(obs.beat, launch_id)
    if beat is not None and (beat.value.left is not None or beat.value.exit is not None):
        return True
    holder = obs.baton.value.holder if isinstance(obs.baton, Seen) else None
    return holder is not None and holder.launch_id == launch_id and holder.left


def _end(run: Run, now: float) -> Decision:
    """Stopped if a person requested it, failed if a limit did."""
    assert run.stop is not None
    requested = run.stop.cause == Cause.STOP_REQUESTED
    unverified = run.detail if run.cause == Cause.RESULTS_UNVERIFIED else ""
    by = f"by {run.stop.actor}"
    detail = "; ".join(part for part in (by, unverified) if part) if requested else run.detail
    status, kind = (Status.STOPPED, EventKind.STOPPED) if requested else (Status.FAILED, EventKind.FAILED)
    checkpoint = "none" if run.files.checkpoint_step is None else f"{run.files.checkpoint_step:,}"
    text = f"{'Stopped ' + by if requested else 'Ended: ' + run.stop.cause}. Checkpoint kept: {checkpoint}."
    text += f" {unverified}." if unverified else ""
    facts: dict[str, str] = {}
    if run.stop.by_metric:
        text = f"Failed: {run.stop.cause}. {run.detail}. Checkpoint kept: {checkpoint}; `spot resume` goes on from it."
        facts = announced_facts(run.attempt.verdict if run.attempt is not None else None)
    after = moved(replace(run, cause=run.stop.cause, detail=detail, next_at=None), status, now)
    return Decision(after, (new_event(kind, text, cause=run.stop.cause, **facts),), again=True)
