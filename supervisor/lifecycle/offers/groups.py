"""Runs that wait for each other: the limit of a group, and runs that start after others.

A group is the runs of one owner with the same `group`. Its limit is the smallest `max_parallel` of its live runs. A run
takes a slot with its first request for a machine and keeps it, through preemptions, until it has ended and its machine
is gone; a request without a machine in the end gives the slot back. Free slots go to the runs of the highest priority,
of these to the ones that were submitted first. Runs that find no capacity let later ones pass that do; of these as many
as there are free slots wait for the platform, and the others wait for the group. A run that waits for the answer of a
person keeps no slot. So ten thousand waiting runs request nothing, and cost one pass over them.

A run with `after` starts when each of these runs is completed. A partial one lacks what was promised, so it does not
count. If one of them has ended otherwise, the run waits for a person: a resume of that one lets it go on.

No limit of waiting counts during these waits. What could not be read counts as "not yet".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from supervisor.domain.causes import Cause
from supervisor.domain.machines import Capacity, Offer
from supervisor.domain.observation import World
from supervisor.domain.run import Run
from supervisor.domain.status import PLACING, TERMINAL, Status
from supervisor.lifecycle.offers.choosing import NoOffer, choose, is_paused
from supervisor.lifecycle.offers.ladder import request_key
from supervisor.wording.figures import plural

PASSED_MOST = 100  # different requests that are looked at for the slots of one group in one tick


def awaited(runs: Iterable[Run]) -> set[str]:
    """The run ids whose status decides whether one of these runs may start."""
    return {name for run in runs if _awaits(run) for name in run.policy.after}


def with_groups(world: World, members: Iterable[Run], capacities: Mapping[str, Capacity], now: float) -> World:
    """The world with the runs that get no slot of their group in this tick. `members`: all unsettled runs with a group.
    `capacities`: as for `with_queue`. `world.statuses` has been read."""
    groups: dict[tuple[str, str], list[Run]] = {}
    for run in members:
        if run.policy.group:
            groups.setdefault((run.owner, run.policy.group), []).append(run)
    seen = replace(world, capacities=capacities)
    no_slot: dict[int, str] = {}
    without_offer: set[int] = set()
    for (_, name), group in groups.items():
        limit = limit_of(group)
        if limit is not None:
            why = f"{plural(limit, 'run')} of group {name} may have a machine at once, and others come first"
            waiting, passed = _without_slot(group, limit, seen, now)
            no_slot.update(dict.fromkeys((*waiting, *passed), why))
            without_offer.update(passed)
    return replace(world, no_slot=no_slot, without_offer=frozenset(without_offer))


def limit_of(group: Iterable[Run]) -> int | None:
    """How many of these runs may have a machine at once; None = no limit."""
    limits = (run.policy.max_parallel for run in group if not run.terminal)
    return min((limit for limit in limits if limit is not None), default=None)


def own_wait(run: Run, world: World) -> NoOffer | None:
    """Why this run waits for other runs; None = it does not."""
    if _awaits(run):
        waits = _after_others(run, world)
        if waits is not None:
            return waits
    return None if run.key in world.without_offer else slot_wait(run, world)


def slot_wait(run: Run, world: World) -> NoOffer | None:
    """Why this run may request no machine now; None = it may."""
    why = world.no_slot.get(run.key)
    if why is not None:
        return NoOffer(None, Cause.GROUP_LIMIT, why)
    why = world.no_turn.get(run.key)
    return None if why is None else NoOffer(None, Cause.MACHINE_LIMIT, why)


# --- slots ------------------------------------------------------------------------------------------------------------


def _without_slot(group: Sequence[Run], limit: int, world: World, now: float) -> tuple[list[int], list[int]]:
    """Keys of the runs that want a machine and get no slot now: (the ones that wait for the group, the ones that find
    no offer and may wait for the platform)."""
    wants = [run for run in group if _wants_machine(run, world)]
    new = [run for run in wants if not _keeps_slot(run)]
    left = limit - sum(run.has_machine for run in group) - (len(wants) - len(new))
    if left <= 0:
        return [run.key for run in new], []
    new.sort(key=_rank)
    waiting: list[int] = []
    passed: list[int] = []
    most_passed = left
    futile: set[object] = set()  # requests without an offer
    for run in new:
        if left > 0 and finds_offer(run, world, now, futile):
            left -= 1
        elif left > 0 and len(passed) < most_passed:
            passed.append(run.key)
        else:
            waiting.append(run.key)
    return waiting, passed


def _rank(run: Run) -> tuple[bool, int, int]:
    """The order in which slots are given: by priority, then by the first submit, runs on hold last. A resume of the
    whole group keeps the order."""
    return bool(run.hold or run.person.why), -run.policy.priority, run.key


def _keeps_slot(run: Run) -> bool:
    """It had a machine, or is between two requests. It keeps its slot also where the limit is lower now, but not while
    it waits for the answer of a person: after that it gets the next free one."""
    if run.status == Status.LAUNCHING:
        return True
    return run.has_begun and run.attempt is not None and not run.attempt.has_question


def _wants_machine(run: Run, world: World) -> bool:
    placing = run.status in PLACING or run.status == Status.LAUNCHING
    if not placing or run.has_machine or run.stop is not None or run.asks:
        return False
    return not (_awaits(run) and _after_others(run, world) is not None)


def finds_offer(run: Run, world: World, now: float, futile: set[object]) -> bool:
    """It can request a machine now. `futile`: requests without an offer in this tick; they are looked at once."""
    if is_paused(run, world, now):
        return False
    request = request_key(run)
    if request in futile or len(futile) >= PASSED_MOST:
        return False
    if isinstance(choose(run, world, now), Offer):
        return True
    futile.add(request)
    return False


# --- after other runs -------------------------------------------------------------------------------------------------


def _awaits(run: Run) -> bool:
    """The runs of its `after` are looked at until it has had a machine in this generation."""
    return bool(run.policy.after) and not run.terminal and not run.has_begun


def _after_others(run: Run, world: World) -> NoOffer | None:
    """None = all are completed."""
    statuses = {name: world.statuses.get(name) for name in run.policy.after}
    ended = {name: status for name, status in statuses.items() if status in TERMINAL and status != Status.COMPLETED}
    if ended:
        name, status = next(iter(ended.items()))
        more = f" ({len(ended) - 1} more did not complete either)" if len(ended) > 1 else ""
        detail = f"it starts after {name}, which is {status}{more}; resume that run, or stop this one"
        return NoOffer(None, Cause.DEPENDENCY_FAILED, detail)
    left = [name for name, status in statuses.items() if status != Status.COMPLETED]
    return NoOffer(None, Cause.DEPENDENCY, f"it starts when {_listed(left)} completed") if left else None


def _listed(names: Sequence[str]) -> str:
    """`a is`, `a and b are`, `a, b and 7 others are`."""
    if len(names) == 1:
        return f"{names[0]} is"
    if len(names) <= 3:
        return f"{', '.join(names[:-1])} and {names[-1]} are"
    return f"{', '.join(names[:2])} and {len(names) - 2} others are"
