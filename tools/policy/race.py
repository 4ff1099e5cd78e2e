"""What `race: 2` brings on measured rounds: the wait for a machine, its calls and its cost, with and without it.

A round says, for each zone, how many of 16 requests for a spot H100 machine were granted (10 minutes each). In every
round one run needs a machine. It requests as the supervisor would: the production choice of zones, the lessons of
refusals with their cool-downs, and the production rule of the race. A request is granted with the share that was
measured; the same requests are granted with and without the race. `waits` are those of the needs whose first zone
refuses: only they can race, and for all others both are equal. A machine that loses is billed for a minute, the least
that the platform bills for; that is compared with the bill of the machines that run.
"""

from __future__ import annotations

import csv
import random
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from statistics import mean, median

from supervisor.domain.causes import Cause
from supervisor.domain.machines import Offer, OfferKey, Placement, ZoneRecord, offer_key
from supervisor.domain.observation import CreateFailed, World
from supervisor.domain.policies import Knobs, Policy
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.lifecycle.offers.choosing import choose
from supervisor.lifecycle.offers.lessons import lessons_of, without_failures
from supervisor.lifecycle.phases.placing import next_try
from supervisor.lifecycle.phases.racing import rival_offer

ROUND_S, ASKED = 600.0, 16
ANSWER_S = 15.0  # of a create call that is refused; of one that is granted, it is the same with and without a race
LOSER_S = 60.0  # the least that is billed; it is deleted with the next listing, 30 s later
BEGIN = 1_760_000_000.0
PROVIDER, SHAPE = "cloud", "a3-highgpu-1g"


@dataclass(frozen=True, slots=True)
class Need:
    wait_s: float
    refused: int  # calls
    losers: int
    calls: int


@dataclass
class Needs:
    """One need in each round, with the memory of zones that all of them share."""

    zones: dict[str, tuple[int, ...]]
    width: int
    seed: int
    world: World = field(init=False)

    def __post_init__(self) -> None:
        offers = tuple(Offer(_place(zone), 2.37, 11.0) for zone in self.zones)
        self.world = World(Knobs("s"), offers={PROVIDER: offers}, races=frozenset({PROVIDER}))

    def all(self) -> list[Need]:
        rounds = len(next(iter(self.zones.values())))
        return [self.need(number) for number in range(rounds)]

    def need(self, number: int) -> Need:
        start = now = BEGIN + number * ROUND_S
        policy = Policy(race=self.width)
        run = Run(1, "replay", "me", "cell", PROVIDER, 1, Status.RECOVERING, policy, now, now, now)
        refused = losers = calls = 0
        while True:
            choice = choose(run, replace(self.world, judged={}, choices=None), now)
            if not isinstance(choice, Offer):
                now = max(now + 1.0, choice.until or now)
                if now - start > 86_400.0:
                    return Need(now - start, refused, losers, calls)
                continue
            first = next_try(run, choice, self.world, now)
            beside = rival_offer(run, first, self.world, now)
            places = [choice.placement, *([] if beside is None else [beside.placement])]
            calls += len(places)
            granted = [place for place in places if self._grants(place.zone, now, number)]
            answered = now + ANSWER_S
            for place in places:
                self._learn(place, place in granted, answered)
            refused += len(places) - len(granted)
            if granted:
                return Need(now - start, refused, len(granted) - 1, calls)
            now = answered
            run = replace(run, try_=replace(first, ended_at=now, outcome=Cause.NO_CAPACITY))

    def _grants(self, zone: str, now: float, number: int) -> bool:
        """The same for every width: it follows from the zone, the need and the minute."""
        rounds = self.zones[zone]
        index = min(len(rounds) - 1, int((now - BEGIN) // ROUND_S))
        chance = random.Random(f"{self.seed} {zone} {number} {int((now - BEGIN) // ROUND_S)}").random()  # noqa: S311
        return chance < rounds[index] / ASKED

    def _learn(self, place: Placement, granted: bool, now: float) -> None:
        key = offer_key(place)
        record = self.world.zones.get(key)
        if granted:
            self._keep([(key, without_failures(record) if record is not None else None)])
        else:
            failed = CreateFailed("1.1.1", Cause.NO_CAPACITY, "ZONE_RESOURCE_POOL_EXHAUSTED")
            self._keep(lessons_of(failed, place, self.world, now))

    def _keep(self, lessons: Iterable[tuple[OfferKey, ZoneRecord | None]]) -> None:
        zones = dict(self.world.zones)
        for key, record in lessons:
            if record is None:
                zones.pop(key, None)
            else:
                zones[key] = record
        self.world = replace(self.world, zones=zones)


def _place(zone: str) -> Placement:
    return Placement(PROVIDER, zone.rpartition("-")[0], zone, SHAPE, True)


def rounds_of(path: Path, names: Iterable[str] = ()) -> dict[str, tuple[int, ...]]:
    """Zone -> granted requests of each round; `names`: in this order, none = all."""
    with path.open(newline="") as file:
        head, *rows = csv.reader(file)
    wanted = list(names) or head[1:]
    return {name: tuple(int(row[head.index(name)]) for row in rows) for name in wanted}


def compare(zones: dict[str, tuple[int, ...]], lived_s: float, seeds: int = 2) -> str:
    """`lived_s`: how long a machine of these zones lives."""
    alone: list[Need] = []
    raced: list[Need] = []
    for seed in range(seeds):
        alone += Needs(zones, 1, seed).all()
        raced += Needs(zones, 2, seed).all()
    pairs = [(a, b) for a, b in zip(alone, raced, strict=True) if a.refused]
    waits = [(a.wait_s, b.wait_s) for a, b in pairs]
    if not waits:
        return "no zone refuses first"
    before, after = median(a for a, _ in waits), median(b for _, b in waits)
    cost = sum(need.losers for need in raced) * LOSER_S / (len(raced) * lived_s)
    return (
        f"{len(zones)} zones, {len(waits)} of {len(alone)} needs refused: median wait {before:.0f} -> {after:.0f} s "
        f"({after / before - 1:+.0%}), mean {mean(a for a, _ in waits):.0f} -> {mean(b for _, b in waits):.0f} s; "
        f"{sum(n.calls for n in alone) / len(alone):.2f} -> {sum(n.calls for n in raced) / len(raced):.2f} calls; "
        f"cost {cost:+.2%}"
    )


SETS = {
    "us": ("us-central1-a", "us-central1-b", "us-central1-c", "us-east4-a", "us-east4-b", "us-east5-a", "us-west1-a",
           "us-west1-b"),
    "us-east": ("us-east4-a", "us-east4-b", "us-east5-a"),
    "scarce": ("us-east5-a", "europe-west3-c", "us-east4-b", "europe-west1-c"),
    "europe": ("europe-west1-c", "europe-west3-c"),
}  # fmt: skip


def main(path: Path) -> None:
    for name, zones in {**SETS}.items():
        data = rounds_of(path, zones)
        ups = sum(count > 0 for counts in data.values() for count in counts)
        ends = sum(a > 0 and not b for counts in data.values() for a, b in pairwise(counts))
        lived_s = ups * ROUND_S / max(1, ends)
        sys.stdout.write(f"{name}: machines live {lived_s / 3600:.1f} h; {compare(data, lived_s)}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
