"""Lives of machines by Kaplan-Meier, the prior of 1,442 machines, and how soon a zone comes back."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.domain.machines import Call, OfferKey
from supervisor.lifecycle.rungs import survival
from supervisor.lifecycle.rungs.survival import (
    HORIZON_S,
    NOTHING_KNOWN,
    PRIOR,
    PRIOR_RETURN_PER_S,
    Life,
    curve_of,
    expected_life_s,
    kaplan_meier,
    outlooks,
    surviving,
)

DATA = Path(__file__).resolve().parents[2] / "tools" / "policy" / "data"
NOW = 1_700_000_000.0
HOUR = 3600.0


def key(zone: str = "a") -> OfferKey:
    return "gce", zone, "t4", True


def machine(at: float, hours: float | None, lost: bool = True, zone: str = "a") -> Call:
    ended_at = None if hours is None else at + hours * HOUR
    return Call(key(zone), at, obtained=True, ended_at=ended_at, lost=lost and hours is not None)


def refusal(at: float, zone: str = "a") -> Call:
    return Call(key(zone), at, obtained=False)


def lives_of_2019() -> list[Life]:
    with (DATA / "lifetimes_2019.csv").open(newline="") as file:
        rows = [{name: int(value) for name, value in row.items()} for row in csv.DictReader(file)]
    lost = [Life(60.0 * row["minute"], True, float(row["lost"])) for row in rows if row["lost"]]
    return [*lost, *(Life(60.0 * row["minute"], False, float(row["stopped"])) for row in rows if row["stopped"])]


def test_machines_that_users_stopped_are_censored() -> None:
    lives = lives_of_2019()
    assert sum(life.weight for life in lives) == 1442
    assert sum(life.weight for life in lives if not life.lost) == 725
    gone = 1.0 - surviving(kaplan_meier(lives), HOUR)
    naive = sum(life.weight for life in lives if life.age_s <= HOUR) / 1442
    assert (round(gone, 3), round(naive, 2)) == (0.149, 0.39)


def test_the_prior_of_the_code_is_that_of_the_table() -> None:
    curve = kaplan_meier(lives_of_2019())
    assert {age_s: pytest.approx(share, abs=5e-5) for age_s, share in PRIOR} == {
        age_s: surviving(curve, age_s) for age_s, _ in PRIOR
    }
    assert math.exp(-600.0 * PRIOR_RETURN_PER_S) == pytest.approx(1.0 - 0.13)


def test_a_stopped_machine_was_at_risk_until_then() -> None:
    curve = kaplan_meier([Life(10.0, True), Life(10.0, False), Life(20.0, True), Life(30.0, False)])
    assert curve == ((10.0, 0.75), (20.0, 0.375))
    assert [surviving(curve, age_s) for age_s in (0.0, 9.0, 10.0, 25.0)] == [1.0, 1.0, 0.75, 0.375]


def test_the_expected_life_is_the_area_below_the_curve() -> None:
    assert expected_life_s(()) == HORIZON_S
    assert expected_life_s(((HOUR, 0.5), (2 * HOUR, 0.0))) == pytest.approx(1.5 * HOUR)
    assert expected_life_s(((HOUR, 0.5), (2 * HOUR, 0.0)), HOUR) == pytest.approx(HOUR)
    assert expected_life_s(((HOUR, 0.0),), 2 * HOUR) == 0.0


def test_losses_come_early_so_an_old_machine_is_safer() -> None:
    """The share that is lost in the next hour, at the age of 0, 1, 2, 4 and 8 hours."""
    curve = kaplan_meier(lives_of_2019())
    lost = [1.0 - surviving(curve, (age + 1) * HOUR) / surviving(curve, age * HOUR) for age in (0, 1, 2, 4, 8)]
    assert lost == sorted(lost, reverse=True)
    assert lost[0] > 5 * lost[-1]


def test_own_machines_move_the_outlook_away_from_the_prior() -> None:
    short = outlooks([machine(NOW - 40 * HOUR + n, 0.5) for n in range(20)], NOW)[key()]
    assert (short.lives, short.lost) == (20, 20)
    assert short.life_s < 0.45 * NOTHING_KNOWN.life_s
    stopped = outlooks([machine(NOW - 40 * HOUR + n, 0.5, lost=False) for n in range(20)], NOW)[key()]
    assert stopped.lost == 0
    assert stopped.life_s > NOTHING_KNOWN.life_s, "a stop by the user is no loss"
    living = outlooks([machine(NOW - 20 * HOUR, None)], NOW)[key()]
    assert (living.lives, living.lost, living.up_at) == (1, 0, NOW)
    assert living.life_s > NOTHING_KNOWN.life_s


def test_the_curve_of_own_machines_begins_with_the_prior() -> None:
    """Machines of all zones count, those of another shape do not; at the ages of the prior only."""
    other = replace(machine(NOW - 40 * HOUR, 0.1), offer=("gce", "a", "a100", True))
    curve, lives = curve_of([other, refusal(NOW - HOUR)], key(), NOW)
    assert (lives, curve) == (0, tuple((age_s, pytest.approx(share)) for age_s, share in PRIOR))
    own = [machine(NOW - 40 * HOUR + n, 0.5, zone=zone) for n in range(2) for zone in "ab"]
    curve, lives = curve_of(own, key("c"), NOW)
    assert (lives, [age_s for age_s, _ in curve]) == (4, [age_s for age_s, _ in PRIOR])
    assert surviving(curve, 600.0) == pytest.approx(1 - 0.0643 / 2, abs=1e-4)
    assert surviving(curve, HOUR) < 0.5


def test_the_return_rate_is_measured_between_close_calls() -> None:
    """Down after a refusal and after a loss; up at the next call 10 minutes later."""
    calls = [refusal(NOW - 9 * HOUR), machine(NOW - 9 * HOUR + 600, 1.0), machine(NOW - 8 * HOUR + 1200, 1.0)]
    quick = outlooks([*calls, refusal(NOW - 5 * HOUR), machine(NOW - 5 * HOUR + 600, None)], NOW)[key()]
    assert quick.is_measured
    assert quick.return_per_s > PRIOR_RETURN_PER_S
    slow = outlooks([*calls[:2], *(refusal(NOW - 2 * HOUR + 600 * n) for n in range(12))], NOW)[key()]
    assert slow.is_measured
    assert slow.return_per_s < PRIOR_RETURN_PER_S
    far = outlooks([refusal(NOW - 9 * HOUR), machine(NOW - 4 * HOUR, None)] * 3, NOW)[key()]
    assert not far.is_measured, "nobody knows when it came back in these hours"


def test_zones_of_one_shape_share_what_they_show() -> None:
    down = [refusal(NOW - 2 * HOUR + 600 * n, "b") for n in range(12)]
    seen = outlooks([*down, machine(NOW - 2 * HOUR + 7200 - 60, 0.001, zone="b"), machine(NOW - HOUR, None)], NOW)
    assert seen[key("a")].return_per_s < PRIOR_RETURN_PER_S
    assert seen[key("a")].return_per_s > seen[key("b")].return_per_s
    assert seen[key("a")].is_measured


def test_calls_of_a_future_clock_do_not_count() -> None:
    assert outlooks([refusal(NOW + 60.0)], NOW) == {}


def test_the_figures_show_a_curve_without_censoring(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken variant: stops that count as losses."""
    honest = survival.kaplan_meier

    def naive(lives: list[Life]) -> survival.Curve:
        return honest([Life(life.age_s, True, life.weight) for life in lives])

    monkeypatch.setattr(f"{__name__}.kaplan_meier", naive)
    with pytest.raises(AssertionError):
        test_machines_that_users_stopped_are_censored()
