"""The forecast of a run: it is right for runs of other seeds, and it is reproducible, fast and silent on what nobody
knows."""

from __future__ import annotations

from dataclasses import replace
from math import inf, isinf
from random import Random

import pytest

from supervisor.lifecycle.rungs.futures import (
    Course,
    HeldMachine,
    Lifetimes,
    SpotPlace,
    Spread,
    only_on_demand,
    only_spot,
    outlook,
)
from supervisor.lifecycle.rungs.rule import Rung
from supervisor.lifecycle.rungs.survival import PRIOR
from tests.lifecycle.forecast_truth import GRID, HOUR_S, World, course_of, score

ROUGH = [world for world in GRID if world.name in ("rough, no deadline", "rough, much slack", "an old machine")]


def test_the_forecast_holds_for_runs_of_other_seeds() -> None:
    """p50 within 10 %, and 88 to 92 % of the runs stay within the p90, over the grid of situations. Where about half of
    the futures end on demand, the costs have a gap at their median, and a few runs more on one side move it from one
    end of the gap to the other; such a p50 is judged by its rank: 45 to 55 % of the runs cost less."""
    outcome = score(GRID, course_of, runs=150, futures=2000, tick_s=180.0, seed=2)
    assert outcome.ranks, "a situation on the edge between spot and on-demand is in the grid"
    assert len(outcome.off) >= 2 * len(GRID) - 3, "most are judged by their value"
    assert outcome.is_good, outcome


def _ageless(world: World) -> Course:
    """Every machine is as endangered as one in its first hour."""
    first_hour = next(share for age_s, share in PRIOR if age_s == HOUR_S)
    return replace(course_of(world), lifetimes=Lifetimes([(HOUR_S, first_hour**world.hazard_times)]))


def _never_waiting(world: World) -> Course:
    course = course_of(world)
    return replace(course, places=[replace(place, up=1.0) for place in course.places], return_per_s=inf)


@pytest.mark.parametrize("broken", [_ageless, _never_waiting])
def test_a_forecast_that_ignores_ages_or_waits_is_caught(broken) -> None:  # type: ignore[no-untyped-def]
    outcome = score(ROUGH, broken, runs=60, futures=600, tick_s=180.0, seed=2)
    assert not outcome.is_good, outcome


def _course(**changes: object) -> Course:
    course = Course(
        now=1000.0,
        left_s=Spread(10 * HOUR_S, 0.05),
        changeover_s=Spread(400.0, 0.3),
        save_every_s=600.0,
        lifetimes=Lifetimes(),
        return_per_s=2e-4,
        tick_s=30.0,
        places=[SpotPlace(3.0, 0.77), SpotPlace(3.2, 0.77)],
        on_demand_usd_per_h=10.0,
    )
    return replace(course, **changes)  # type: ignore[arg-type]


def test_equal_seeds_give_equal_figures() -> None:
    first, second, other = (outlook(_course(), Random(seed).random, 500) for seed in (1, 1, 2))
    assert (first.ends, first.costs) == (second.ends, second.costs)
    assert first.ends != other.ends


def test_on_demand_alone_is_exact() -> None:
    course = _course(rule=only_on_demand, places=[], left_s=Spread(10 * HOUR_S), changeover_s=Spread(360.0))
    seen = outlook(course, Random(1).random, 100)
    assert seen.usd is not None
    assert seen.ends_at.p10 == seen.ends_at.p90 == seen.on_demand_ends_at == 1000.0 + 10.1 * HOUR_S
    assert seen.usd.p50 == seen.on_demand_usd == pytest.approx(101.0)
    assert seen.kept is None


def test_the_deadline_is_kept_by_on_demand_where_spot_never_comes() -> None:
    never = [SpotPlace(3.0, 0.0)]
    course = _course(deadline=1000.0 + 14 * HOUR_S, places=never, return_per_s=0.0, left_s=Spread(10 * HOUR_S))
    seen = outlook(course, Random(1).random, 300)
    assert seen.usd is not None
    assert seen.kept == 1.0
    assert seen.ends_at.p50 > 1000.0 + 11 * HOUR_S  # it waits first, as the rule does
    assert seen.usd.p50 == pytest.approx(101.0, rel=0.01)


def test_a_run_that_gets_no_machine_never_ends() -> None:
    never = [SpotPlace(3.0, 0.0)]
    seen = outlook(_course(rule=only_spot, places=never, return_per_s=0.0), Random(1).random, 50)
    assert isinf(seen.ends_at.p10)
    assert isinf(seen.ends_at.p90)


def test_a_price_that_is_not_known_gives_no_cost() -> None:
    """Not even where only some futures use it; the end is known all the same."""
    seen = outlook(_course(places=[SpotPlace(3.0, 0.77), SpotPlace(None, 0.77)]), Random(1).random, 300)
    assert seen.usd is None
    assert seen.ends_at.p50 > 1000.0 + 9 * HOUR_S
    unused = _course(rule=only_spot, on_demand_usd_per_h=None)
    assert outlook(unused, Random(1).random, 300).usd is not None
    assert outlook(unused, Random(1).random, 300).on_demand_usd is None


def test_what_was_spent_is_part_of_the_cost() -> None:
    before, after = (outlook(_course(spent_usd=spent), Random(1).random, 300).usd for spent in (0.0, 7.0))
    assert before is not None
    assert after is not None
    assert after.p90 == pytest.approx(before.p90 + 7.0)


def test_an_old_machine_is_safer_than_a_new_one() -> None:
    """And a machine that has trained needs no changeover any more."""
    rough = Lifetimes([(age_s, share**6) for age_s, share in PRIOR])
    fresh, old = (
        outlook(_course(lifetimes=rough, held=HeldMachine(Rung.SPOT, age_s)), Random(1).random, 2000)
        for age_s in (0.0, 12 * HOUR_S)
    )
    assert old.ends_at.p50 < fresh.ends_at.p50
    starting = _course(held=HeldMachine(Rung.SPOT, 60.0, starting_s=90.0))
    training = _course(held=HeldMachine(Rung.SPOT, 60.0))
    assert outlook(starting, Random(1).random, 2000).ends_at.p50 > outlook(training, Random(1).random, 2000).ends_at.p50


def test_lifetimes_follow_their_table() -> None:
    lifetimes, random = Lifetimes(), Random(5)
    lives = [lifetimes.left_s(0.0, random.random()) for _ in range(20_000)]
    for age_s, share in PRIOR:
        assert sum(life > age_s for life in lives) / len(lives) == pytest.approx(share, abs=0.012)
    later = [lifetimes.left_s(3600.0, random.random()) for _ in range(20_000)]
    assert sum(life > 10_800.0 for life in later) / len(later) == pytest.approx(0.7447 / 0.8513, abs=0.012)
    assert isinf(Lifetimes([]).left_s(0.0, 0.999))


def test_long_runs_are_simulated_less_often() -> None:
    """The time that a forecast takes is bounded."""
    rough = Lifetimes([(age_s, share**9) for age_s, share in PRIOR])
    seen = outlook(_course(left_s=Spread(100 * HOUR_S, 0.05), lifetimes=rough), Random(1).random)
    assert 300 <= seen.futures < 10_000
