"""What `race: 2` brings on measured rounds: the wait for a machine, its calls and its cost, with and without it.

In each round a run needs a machine for the ten minutes of the round, unless it still waits for the one of an earlier
round. It requests as the supervisor would: the production choice of zones, the lessons of refusals with their
cool-downs, what own calls teach, and the production rule of the race. Nothing of these rules is repeated here. Each
zone and round grants what one of its 16 measured requests, drawn at random, was granted; the draws are the same with
and without the race. A wait ends with the answer of the call that is granted.

Most needs get a machine from their first request, and no race can help them. So the median is that of the needs whose
first zone refuses. Means are those of all needs. A machine that loses is billed for a minute; that is compared with the
bill of the machines that run, which live as long as their zones stay up.

The rule of the race was chosen on the first half of the rounds. Reported is the second half.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import fmean, median

from supervisor.domain.causes import Cause
from supervisor.domain.machines import Offer
from supervisor.domain.policies import Policy
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.lifecycle.offers.choosing import choose
from supervisor.lifecycle.phases.placing import next_try
from supervisor.lifecycle.phases.racing import rival_offer
from tools.policy import traces
from tools.policy.relocations import ANSWER_S, BEGIN, PROVIDER, Memory
from tools.policy.traces import REQUESTS, TICK_S, Zone

LOSER_S = 60.0  # the least that is billed; it is deleted with the next listing, 30 s later
CALLS_REMEMBERED = 200  # of about ten hours; with more of them the figures are the same, and the replay is slower
SEEDS = 3
MEDIAN, COST, MEAN = -0.5, 0.01, 0.0  # the targets, as shares of what it is without a race
PAIR = 2  # with so few zones most waits are those for one of the two to come back, which no race can halve
SETS: dict[str, tuple[str, ...]] = {
    "us-central1": ("us-central1",),
    "the US": ("us",),
    "all": ("",),
    "us-east": ("us-east",),
    "four scarce zones": ("us-east5-a", "europe-west3-c", "us-east4-b", "europe-west1-c"),
    "europe": ("europe",),
}


@dataclass(frozen=True, slots=True)
class Need:
    wait_s: float
    refused: bool  # by the zone of the first request
    calls: int
    losers: int


def replay(zones: Sequence[Zone], width: int, seed: int = 0, rounds: range | None = None) -> list[Need]:
    memory = Memory((zone.name for zone in zones), CALLS_REMEMBERED)
    up = {zone.name: _drawn(zone, seed) for zone in zones}
    now, needs = BEGIN, []
    for number in rounds or range(len(zones[0].up)):
        start = BEGIN + number * TICK_S
        if start >= now:
            need = _need(up, memory, width, start)
            needs.append(need)
            now = start + need.wait_s
    return needs


def _drawn(zone: Zone, seed: int) -> tuple[bool, ...]:
    """Whether one of the requests that were measured, at random, was granted."""
    chance = random.Random(f"{seed} {zone.name}")  # noqa: S311
    return tuple(chance.randrange(REQUESTS) < count for count in zone.granted)


def _need(up: dict[str, tuple[bool, ...]], memory: Memory, width: int, start: float) -> Need:
    now = start
    run = Run(1, "replay", "me", "cell", PROVIDER, 1, Status.RECOVERING, Policy(race=width), now, now, now)
    calls, refused = 0, False
    while True:
        memory.read(now)
        choice = choose(run, memory.world, now)
        if not isinstance(choice, Offer):
            now = max(now + 1.0, choice.until or now)
            continue
        first = next_try(run, choice, memory.world, now)
        beside = rival_offer(run, first, memory.world, now)
        places = [choice.placement, *([] if beside is None else [beside.placement])]
        index = int((now - BEGIN) // TICK_S) % len(up[choice.placement.zone])
        granting = [place for place in places if up[place.zone][index]]
        refused = refused or (calls == 0 and choice.placement not in granting)
        calls += len(places)
        now += ANSWER_S
        for place in places:
            if place not in granting:
                memory.refused(place, now, is_second=place is not places[0])
            else:
                memory.obtained(place, now, until=now + (TICK_S if place == granting[0] else LOSER_S))
        if granting:
            return Need(now - start, refused, calls, len(granting) - 1)
        run = replace(run, try_=replace(first, ended_at=now, outcome=Cause.NO_CAPACITY))


def report(
    names: Sequence[str] = tuple(SETS), rounds: range | None = None, seeds: int = SEEDS
) -> tuple[list[str], list[str]]:
    """The lines of `make policy` about races, and the targets that are missed. `rounds`: None = the second half."""
    lines, missed = [], []
    for name in names:
        zones = [zone for zone in traces.zones() if zone.name.startswith(SETS[name])]
        ticks = len(zones[0].up)
        of_half = range(ticks // 2, ticks) if rounds is None else rounds
        alone, raced = (
            [need for seed in range(seeds) for need in replay(zones, width, seed, of_half)] for width in (1, 2)
        )
        before, after = (median(need.wait_s for need in needs if need.refused) for needs in (alone, raced))
        mean, raced_mean = (fmean(need.wait_s for need in needs) for needs in (alone, raced))
        calls, raced_calls = (fmean(need.calls for need in needs) for needs in (alone, raced))
        cost = fmean(need.losers for need in raced) * LOSER_S / _lives_s(zones)
        lines.append(
            f"race in {name} ({len(zones)} zones), {sum(need.refused for need in alone)} of {len(alone):,} needs "
            f"refused: their median wait {before:.0f} -> {after:.0f} s ({after / before - 1:+.0%}), the mean of all "
            f"{mean:.1f} -> {raced_mean:.1f} s ({raced_mean / mean - 1:+.1%}), calls {calls:.2f} -> "
            f"{raced_calls:.2f}, cost {cost:+.2%}"
        )
        shares = {
            "median wait": (after / before - 1, MEDIAN if len(zones) > PAIR else 0.0),
            "mean wait": (raced_mean / mean - 1, MEAN),
            "cost": (cost, COST),
        }
        missed += [
            f"a race in {name} changes the {what} by {share:+.1%}, {most:+.0%} at most"
            for what, (share, most) in shares.items()
            if share > most
        ]
    return lines, missed


def _lives_s(zones: Sequence[Zone]) -> float:
    """How long a machine of these zones lives."""
    losses = sum(before and not after for zone in zones for before, after in pairwise(zone.up))
    return sum(map(sum, (zone.up for zone in zones))) * TICK_S / max(1, losses)
