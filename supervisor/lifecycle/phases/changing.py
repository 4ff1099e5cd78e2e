"""A run that trains changes its rung at a checkpoint, where the rule that placed it says so.

From on-demand it goes back to spot when the saving pays the restart and the deadline allows a loss (lifecycle/rungs).
From spot it goes to on-demand when the next loss would come too late. A healthy spot machine is never left for a price.

Whether spot can be had is not known before it is requested, and nothing is requested to find out. So the run asks only
where a spot machine can be had with a chance of `least_chance`, by the answers that the requests of all runs got
(`ranking.chance_at`), and after a pause that doubles with each return that brought no spot machine. If all zones refuse
then, the rule places it on on-demand again: the time of these requests and both starts have been kept before it left.

The moment is a new checkpoint, so next to nothing is trained twice. It must be the one that the baton names: only that
one is verified. The attempt ends like a preemption with notice: the old machine goes on until the next one claims the
run, and the baton lets only one of them write. What may not yield to another run (`making_room.may_yield`) does not
leave here either: kept, lent or stopped machines, and zones that were not read. What was not read changes nothing.
"""

from __future__ import annotations

from dataclasses import replace

from supervisor.contract.heartbeat import Beat
from supervisor.domain.attempt import Moving, Pulse
from supervisor.domain.causes import Cause
from supervisor.domain.machines import MachineState, Offer
from supervisor.domain.observation import BATON, Observation, Seen, World
from supervisor.domain.policies import FOR_COST
from supervisor.domain.run import Run
from supervisor.lifecycle.decision import Decision, unchanged, unread
from supervisor.lifecycle.ending import machines
from supervisor.lifecycle.ending.ending import End, end_attempt
from supervisor.lifecycle.offers.choosing import choose
from supervisor.lifecycle.offers.ladder import rule_in_place
from supervisor.lifecycle.offers.making_room import may_yield
from supervisor.lifecycle.offers.market import goal_of
from supervisor.lifecycle.offers.ranking import chance_at
from supervisor.lifecycle.rungs.numbers import FROZEN, Numbers
from supervisor.lifecycle.rungs.rule import Choice, Rung, return_pause_s
from supervisor.wording.attempt import MOVED
from supervisor.wording.figures import count_text

SAVED_S = 120.0  # an older checkpoint is no moment to leave: too much would be trained twice


def may_change(run: Run, now: float) -> bool:
    """`changed_rung` may have something to say. Cheap, and the same for every observation."""
    policy, pulse = run.policy, run.pulse
    if policy.limits.deadline is None or not policy.spot or not policy.allow_on_demand or pulse is None:
        return False
    return goal_of(policy) == FOR_COST and _unsaved_s(pulse, now) is not None


def changed_rung(run: Run, beat: Beat | None, obs: Observation, world: World, now: float) -> Decision | None:
    """The end of its attempt; None = it stays. `beat`: of this tick, None = not read."""
    live, pulse, machine = run.live_attempt, run.pulse, machines.at_hand(obs, world)
    if beat is None or machine is None or machine.state != MachineState.UP or pulse is None or live is None:
        return None
    if not may_change(run, now) or not may_yield(run, world, now):
        return None
    choice = _choice(run, pulse, world, now)
    if choice is None:
        return None
    if unread(obs, BATON):
        return unchanged(run, wants=frozenset({BATON}))
    if not _is_verified(pulse, obs):
        return None
    moved = replace(run, moving=after_leaving(run.moving, now, for_spot=not live.placement.spot))
    why = f"{MOVED}{count_text(pulse.checkpoint_step or 0)}: {choice.why}"
    end = End(Cause.SUPERSEDED, why, machines.readings(obs), overlap_s=world.knobs.notice_overlap_s)
    return end_attempt(moved, end, world, now)


def _unsaved_s(pulse: Pulse, now: float) -> float | None:
    """How long ago its newest checkpoint was saved; None = too long, or in a future that a wrong clock wrote."""
    age_s = None if pulse.checkpoint_at is None else now - pulse.checkpoint_at
    return age_s if age_s is not None and 0.0 <= age_s <= SAVED_S else None


def _is_verified(pulse: Pulse, obs: Observation) -> bool:
    """The baton names this launch as its holder, and the newest checkpoint that the agent reports."""
    baton = obs.baton.value if isinstance(obs.baton, Seen) else None
    if baton is None or baton.holder is None or baton.checkpoint is None or baton.done is not None:
        return False
    is_ours = baton.holder.launch_id == pulse.launch_id and not baton.holder.left and baton.closed is None
    return is_ours and baton.checkpoint.step == pulse.checkpoint_step


def _choice(run: Run, pulse: Pulse, world: World, now: float) -> Choice | None:
    """Why it leaves for the other market, where there is a machine for it; None = it stays."""
    live, unsaved_s = run.live_attempt, _unsaved_s(pulse, now)
    if live is None or unsaved_s is None:
        return None
    if live.placement.spot:
        choice = rule_in_place(run, world, now, spot=None, unsaved_s=unsaved_s)
        is_needed = choice is not None and choice.rung is Rung.ON_DEMAND
        return choice if is_needed and _offer(run, world, now, spot=False) is not None else None
    if _is_pausing(run.moving, now):
        return None  # cheap, and true for most checkpoints
    spot = _offer(run, world, now, spot=True)
    if spot is None or not is_return_due(run.moving, spot, world, now):
        return None
    choice = rule_in_place(run, world, now, spot=spot, unsaved_s=unsaved_s)
    return choice if choice is not None and choice.rung is Rung.SPOT else None


def _offer(run: Run, world: World, now: float, *, spot: bool) -> Offer | None:
    """What it would request in this market alone; None = nothing there can be requested now. While it has a machine,
    it waits for no flex-start. The answer is kept for nobody: other runs, and this one without its machine, ask for
    both markets."""
    policy = replace(run.policy, spot=spot, allow_on_demand=not spot, allow_flex_start=False, optimize="")
    choice = choose(replace(run, policy=policy, avoid_zone=""), replace(world, choices=None), now)
    return choice if isinstance(choice, Offer) else None


def is_return_due(moving: Moving, spot: Offer, world: World, now: float, *, numbers: Numbers = FROZEN) -> bool:
    """Whether a run on on-demand may leave it to request this machine. `make policy` asks the same."""
    return not _is_pausing(moving, now, numbers) and chance_at(spot, world, now) >= numbers.least_chance


def after_leaving(moving: Moving, now: float, *, for_spot: bool = True) -> Moving:
    """A return counts as refused until a spot machine is obtained (`phases/beginning`). A plan to leave a slow machine
    ends with this machine."""
    return replace(moving, after_step=None, rung_at=now, refused=moving.refused + for_spot)


def _is_pausing(moving: Moving, now: float, numbers: Numbers = FROZEN) -> bool:
    return moving.rung_at is not None and abs(now - moving.rung_at) < return_pause_s(moving.refused, numbers)
