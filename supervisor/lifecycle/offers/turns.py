"""Whose turn it is: the order of the runs that wait for a machine, and the limits of the settings.

The order is by priority, the highest first; then by fair share, so the owner with the fewest machines comes first, and
of equal ones the owner whose last request lies longest ago; then by age. Runs of one owner and one priority never
overtake each other. So no run starves behind its equals: each machine that another owner gets counts against that
owner.

The limits are `max_parallel_runs` and `max_parallel_per_owner`: runs with a machine at once. A run counts from its
first request until its machine is gone. A run that waits counts nothing, so a run without an offer blocks nobody.
Between two machines a run keeps its place as long as the old machine is not gone, but not before a run of a higher
priority. A lower limit ends nothing.

All of this is computed once in a tick, over the runs that wait; a full limit costs no sort and no look at an offer.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from supervisor.domain.machines import Capacity
from supervisor.domain.observation import World
from supervisor.domain.run import Run
from supervisor.domain.status import PLACING, Status
from supervisor.lifecycle.offers.groups import finds_offer, own_wait
from supervisor.wording.figures import plural

OTHERS_FIRST = "other runs come first in this tick"


def in_turn(runs: Iterable[Run], machines: Mapping[str, int], used_at: Mapping[str, float]) -> Iterator[Run]:
    """The runs in the order in which they get machines; those that are held back come last. `machines`: owner -> how
    many they have now. Each run that is taken from the iterator counts as one more of its owner."""
    counts = Counter(machines)
    classes: dict[tuple[bool, int], dict[str, list[Run]]] = {}
    for run in runs:
        owners = classes.setdefault((bool(run.hold or run.person.why), -run.policy.priority), {})
        owners.setdefault(run.owner, []).append(run)
    for _, owners in sorted(classes.items()):
        for own in owners.values():
            own.sort(key=_age, reverse=True)  # the oldest is taken from the end
        heap = [_share(owner, own, counts, used_at) for owner, own in owners.items()]
        heapq.heapify(heap)
        while heap:
            owner = heap[0][-1]
            own = owners[owner]
            run = own.pop()
            counts[owner] += 1
            if own:
                heapq.heapreplace(heap, _share(owner, own, counts, used_at))
            else:
                heapq.heappop(heap)
            yield run


def _age(run: Run) -> tuple[float, int]:
    return run.generation_at, run.key


def _share(
    owner: str, own: Sequence[Run], counts: Mapping[str, int], used_at: Mapping[str, float]
) -> tuple[int, float, tuple[float, int], str]:
    return counts[owner], used_at.get(owner, 0.0), _age(own[-1]), owner


def machines_of(runs: Iterable[Run]) -> Counter[str]:
    """Owner -> runs with a machine, or between two requests for one."""
    return Counter(run.owner for run in runs if run.has_machine or run.status == Status.LAUNCHING)


# --- limits -----------------------------------------------------------------------------------------------------------


@dataclass
class Places:
    """What is left of the limits; 0 = there is none."""

    most: int
    most_of_owner: int
    machines: Counter[str]
    total: int = field(init=False)

    def __post_init__(self) -> None:
        self.total = sum(self.machines.values())

    def why_none(self, owner: str) -> str:
        """Why no further run of this owner may have a machine; "" = it may."""
        if 0 < self.most_of_owner <= self.machines[owner]:
            return _in_use(self.machines[owner], self.most_of_owner, f" of the owner {owner}")
        if self.is_full:
            return _in_use(self.total, self.most)
        return ""

    @property
    def is_full(self) -> bool:
        """By the limit of all runs."""
        return 0 < self.most <= self.total

    def take(self, owner: str, count: int = 1) -> None:
        self.machines[owner] += count
        self.total += count


def _in_use(used: int, most: int, whose: str = "") -> str:
    return f"{used} of {plural(most, 'machine')}{whose} {'is' if most == 1 else 'are'} in use"


def has_limits(world: World) -> bool:
    return world.knobs.max_parallel_runs > 0 or world.knobs.max_parallel_per_owner > 0


def with_limits(world: World, runs: Collection[Run], capacities: Mapping[str, Capacity], now: float) -> World:
    """The world with the runs that the limits of the settings leave without a machine in this tick. `runs`: all
    unsettled runs of the cell. `capacities`: as for `with_queue`. `with_groups` comes first."""
    if not has_limits(world):
        return world
    seen = replace(world, capacities=capacities, no_turn={}, may_launch={}, choices={})
    places = places_of(world, runs)
    waiting = [run for run in runs if wants_place(run) and run.key not in world.without_offer]
    waiting = [run for run in waiting if own_wait(run, seen) is None]
    no_turn: dict[int, str] = {}
    passed = set[int]()
    futile = set[object]()  # requests without an offer
    denied: dict[str, tuple[int, str]] = {}  # owner -> priority of the first of their runs without a place, and why
    for run in _turns(waiting, places, world.used_at):
        if run.has_machine:  # it has its place until that machine is gone
            why = _higher(run, denied, places)
        else:
            why = places.why_none(run.owner)
            if why:
                denied.setdefault(run.owner, (run.policy.priority, why))
            elif finds_offer(run, seen, now, futile):
                places.take(run.owner)
            else:
                passed.add(run.key)
                why = OTHERS_FIRST
        if why:
            no_turn[run.key] = why
    return replace(world, no_turn=no_turn, without_offer=world.without_offer | passed)


def _turns(waiting: Sequence[Run], places: Places, used_at: Mapping[str, float]) -> Iterable[Run]:
    """In turn. Where no place is left, only the priority matters."""
    if all(run.has_machine or places.why_none(run.owner) for run in waiting):
        return sorted(waiting, key=lambda run: (bool(run.hold), -run.policy.priority))
    return in_turn(waiting, places.machines, used_at)


def _higher(run: Run, denied: Mapping[str, tuple[int, str]], places: Places) -> str:
    """Why this run gives its place to one of a higher priority; "" = it keeps it."""
    helped = denied if places.is_full else {run.owner: denied[run.owner]} if run.owner in denied else {}
    return next((why for priority, why in helped.values() if priority > run.policy.priority), "")


def places_of(world: World, runs: Iterable[Run]) -> Places:
    knobs = world.knobs
    return Places(knobs.max_parallel_runs, knobs.max_parallel_per_owner, machines_of(runs))


def wants_place(run: Run) -> bool:
    """It waits for its first or next machine. A run between two tries has its place."""
    if run.status not in PLACING or run.open_try is not None or run.live_attempt is not None:
        return False
    return run.stop is None and not run.asks
