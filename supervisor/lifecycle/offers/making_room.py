"""Which run yields its machine to a run of a higher priority that waits.

A run waits for a limit of the settings, for the capacity of our own machines, or for a quota of its platform. A running
one of a lower priority yields where its machine is exactly what is missing: without it the waiting run could request a
machine. Of these, the ones of the lowest priority come first, or the run that yielded would make a third one yield; of
equal ones the run with the freshest verified checkpoint, which loses the least.

Never yields: a run that has trained less than its `min_run_s` in this attempt, has saved nothing in it, or is stopped,
drilled or held; a machine that cannot be had back, is kept, is lent for a time, or is in a zone that was not read. And
none yields to a run that one yields to already, or yielded to within PAUSE_S. A machine that leaves anyway counts as
yielded to the first that waits for it. What was not read is not there: no capacity, no beat, no yield.

After the machine is gone, the run that it was yielded to asks once more, although its quota cools down still.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import islice
from typing import NamedTuple

from supervisor.contract.heartbeat import TRAINING
from supervisor.domain.attempt import training_s
from supervisor.domain.causes import Cause
from supervisor.domain.machines import Capacity, Offer, OfferKey, Placement, offer_key
from supervisor.domain.observation import World, Yield
from supervisor.domain.profile import NO_LIMIT
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.lifecycle.offers.choosing import choose
from supervisor.lifecycle.offers.turns import Places, has_limits, in_turn, places_of, wants_place

PAUSE_S = 900.0  # between two yields to one run
FRESH_S = 180.0  # an older beat says nothing of the checkpoints there are now
LOOKED_AT = 20  # runs that wait, in one tick
SHORT_OF = frozenset({Cause.MACHINE_LIMIT, Cause.QUEUED, Cause.QUOTA})


class _Room(NamedTuple):
    """What the end of one machine would free. `run` None: it ends anyway."""

    owner: str
    place: Placement
    run: Run | None


def with_room(world: World, runs: Collection[Run], capacities: Mapping[str, Capacity], now: float) -> World:
    """The world with the runs that shall yield in this tick, and those that may ask once more. `runs`: all unsettled
    runs of the cell. `capacities`: what the listings show, as for `with_queue`; the other fields are those of this
    tick. Costs nothing where no run has a priority."""
    lowest = min((run.policy.priority for run in runs), default=0)
    waiting = [run for run in runs if run.policy.priority > lowest and _is_short(run)]
    if not waiting:
        return replace(world, yields={}, freed={}) if world.yields or world.freed else world
    served = {run.yielding.to for run in runs if _serves(run, now)}
    rooms = sorted(_rooms(runs, world, now), key=_by_loss)
    places = places_of(world, runs)
    seen = replace(world, capacities=capacities, choices=None, judged={})
    yields: dict[int, Yield] = {}
    for run in islice(in_turn(waiting, {}, {}), LOOKED_AT):
        if run.key in served:
            continue
        room = _room_for(run, rooms, places, seen, now)
        if room is None:
            continue
        rooms.remove(room)
        if room.run is not None:
            yields[room.run.key] = Yield(run.key, _why(run, room.run))
    return replace(world, yields=yields, freed=_freed(waiting, runs))


def _is_short(run: Run) -> bool:
    """It waits for a machine that only the end of another one gives."""
    if run.cause not in SHORT_OF or run.status != Status.WAITING or run.hold or run.person.why:
        return False
    return wants_place(run) and run.kept is None and not run.retiring


def _serves(run: Run, now: float) -> bool:
    """It yields, or yielded a moment ago, so its waiting run gets no second machine."""
    order = run.yielding
    if not order.launch_id:
        return False
    is_leaving = run.yields or any(item.launch_id == order.launch_id for item in run.retiring)
    return is_leaving or 0.0 <= now - order.at < PAUSE_S


# --- who may yield ----------------------------------------------------------------------------------------------------


def _rooms(runs: Iterable[Run], world: World, now: float) -> Iterator[_Room]:
    for run in runs:
        attempt = run.attempt
        if attempt is None:
            continue
        if may_yield(run, world, now):
            yield _Room(run.owner, attempt.placement, run)
        elif run.yields or _leaves(run, now):
            yield _Room(run.owner, attempt.placement, None)


def _leaves(run: Run, now: float) -> bool:
    """Its machine is being released, and it requests no other one."""
    if run.open_try is not None or run.live_attempt is not None or not (run.terminal or run.cause == Cause.YIELDED):
        return False
    return any(item.until <= now and item.bill is None and item.kept is None for item in run.retiring)


def may_yield(run: Run, world: World, now: float) -> bool:
    """It may give its machine to another run now."""
    attempt, pulse = run.live_attempt, run.pulse
    if run.status != Status.RUNNING or attempt is None or pulse is None or pulse.launch_id != attempt.launch_id:
        return False
    if (
        run.stop is not None
        or run.yields
        or run.hold
        or run.drills.launch_id
        or run.retiring
        or run.policy.keep.machine
    ):
        return False
    is_fresh = pulse.phase == TRAINING and 0.0 <= now - pulse.beat_at <= FRESH_S
    step, before = pulse.checkpoint_step, attempt.step_from
    saved = step is not None and (before is None or step > before)
    trained = training_s(attempt, now) >= run.policy.min_run_s
    return is_fresh and saved and pulse.checkpoint_at is not None and trained and _comes_back(attempt.placement, world)


def _comes_back(place: Placement, world: World) -> bool:
    """Another machine there can be had later. Not on a host whose bill runs on, nor where sessions are lent."""
    if world.zone_of(place) in world.unread or world.meter_at(place) is not None or world.quota_of(place) is not None:
        return False
    profile = world.profile_of(place)
    return profile is None or profile.session_cap_s.value in (None, NO_LIMIT)


def _by_loss(room: _Room) -> tuple[int, int, float]:
    """Machines that leave anyway come first, then the lowest priority, then the freshest checkpoint."""
    run = room.run
    if run is None:
        return 0, 0, 0.0
    saved_at = 0.0 if run.pulse is None else run.pulse.checkpoint_at or 0.0
    return 1, run.policy.priority, -saved_at


# --- whom it helps ----------------------------------------------------------------------------------------------------


def _room_for(run: Run, rooms: Iterable[_Room], places: Places, world: World, now: float) -> _Room | None:
    """The first room with which this run could request a machine. Rooms that free the same are looked at once."""
    if not places.why_none(run.owner) and isinstance(choose(run, world, now), Offer):
        return None  # it needs nobody: its own turn gives it a machine
    useless = set[tuple[str, OfferKey]]()
    for room in rooms:
        if room.run is not None and room.run.policy.priority >= run.policy.priority:
            continue
        kind = room.owner, offer_key(room.place)
        if kind in useless:
            continue
        if _helps(run, room, places, world, now):
            return room
        useless.add(kind)
    return None


def _helps(run: Run, room: _Room, places: Places, world: World, now: float) -> bool:
    left = replace(places, machines=places.machines.copy())
    left.take(room.owner, -1)
    if has_limits(world) and left.why_none(run.owner):
        return False
    return isinstance(choose(run, _without(world, room.place), now), Offer)


def _without(world: World, place: Placement) -> World:
    """The world after the end of the machine there: its capacity is free, and its quota allows one more."""
    capacity, record = world.capacities.get(place.provider), world.zones.get(offer_key(place))
    if capacity is not None:
        freed = capacity.with_one_fewer(place.zone, place.shape)
        world = replace(world, capacities={**world.capacities, place.provider: freed}, may_launch={})
    if record is not None and record.cause == Cause.QUOTA:
        world = replace(world, zones={**world.zones, offer_key(place): replace(record, cool_until=0.0)})
    return world


def _why(run: Run, other: Run) -> str:
    name = run.run_id if run.owner == other.owner else f"a run of {run.owner}"
    return f"{name} of priority {run.policy.priority} waits ({run.cause}), and this one has {other.policy.priority}"


def _freed(waiting: Iterable[Run], runs: Iterable[Run]) -> dict[int, OfferKey]:
    """Run key -> the offer whose machine was yielded to it and is gone since its last request."""
    short = {run.key: run for run in waiting if run.cause == Cause.QUOTA}
    freed: dict[int, OfferKey] = {}
    if not short:
        return freed
    for run in runs:
        order = run.yielding
        other = short.get(order.to)
        if other is None or order.gone_at is None or order.place is None:
            continue
        asked_at = 0.0 if other.try_ is None else other.try_.ended_at or other.try_.requested_at
        if order.gone_at > asked_at:
            freed[other.key] = offer_key(order.place)
    return freed
