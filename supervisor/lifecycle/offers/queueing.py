"""Whose turn it is where our own machines hold the places: first come, first served.

A run that finds no place waits as `queued`: no create call is made for it, no zone is cooled for it, and no limit of
waiting counts, for each machine before it has a limit of its own. At every look the free places go to the runs that
were submitted first; the others are not even asked about, so ten thousand queued runs cost one pass over them. A run
that needs more GPUs than are free keeps the free ones for itself: those behind it would never let it in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from supervisor.domain.attempt import Try
from supervisor.domain.causes import Cause
from supervisor.domain.machines import Capacity, Offer, Placement
from supervisor.domain.observation import World
from supervisor.domain.run import Run
from supervisor.domain.status import PLACING, Status
from supervisor.lifecycle.offers.choosing import NoOffer, choose, is_paused, ladder

EARLIER_FIRST = "runs that were submitted earlier come first"


def with_turns(
    world: World, runs: Iterable[Run], capacities: Mapping[str, Capacity], listed: Callable[[Try], bool], now: float
) -> World:
    """The world with the turns of this look. `capacities`: by provider, as the listing has them; runs of others wait
    for no turn. `listed`: whether the listing has shown, and so counted, the machine of this try."""
    if not capacities:
        return world
    left, waiting = dict(capacities), []
    for run in runs:
        call = run.open_try
        if call is None:
            if _may_stand(run, left) and _asks(run, world, now):
                waiting.append(run)
        elif call.placement.provider in left and not _obtained(run, call) and not listed(call):
            _take(left, call.placement)
    waiting.sort(key=lambda run: (run.generation_at, run.key))
    return replace(world, capacities=left, may_launch=_turns(waiting, left, world, now))


def _turns(
    waiting: Iterable[Run], capacities: Mapping[str, Capacity], world: World, now: float
) -> Mapping[int, Offer | None]:
    left = dict(capacities)
    turns: dict[int, Offer | None] = {}
    futile = set()  # wishes that found no place: capacity only shrinks, so nobody with the same wish finds one
    for run in waiting:
        wish = _wish(run)
        if wish in futile:
            continue
        offer = choose(run, replace(world, capacities=left), now)
        if isinstance(offer, Offer):
            turns[run.key] = offer
            if not run.hold and not run.person.why:  # what is held back keeps no place from the others
                _take(left, offer.placement)
        elif offer.cause != Cause.QUEUED:
            turns[run.key] = None  # nothing of ours is in its way: it finds out for itself what is
        else:
            futile.add(wish)
            wished = next(o.placement for o in ladder(run, world, now) if o.placement.provider in left)
            left[wished.provider] = left[wished.provider].reserved_for(wished.shape)
    return turns


def _take(left: dict[str, Capacity], place: Placement) -> None:
    """One place less, where our own machines are the limit."""
    if place.provider in left:
        left[place.provider] = left[place.provider].with_one_more(place.zone, place.shape)


def _may_stand(run: Run, capacities: Mapping[str, Capacity]) -> bool:
    """One of its providers may be full of our own machines."""
    return any(name in capacities for name in run.providers)


def _wish(run: Run) -> tuple[object, ...]:
    """All that decides which offers a run may use. A run that escalates is like no other."""
    policy = run.policy
    near_deadline = (policy.on_demand_before_deadline_s, policy.next_provider_before_deadline_s)
    if policy.escalate_after or any(left_s is not None for left_s in near_deadline):
        return (run.key,)
    return run.providers, policy.zones, policy.shapes, policy.spot, policy.allow_on_demand, run.refusals


def _asks(run: Run, world: World, now: float) -> bool:
    placing = run.status in PLACING or run.status == Status.LAUNCHING
    return placing and run.stop is None and not is_paused(run, world, now)


def _obtained(run: Run, call: Try) -> bool:
    return run.attempt is not None and run.attempt.launch_id == call.launch_id


def place_of(run: Run, world: World, now: float) -> Offer | NoOffer:
    """Where this run asks next; NoOffer with cause `queued` where it is not its turn."""
    offer = world.may_launch.get(run.key)
    if offer is not None or not _may_stand(run, world.capacities):
        return offer or choose(run, world, now)
    choice = choose(run, world, now)
    if run.key in world.may_launch or isinstance(choice, NoOffer):
        return choice
    return NoOffer(None, Cause.QUEUED, EARLIER_FIRST)
