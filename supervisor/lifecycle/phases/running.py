"""A run whose training goes on. Judged in this order: stop, end of the command, machine, silence, progress, limits.

A run yields its machine to a run of a higher priority: it saves, leaves, and goes back to the queue.

Which run yields, and to whom, is found over all runs (lifecycle/offers/making_room). Here the run itself judges it once
more, by what was read of its own machine and agent in this tick. The order is written with its event before the agent
gets it; it is repeated until the agent has left, or `stop_grace_s` and the time of an upload have passed. Then the
attempt ends as `yielded`, which counts as nothing, and its machine is released. An agent that no order reaches gets
TERM with the release. Finished work, a stop and the loss of the machine come first. The order is never taken back:
what waited may be gone meanwhile, and then this run is the first that gets the machine.
"""

from __future__ import annotations

from dataclasses import replace

from supervisor.contract import heartbeat
from supervisor.contract.heartbeat import Beat
from supervisor.domain.actions import AskAgentToStop
from supervisor.domain.attempt import Pulse, Yielding
from supervisor.domain.causes import Cause
from supervisor.domain.events import Event, EventKind
from supervisor.domain.machines import MachineState
from supervisor.domain.observation import BEATS, Absent, Observation, Seen, World
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.lifecycle.decision import Decision, after_events, moved, new_event
from supervisor.lifecycle.ending import machines
from supervisor.lifecycle.ending.ending import End, end_attempt
from supervisor.lifecycle.ending.exits import end_in, stall_of
from supervisor.lifecycle.living.beats import beat_of, hanging, restart, with_alerts, with_beat, with_ignored_resume
from supervisor.lifecycle.living.checkpoints import with_fresh_start, with_rejection
from supervisor.lifecycle.living.drilling import follow_drill, with_failed_drill
from supervisor.lifecycle.living.limits import machines_since, next_limit_at, silent_s, stall_reason
from supervisor.lifecycle.living.moving import follow_slow
from supervisor.lifecycle.living.overriding import stopped_by, with_marker
from supervisor.lifecycle.offers.making_room import may_yield
from supervisor.lifecycle.phases.changing import changed_rung
from supervisor.lifecycle.phases.stopping import agent_left, begin_stopping, stop_for_limit, stop_for_metric
from supervisor.wording.forecast import leaving_s


def run_on(run: Run, obs: Observation, world: World, now: float) -> Decision:
    attempt = run.live_attempt
    assert attempt is not None
    seen = beat_of(obs.beat, attempt.launch_id)
    beat = seen.value if seen is not None else None
    run = with_marker(run, obs, now)
    if beat is not None and beat.stop_generation is not None:
        run = stopped_by(run, beat.stop_generation, now)
    if run.stop is not None:
        return begin_stopping(run, now)
    before = run.pulse
    run = with_beat(run, obs, world, now)
    events: tuple[Event, ...] = ()
    if beat is not None:
        run, fresh_start = with_fresh_start(run, attempt, beat)
        run, rejection = with_rejection(run, beat)
        run, alerts = with_alerts(run)
        run, ignored = with_ignored_resume(run)
        run, drilled = with_failed_drill(run, beat, now)
        events = (*restart(before, run.pulse), *rejection, *fresh_start, *hanging(before, run.pulse))
        events = (*events, *alerts, *ignored, *drilled)
    ended = _end_of_command(run, beat, obs, world=world, now=now, before=before) if beat else None
    return after_events(events, ended or _judge(run, beat, obs, world, now))


def _judge(run: Run, beat: Beat | None, obs: Observation, world: World, now: float) -> Decision:
    yielding = go_on_yielding(run, obs, world, now)
    if yielding is not None and yielding.run.live_attempt is None:
        return yielding
    lost = machines.lost(run, obs, world, now)
    if lost is None and yielding is not None:
        return yielding
    lost = lost or _silent(run, obs, world, now) or _stalled(run, beat, obs, world, now)
    if lost is not None:
        return lost if isinstance(lost, Decision) else end_attempt(run, lost, world, now)
    stopping = stop_for_limit(run, world, now)
    if stopping is not None:
        return stopping
    yielding = begin_yielding(run, beat, obs, world, now)
    if yielding is not None:
        return yielding
    run, events, why = follow_slow(run, beat if _is_up(obs, world) else None, world, now)
    if why:
        end = End(
            Cause.SUPERSEDED, why, machines.readings(obs), overlap_s=world.knobs.notice_overlap_s, avoid_zone=True
        )
        return after_events(events, end_attempt(run, end, world, now))
    changed = changed_rung(run, beat, obs, world, now)
    if changed is not None:
        return after_events(events, changed)
    run, drilled, orders = follow_drill(run, beat if _is_up(obs, world) else None, now)
    after = replace(run, hold="") if run.hold and isinstance(obs.machine, Seen) else run
    return after_events((*events, *drilled), Decision(after, actions=orders, check_after=next_limit_at(run, now)))


