"""A run yields its machine to a run of a higher priority: it saves, leaves, and goes back to the queue.

Which run yields, and to whom, is found over all runs (lifecycle/offers/making_room). Here the run itself judges it once
more, by what was read of its own machine and agent in this tick. The order is written with its event before the agent
gets it; it is repeated until the agent has left, or `stop_grace_s` and the time of an upload have passed. Then the
attempt ends as `yielded`, which counts as nothing, and its machine is released. An agent that no order reaches gets
TERM with the release. Finished work, a stop and the loss of the machine come first. The order is never taken back:
what waited may be gone meanwhile, and then this run is the first that gets the machine.
"""

from __future__ import annotations

from dataclasses import replace

from supervisor.contract.heartbeat import Beat
from supervisor.domain.actions import AskAgentToStop
from supervisor.domain.causes import Cause
from supervisor.domain.events import EventKind
from supervisor.domain.machines import MachineState
from supervisor.domain.observation import Observation, Seen, World
from supervisor.domain.run import Run, Yielding
from supervisor.lifecycle.decision import Decision, new_event
from supervisor.lifecycle.ending import machines
from supervisor.lifecycle.ending.ending import End, end_attempt
from supervisor.lifecycle.living.limits import machines_since
from supervisor.lifecycle.offers.making_room import may_yield
from supervisor.lifecycle.phases.stopping import agent_left
from supervisor.wording.forecast import leaving_s


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
