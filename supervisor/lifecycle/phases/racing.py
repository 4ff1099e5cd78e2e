"""`race: 2`: two zones are asked for one machine, and the first that gives it keeps the run.

The second request (`Run.rival`) is a try of the same attempt with a launch id of its own. Its row is committed with
that of the first, before either call. The baton names the first launch alone: an agent of the second that boots before
the race is decided is neither holder nor next, so it stops. The race ends with the first listing that shows one of the
two machines up (the first request, where it shows both): that machine is obtained, and in the same commit the other
request is called off. Whatever it makes lies in `retiring` from then on: it is deleted when it is seen, however late,
and dropped only when a listing that is newer than its create call does not show it. Could not read is not absent. Where
the second wins, the baton is raised to its launch; until that has happened its agent cannot claim.

A race needs: spot, a provider that bills by the second and deletes at once (`Traits.races`), no kept machine, and a
second zone. That is the next zone that would be requested if the first one refused; also one that cools down, since it
is requested beside another one, unless it was down within the shortest cool-down. Where it refuses, its cool-down stays
as it is (offers/lessons): so a race leaves no more zones cooling than a single request does.

There is no race where it is expected to add more than `MOST_ADDED` to the bill of the machine: the loser is billed for
a minute if both zones grant, and a dearer zone may win.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from supervisor.contract import heartbeat
from supervisor.domain.actions import Launch, RaiseNext
from supervisor.domain.attempt import Retiring, Try
from supervisor.domain.causes import Cause
from supervisor.domain.events import Event, EventKind
from supervisor.domain.machines import Machine, MachineState, Offer, offer_key
from supervisor.domain.observation import BATON, Absent, Observation, Part, Seen, Unknown, World
from supervisor.domain.policies import Policy
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.lifecycle.decision import Decision, new_event, unread
from supervisor.lifecycle.ending.machines import STOPPING_STATES
from supervisor.lifecycle.ending.retiring import holder_gone
from supervisor.lifecycle.living.beats import beat_of
from supervisor.lifecycle.offers.choosing import queue, stops_of
from supervisor.lifecycle.offers.ranking import chance_at, down_at_of, outlook_of

IN_A_RACE = 2
MOST_ADDED = 0.01  # of the bill of a machine's expected life; the target of the design 0028, not tuned


def never_races(policy: Policy, unable: Sequence[str]) -> str:
    """Why the `race: 2` of this policy could never begin; "" = it can, or none was requested. `unable`: those of its
    providers that do not bill by the second and delete at once."""
    if policy.race < IN_A_RACE:
        return ""
    if unable:
        who = ", ".join(unable)
        return f"race: 2 requests two machines where one is needed, and {who} does not bill by the second"
    if policy.keep.machine or not policy.spot or len(policy.zones) == 1:
        return "race: 2 needs spot machines, two zones at least, and no keep: machine"
    return ""


def rival_offer(run: Run, first: Try, world: World, now: float) -> Offer | None:
    """What is requested beside `first`, which is about to be requested; None = there is no race. `run`: before it."""
    place = first.placement
    may_race = run.policy.race >= IN_A_RACE and place.spot and first.on is None and not run.policy.keep.machine
    if not may_race or not world.races.issuperset(run.providers):
        return None
    places = queue(run, world, now)
    wanted = next((offer for offer, _ in places if offer.placement == place), None)
    if wanted is None:
        return None
    for offer, cooling in places:
        other = offer.placement
        alike = (other.provider, other.shape, other.spot) == (place.provider, place.shape, place.spot)
        if not alike or other.zone == place.zone or (cooling is not None and cooling.cause != Cause.NO_CAPACITY):
            continue
        if _was_down(offer, world, now) or _added(wanted, offer, world, now) > MOST_ADDED:
            continue
        if world.zone_of(other) not in world.unread and not stops_of(run, offer, world, now):
            return offer
    return None


def _was_down(offer: Offer, world: World, now: float) -> bool:
    """Within the shortest cool-down."""
    down_at = down_at_of(world.zones.get(offer_key(offer.placement)), now)
    return now - world.knobs.cooldown_min_s < down_at <= now


def _added(first: Offer, second: Offer, world: World, now: float) -> float:
    """What the race is expected to add to the bill of the machine's life, as a share. Where both zones grant, either
    may win. Without prices they count as equal."""
    life_s = max(1.0, outlook_of(first, world).life_s)
    loser_s = max(second.minimum_s, world.knobs.poll_interval_s)
    price, other_price = first.price_usd_per_h, second.price_usd_per_h
    ratio = other_price / price if price and other_price else 1.0
    both = chance_at(first, world, now) * chance_at(second, world, now)
    return both * (max(0.0, ratio - 1.0) / 2 + ratio * loser_s / life_s)


def as_decided(run: Run, obs: Observation) -> tuple[Run, Observation]:
    """Run and observation with the winner as the open try: changed only where the second machine is up and nothing of
    the first one is. It is obtained at once, which reads nothing of the observation but the machines."""
    first, rival = run.open_try, run.open_rival
    if first is None or rival is None or run.live_attempt is not None or not _is_up(obs.rival) or _is_up(obs.machine):
        return run, obs
    beat = beat_of(obs.beat, first.launch_id)
    if beat is not None and beat.value.phase not in heartbeat.BEFORE_CLAIM:
        return run, obs  # the first one has claimed, although no listing shows it
    return replace(run, try_=rival, rival=first), replace(obs, machine=obs.rival, rival=obs.machine)


def _is_up(part: Part[Machine]) -> bool:
    return isinstance(part, Seen) and part.value.state in (MachineState.STARTING, MachineState.UP)


def with_rival_call(decision: Decision, obs: Observation) -> Decision:
    """The second call is repeated with the first one, under the same conditions, while its machine is not there. Where
    its zone cannot be read, it may have won already: nothing is requested or canceled before that is known."""
    rival = decision.run.open_rival
    if rival is not None and isinstance(obs.rival, Unknown) and not obs.rival.taken:
        return replace(decision, actions=())
    if rival is None or not any(isinstance(action, Launch) for action in decision.actions):
        return decision
    is_requested = isinstance(obs.rival, Seen) and obs.rival.value.state == MachineState.ASKED
    taken = isinstance(obs.rival, Unknown) and obs.rival.taken
    if not (isinstance(obs.rival, Absent) or is_requested or taken):
        return decision
    return replace(decision, actions=(*decision.actions, Launch(rival, holder_gone(decision.run))))


def without_rival(decision: Decision, obs: Observation, now: float) -> Decision:
    """A request beside the first one is open only while the run looks for its machine. In every other state (one of the
    two was obtained, a stop, work that is done) it is called off with the change itself; so it is where its machine
    ends before the race does."""
    run = decision.run
    rival = run.open_rival
    if rival is None or decision.wants:
        return decision
    over = isinstance(obs.rival, Seen) and obs.rival.value.state in STOPPING_STATES
    searching = run.status == Status.LAUNCHING and run.live_attempt is None and run.open_try is not None
    if searching and not over:
        return decision
    why = _why(run, searching)
    ended = replace(rival, ended_at=now, outcome=Cause.RACE_LOST, detail=why)
    item = Retiring(rival.ref, rival.launch_id, now, now, f"lost a race: {why}", call=rival)
    zone = rival.placement.zone
    winner = run.live_attempt.placement.zone if run.live_attempt is not None else None
    text = f"{why[:1].upper()}{why[1:]}. The request in {zone} is called off; its machine is deleted at once."
    event = new_event(EventKind.RACED, text, zone=winner, lost_zone=zone, launch_id=rival.launch_id)
    after = replace(run, rival=ended, retiring=(*run.retiring, item))
    return replace(decision, run=after, events=(*decision.events, event), again=True)


def _why(run: Run, searching: bool) -> str:
    if run.live_attempt is not None:
        return f"{run.live_attempt.placement.zone} gave the machine of attempt {run.live_attempt.number} first"
    return "its machine is ending already" if searching else "no machine is needed any more"


def rival_failed(run: Run, rival: Try, cause: Cause, detail: str, now: float) -> tuple[Run, Event]:
    """The second call has ended definitely, the first goes on."""
    ended = replace(rival, ended_at=now, outcome=cause, detail=detail)
    text = f"No machine in {rival.placement.zone}: {cause}. {detail}"
    event = new_event(EventKind.TRY_FAILED, text, cause=cause, zone=rival.placement.zone, launch_id=rival.launch_id)
    return replace(run, rival=ended), event


def promoted(run: Run, ended: Try) -> Run:
    """The first call has ended definitely, the second goes on as the only one."""
    assert run.open_rival is not None
    return replace(run, try_=run.open_rival, rival=ended)


def with_baton(decision: Decision, obs: Observation) -> Decision:
    """The baton names the winner, where that was the second request. Derived again until the baton shows it."""
    run = decision.run
    try_ = run.open_try
    if try_ is None or not try_.beside or run.live_attempt is None or decision.wants:
        return decision
    if unread(obs, BATON):
        return replace(decision, wants=frozenset({BATON}))
    if not isinstance(obs.baton, Seen):
        return decision
    next_ = obs.baton.value.next
    if next_ is not None and next_.launch_id == try_.launch_id:
        return replace(decision, run=replace(run, try_=replace(try_, beside="")))
    if obs.baton.value.closed is not None or obs.baton.value.done is not None:
        return decision
    return replace(decision, actions=(*decision.actions, RaiseNext(try_, holder_gone(run))))