def _is_up(obs: Observation, world: World) -> bool:
    machine = machines.at_hand(obs, world)
    return machine is not None and machine.state == MachineState.UP


def _end_of_command(
    run: Run, beat: Beat, obs: Observation, *, world: World, now: float, before: Pulse | None
) -> Decision | None:
    """Exit 0, or a failure after the last step, is finishing; then the metric that the spec watches decides; any other
    end has its cause. A preemption notice seen inside the machine is authoritative. `before`: the pulse of the beats
    before this one."""
    saving = beat.exit is None and beat.phase == heartbeat.FINISHING
    if saving or (beat.exit is not None and beat.exit.work_done):
        text = "The command has done its work; its results are being saved."
        if beat.exit is not None and beat.exit.after_work:
            text = "The command failed after its last step; its results are being saved."
        return Decision(moved(run, Status.FINISHING, now), (new_event(EventKind.FINISHING, text),), again=True)
    diverged = stop_for_metric(run, now)
    if diverged is not None:
        return diverged
    end = end_in(run, beat, obs, world, before)
    if end is None or run.yields:  # an agent that leaves for another run reports no failure
        return None
    return end_attempt(run, replace(end, stopped_at=machines.stopped_at(obs, now)), world, now)


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
    silence_s, limit_s = silent_s(run.pulse, attempt, world, now), run.policy.stall.silence_s
    if silence_s <= limit_s:
        return None
    evidence = f"no beat for {silence_s:.0f} s (limit {limit_s:.0f} s)"
    if machine.doubt is not None:  # two signals: the platform does not reach its host either
        text = f"{evidence}, and {machine.doubt.detail}"
        return End(machine.doubt.cause, text, machines.readings(obs), inferred=BEATS)
    return End(Cause.AGENT_LOST, f"{evidence} while the machine is up", machines.readings(obs), inferred=BEATS)


def _stalled(run: Run, beat: Beat | None, obs: Observation, world: World, now: float) -> End | None:
    """Needs a beat: a silent agent is judged by its silence, not by steps."""
    if beat is None or run.pulse is None or machines.at_hand(obs, world) is None:
        return None
    reason = stall_reason(run, run.pulse, world, now)
    return None if reason is None else stall_of(run, beat, obs, reason)


# --- yielding ---------------------------------------------------------------------------------------------------------


def begin_yielding(run: Run, beat: Beat | None, obs: Observation, world: World, now: float) -> Decision | None:
    """The order, with the first request to its agent; None = the run goes on. `beat`: of this tick, None = not read."""
    order, machine = world.yields.get(run.key), machines.at_hand(obs, world)
    if order is None or beat is None or machine is None or machine.state != MachineState.UP:
        return None
    attempt = run.live_attempt
    if attempt is None or not may_yield(run, world, now):
        return None
    ordered = Yielding(attempt.launch_id, order.to, now, order.why, attempt.placement)
    text = f"It gives its machine to a run of a higher priority: {order.why}. It saves, and goes back to the queue."
    event = new_event(EventKind.YIELDING, text, launch_id=attempt.launch_id)
    actions = (AskAgentToStop(attempt.ref),)
    return Decision(replace(run, yielding=ordered), (event,), actions, check_after=now + leaving_s(run))


def go_on_yielding(run: Run, obs: Observation, world: World, now: float) -> Decision | None:
    """None = it has no order."""
    attempt = run.live_attempt
    if not run.yields or attempt is None:
        return None
    over_at = machines_since(world, attempt.placement, run.yielding.at, now) + leaving_s(run)
    machine = obs.machine.value if isinstance(obs.machine, Seen) else None
    is_over = machine is not None and machine.state == MachineState.ENDED
    if not (is_over or agent_left(attempt.launch_id, obs) or now >= over_at):
        return Decision(run, actions=(AskAgentToStop(attempt.ref),), check_after=over_at)
    end = End(Cause.YIELDED, run.yielding.why, machines.readings(obs), stopped_at=machines.stopped_at(obs, now))
    return end_attempt(run, end, world, now)
