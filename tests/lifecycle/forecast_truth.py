"""Runs as they really go, in ticks: a world beside the forecast's own simulation, to hold the forecast against.

It shares nothing with `futures` but the rule, which it asks in each tick in which the run has no machine, as
offers/market does. Zones have and lack machines as a chain over time, a machine is lost in a tick by its age, and the
training goes step by step from save to save.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import exp, inf, log
from random import Random
from statistics import fmean
from typing import NamedTuple

from supervisor.lifecycle.rungs.futures import (
    UP_SHARE,
    Course,
    Curve,
    HeldMachine,
    Lifetimes,
    Rule,
    SpotPlace,
    Spread,
    first_that_is_there,
    keeping_deadline,
    outlook,
)
from supervisor.lifecycle.rungs.rule import Rung, Situation, choose, life_s
from supervisor.lifecycle.rungs.survival import PRIOR, PRIOR_RETURN_PER_S

HOUR_S = 3600.0
SPOT_USD, ON_DEMAND_USD = 3.0, 10.0
CHANGEOVER = Spread(420.0, 0.3)
SAVE_EVERY_S = 900.0
PACE_SIGMA, HAZARD_SIGMA = 0.05, 0.3
GAP, GAP_RUNS = 1.5, 6


@dataclass(frozen=True, slots=True)
class World:
    """`life`: the lifetime of a new machine, by chance; None = by the hazard of `hazard_times` the prior."""

    name: str
    left_h: float
    zones: int
    hazard_times: float = 1.0
    deadline_h: float | None = None
    old_h: float | None = None  # it holds a spot machine of this age
    life: Callable[[Random], float] | None = None

    @property
    def rule(self) -> Rule:
        return first_that_is_there if self.deadline_h is None else keeping_deadline

    @property
    def curve(self) -> Curve:
        """The share of machines that outlive each age."""
        return [(age_s, share**self.hazard_times) for age_s, share in PRIOR]

    def hazard(self, age_s: float) -> float:
        """Losses per second at this age, straight from the table."""
        before_s, before = 0.0, 1.0
        rate = 0.0
        for until_s, share in PRIOR:
            rate = (log(before) - log(share)) / (until_s - before_s)
            if age_s < until_s:
                break
            before_s, before = until_s, share
        return self.hazard_times * rate


GRID = (
    World("calm, no deadline", 10.0, 3, 0.5),
    World("rough, no deadline", 10.0, 3, 4.0),
    World("calm, deadline", 10.0, 1, 0.5, 16.0),
    World("rough, deadline", 10.0, 1, 4.0, 16.0),
    World("rough, little slack", 10.0, 2, 4.0, 11.8),
    World("rough, much slack", 8.0, 1, 4.0, 20.0),
    World("short", 3.0, 2, 2.0, 6.0),
    World("an old machine", 10.0, 2, 4.0, 18.0, old_h=9.0),
)


class End(NamedTuple):
    at: float
    usd: float


def course_of(world: World) -> Course:
    """What the forecast knows of it."""
    return Course(
        now=0.0,
        left_s=Spread(world.left_h * HOUR_S, PACE_SIGMA),
        changeover_s=CHANGEOVER,
        save_every_s=SAVE_EVERY_S,
        lifetimes=Lifetimes(world.curve),
        return_per_s=PRIOR_RETURN_PER_S,
        tick_s=30.0,
        rule=world.rule,
        places=[SpotPlace(SPOT_USD, UP_SHARE)] * world.zones,
        on_demand_usd_per_h=ON_DEMAND_USD,
        deadline=None if world.deadline_h is None else world.deadline_h * HOUR_S,
        held=None if world.old_h is None else HeldMachine(Rung.SPOT, world.old_h * HOUR_S),
        hazard_sigma=HAZARD_SIGMA,
    )


class TrueRun:
    """One run in ticks of `tick_s`."""

    def __init__(self, world: World, random: Random, tick_s: float) -> None:
        self.world, self.random, self.tick_s = world, random, tick_s
        self.factor = exp(random.gauss(0.0, HAZARD_SIGMA))
        self.left_s = world.left_h * HOUR_S * exp(random.gauss(0.0, PACE_SIGMA))
        self.up = [random.random() < UP_SHARE for _ in range(world.zones)]
        self.held: Rung | None = None
        self.zone, self.age_s, self.starts_s, self.unsaved_s, self.life_s = 0, 0.0, 0.0, 0.0, inf
        self.at = self.usd = self.trained_s = 0.0
        self.losses = 0
        returns_p = 1.0 - exp(-PRIOR_RETURN_PER_S * tick_s)
        self.returns_p, self.leaves_p = returns_p, returns_p * (1.0 - UP_SHARE) / UP_SHARE
        if world.old_h is not None:
            self.held, self.age_s = Rung.SPOT, world.old_h * HOUR_S
            self.unsaved_s = random.random() * SAVE_EVERY_S

    def go(self) -> End:
        while True:
            self._zones()
            self._place()
            if self._tick():
                return End(self.at, self.usd)

    def _zones(self) -> None:
        random = self.random.random
        self.up = [random() >= self.leaves_p if up else random() < self.returns_p for up in self.up]

    def _place(self) -> None:
        if self.held is not None:
            return
        deadline_h = self.world.deadline_h
        situation = Situation(
            now=self.at,
            left_s=self.left_s,
            deadline=None if deadline_h is None else deadline_h * HOUR_S,
            changeover_s=CHANGEOVER.worst,
            tick_s=30.0,
            held=None,
            spot_is_up=any(self.up),
            spot_usd_per_h=SPOT_USD,
            on_demand_usd_per_h=ON_DEMAND_USD,
            spot_life_s=life_s(self.trained_s, self.losses),
        )
        at_once = Rung.SPOT if any(self.up) else Rung.ON_DEMAND
        rung = at_once if deadline_h is None else choose(situation).rung
        if rung is Rung.WAIT:
            return
        self.held, self.age_s, self.unsaved_s, self.life_s = rung, 0.0, 0.0, inf
        self.starts_s = CHANGEOVER.p50 * exp(self.random.gauss(0.0, CHANGEOVER.sigma))
        if rung is Rung.SPOT:
            self.zone = self.up.index(True)
            if self.world.life is not None:
                self.life_s = self.world.life(self.random)

    def _tick(self) -> bool:
        """Whether it is done."""
        if self.held is None:
            self.at += self.tick_s
            return False
        trains_s = max(0.0, self.tick_s - self.starts_s)
        lasts_s = self.tick_s if self.left_s > trains_s else self.tick_s - trains_s + self.left_s
        self.starts_s = max(0.0, self.starts_s - self.tick_s)
        self.left_s -= trains_s
        self.trained_s += trains_s
        self.unsaved_s = (self.unsaved_s + trains_s) % SAVE_EVERY_S
        self.usd += (SPOT_USD if self.held is Rung.SPOT else ON_DEMAND_USD) * lasts_s / HOUR_S
        self.at += lasts_s
        if self.left_s <= 0.0:
            return True
        if self.held is Rung.SPOT and self._dies():
            self.left_s += self.unsaved_s
            self.held, self.starts_s = None, 0.0
            self.losses += 1
            self.up[self.zone] = False
        self.age_s += self.tick_s
        return False

    def _dies(self) -> bool:
        if self.world.life is not None:
            return self.age_s + self.tick_s > self.life_s
        risk = self.factor * self.world.hazard(self.age_s + self.tick_s / 2.0) * self.tick_s
        return self.random.random() < 1.0 - exp(-risk)


@dataclass(frozen=True, slots=True)
class Score:
    """`off`: figure of a world -> how far its p50 is off. `ranks`: of the figures with a gap at the median: how far the
    share of runs below their p50 is from a half. `ends_held`, `costs_held`: the share of runs that stayed within the
    p90."""

    off: dict[str, float]
    ranks: dict[str, float]
    ends_held: float
    costs_held: float

    @property
    def worst_off(self) -> float:
        return max(abs(each) for each in self.off.values())

    @property
    def worst_rank(self) -> float:
        return max((abs(each) for each in self.ranks.values()), default=0.0)

    @property
    def is_good(self) -> bool:
        held = (self.ends_held, self.costs_held)
        return self.worst_off < 0.10 and self.worst_rank < 0.05 and all(0.88 <= each <= 0.92 for each in held)


def has_gap(futures: Sequence[float]) -> bool:
    """Whether a tenth of the futures more or less moves the median far: half of them end on spot and half on demand,
    which costs three times as much, so that the p50 is no stable figure."""
    return futures[int(0.6 * len(futures))] > GAP * futures[int(0.4 * len(futures))]


def score(
    worlds: Sequence[World], known: Callable[[World], Course], *, runs: int, futures: int, tick_s: float, seed: int
) -> Score:
    """`known`: what the forecast goes by. The runs have other seeds than the forecasts. A world with a gap has
    GAP_RUNS times as many runs: the rank of 150 runs is uncertain by 4 %."""
    off, ranks, held = dict[str, float](), dict[str, float](), dict[str, list[float]]({"end": [], "cost": []})
    for number, world in enumerate(worlds):
        forecast = outlook(known(world), Random(f"forecast {seed} {number}").random, futures)
        assert forecast.usd is not None
        count = runs * GAP_RUNS if has_gap(forecast.costs) else runs
        truth = [TrueRun(world, Random(f"truth {seed} {number} {each}"), tick_s).go() for each in range(count)]
        figures = {
            "end": (forecast.ends_at, forecast.ends, sorted(end.at for end in truth)),
            "cost": (forecast.usd, forecast.costs, sorted(end.usd for end in truth)),
        }
        for name, (told, of_futures, seen) in figures.items():
            if has_gap(of_futures):
                ranks[f"{world.name}: {name}"] = bisect_right(seen, told.p50) / count - 0.5
            else:
                off[f"{world.name}: {name}"] = told.p50 / seen[count // 2] - 1.0
            held[name].append(bisect_right(seen, told.p90) / count)
    return Score(off, ranks, fmean(held["end"]), fmean(held["cost"]))
