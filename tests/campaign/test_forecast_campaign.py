"""The forecast against many more runs than `make test` has time for, and against lifetimes that were measured."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import replace
from math import inf
from pathlib import Path
from random import Random
from statistics import fmean

import pytest

from supervisor.lifecycle.rungs.futures import Course, Lifetimes
from supervisor.lifecycle.rungs.survival import Curve, Life, kaplan_meier, surviving
from tests.lifecycle.forecast_truth import GRID, Score, World, course_of, score

LIFETIMES = Path(__file__).parents[2] / "tools" / "policy" / "data" / "lifetimes_2019.csv"
LAST_MINUTE = 23 * 60  # after 24 h that platform ended each machine
REAL = (
    World("real, no deadline", 10.0, 3),
    World("real, much slack", 10.0, 1, deadline_h=18.0),
    World("real, little slack", 10.0, 2, deadline_h=11.8),
    World("real, long", 30.0, 2, deadline_h=42.0),
)


@pytest.mark.parametrize("seed", [11, 12, 13])
def test_the_forecast_holds_for_many_runs(seed: int) -> None:
    outcome = score(GRID, course_of, runs=500, futures=10_000, tick_s=60.0, seed=seed)
    assert outcome.is_good, outcome


def _halves(path: Path) -> tuple[list[Life], list[Life]]:
    """The measured machines in two halves, by chance."""
    halves: tuple[list[Life], list[Life]] = ([], [])
    chance = Random("halves")
    with path.open() as file:
        for row in csv.DictReader(file):
            age_s = 60.0 * (int(row["minute"]) - 0.5)
            for is_lost, count in ((True, int(row["lost"])), (False, int(row["stopped"]))):
                for _ in range(count):
                    late = int(row["minute"]) > LAST_MINUTE
                    halves[chance.random() < 0.5].append(
                        Life(60.0 * LAST_MINUTE if late else age_s, is_lost and not late)
                    )
    return halves


def _life_of(curve: Curve) -> Callable[[Random], float]:
    def life(random: Random) -> float:
        chance = random.random()
        return next((age_s for age_s, share in curve if share < chance), inf)

    return life


def test_the_forecast_holds_for_lifetimes_that_were_measured() -> None:
    """The forecast knows one half of the machines, at a few ages; the runs live as the other half did. Each half has
    both parts once: where one lives longer by chance, its forecast is off one way, and that of the other the other."""
    halves = [kaplan_meier(half) for half in _halves(LIFETIMES)]
    outcomes = [_outcome(*halves), _outcome(*reversed(halves))]
    assert all(max(outcome.worst_off, outcome.worst_rank) < 0.10 for outcome in outcomes), outcomes
    assert 0.88 <= fmean(outcome.ends_held for outcome in outcomes) <= 0.92, outcomes
    assert 0.88 <= fmean(outcome.costs_held for outcome in outcomes) <= 0.92, outcomes


def _outcome(seen: Curve, held_out: Curve) -> Score:
    ages = (300.0, 600.0, 1800.0, 3600.0, 7200.0, 14_400.0, 28_800.0, 43_200.0, 64_800.0, 82_800.0)
    known, life = Lifetimes([(age, surviving(seen, age)) for age in ages]), _life_of(held_out)

    def course(world: World) -> Course:
        return replace(course_of(world), lifetimes=known)

    return score([replace(world, life=life) for world in REAL], course, runs=500, futures=10_000, tick_s=60.0, seed=3)
