"""The queue where our own machines are the limit: the runs get them in turn.

A run that finds no capacity waits as `queued`. No create call is made for it, no zone is cooled for it, and no limit of
waiting counts, because each machine before it has a limit of its own. In every tick the free capacity goes to the runs
whose turn it is (`turns`). The others request nothing, so ten thousand queued runs cost one pass over them. A run that
needs more GPUs than are free keeps the free ones for itself: otherwise the runs behind it would always be faster.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace

from supervisor.domain.attempt import Try
from supervisor.domain.causes import Cause
from supervisor.domain.machines import Capacity, Offer, Placement
from supervisor.domain.observation import World
from supervisor.domain.run import Run
from supervisor.domain.status import PLACING, Status
from supervisor.lifecycle.offers.choosing import NoOffer, choice_key, choose, is_paused
from supervisor.lifecycle.offers.groups import own_wait, slot_wait
from supervisor.lifecycle.offers.ladder import ladder, request_key
from supervisor.lifecycle.offers.turns import in_turn, machines_of

OTHERS_FIRST = "other runs come first"


def with_queue(
    world: World,
    runs: Collection[Run],
    capacities: Mapping[str, Capacity],
    is_listed: Callable[[Try], bool],
    now: float,
) -> World:
    """The world with the queue of this tick. `capacities`: free capacity by provider, from its listing; runs of other
    providers wait in no queue. `is_listed`: the listing contains, and so has counted, the machine of this try."""
    if not capacities:
        return world
    left, waiting = dict(capacities), []
    for run in runs:
        call = run.open_try
        if call is None:
            if _may_queue(run, left) and _is_placing(run, world, now):
                waiting.append(run)
        elif call.placement.provider in left and not _is_obtained(run, call) and not is_listed(call):
            _take(left, call.placement)
    # The share of a lone owner says nothing, and the count would look at every run.
    machines = machines_of(runs) if len({run.owner for run in waiting}) > 1 else {}
    turns = in_turn(waiting, machines, world.used_at)
    return replace(world, capacities=left, may_launch=_offers(turns, left, world, now))


def place_of(run: Run, world: World, now: float) -> Offer | NoOffer:
    """What this run requests next; NoOffer with one of OWN_WAITS where other runs come first."""
    waits = own_wait(run, world)
    if waits is not None:
        return waits
    choice = _next_in_queue(run, world, now)
    return slot_wait(run, world) or choice if isinstance(choice, Offer) else choice


def _next_in_queue(run: Run, world: World, now: float) -> Offer | NoOffer:
    offer = world.may_launch.get(run.key)
    if offer is not None:
        return offer
    choice = choose(run, world, now)
    if isinstance(choice, NoOffer) or run.key in world.may_launch or not _may_queue(run, world.capacities):
        return choice
    return NoOffer(None, Cause.QUEUED, OTHERS_FIRST)


def _offers(
    waiting: Iterable[Run], capacities: Mapping[str, Capacity], world: World, now: float
) -> Mapping[int, Offer | None]:
    left = dict(capacities)
    offers: dict[int, Offer | None] = {}
    futile = set()  # requests without capacity: it only shrinks in this pass, so the same request finds none later
    stopped = set[object]()  # those that a gate stops
    for run in waiting:
        request = request_key(run)
        if request in futile:
            continue
        if stopped and choice_key(run, world) in stopped:
            offers[run.key] = None
            continue
        offer = choose(run, replace(world, capacities=left), now)
        if isinstance(offer, Offer):
            offers[run.key] = offer
            if not run.hold and not run.person.why:  # a run that is held back takes no capacity from the others
                _take(left, offer.placement)
        elif offer.cause != Cause.QUEUED:
            offers[run.key] = None  # our own machines are not what it waits for: its own decision shows the reason
            if offer.stopped:
                stopped.add(choice_key(run, world))
        else:
            futile.add(request)
            first = next(o.placement for o in ladder(run, world, now) if o.placement.provider in left)
            left[first.provider] = left[first.provider].reserved_for(first.shape)
    return offers


def _take(left: dict[str, Capacity], place: Placement) -> None:
    """Capacity for one machine less, where our own machines are the limit."""
    if place.provider in left:
        left[place.provider] = left[place.provider].with_one_more(place.zone, place.shape)


def _may_queue(run: Run, capacities: Mapping[str, Capacity]) -> bool:
    """One of its providers may be full of our own machines."""
    return any(name in capacities for name in run.providers)


def _is_placing(run: Run, world: World, now: float) -> bool:
    placing = run.status in PLACING or run.status == Status.LAUNCHING
    if not placing or run.stop is not None or run.asks or is_paused(run, world, now):
        return False
    return own_wait(run, world) is None


def _is_obtained(run: Run, call: Try) -> bool:
    return run.attempt is not None and run.attempt.launch_id == call.launch_id
