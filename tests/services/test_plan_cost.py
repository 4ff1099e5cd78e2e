"""What a plan says a run would cost: to the cent where prices are known, and never a guess where one is not."""

from __future__ import annotations

from supervisor.domain.machines import Offer, Placement
from supervisor.domain.policies import Limits
from supervisor.services.plan.plan_view import cost_json


def offer(zone: str, price: float | None, on_demand: float | None = 0.75, spot: bool = True) -> Offer:
    return Offer(Placement("gce", "us-east1", zone, "l4", spot), price, on_demand)


def test_the_most_that_the_runtime_allows_is_counted_with_the_dearest_place() -> None:
    told = cost_json([offer("c", 0.20), offer("b", 0.25)], Limits(max_runtime_s=48 * 3600.0))
    assert (told["usd_per_h"], told["least_usd_per_h"], told["most_usd_per_h"]) == (0.20, 0.20, 0.25)
    assert told["max_runtime_usd"] == told["at_most_usd"] == 12.0
    assert any("48 h \N{MULTIPLICATION SIGN} $0.25/h = $12.00 at most" in line for line in told["lines"])


def test_the_smaller_of_runtime_and_budget_is_the_most() -> None:
    told = cost_json([offer("c", 0.25)], Limits(max_runtime_s=48 * 3600.0, budget_usd=5.0))
    assert told["at_most_usd"] == 5.0
    assert "The budget ends it at $5.00." in told["lines"]


def test_an_unknown_price_is_said_and_makes_the_sum_unknown() -> None:
    told = cost_json([offer("c", 0.25), offer("b", None)], Limits(max_runtime_s=3600.0))
    assert not told["known"]
    assert told["most_usd_per_h"] is None
    assert told["at_most_usd"] is None
    assert "Unknown prices, not counted: l4 spot in b." in told["lines"]
    assert any("the sum is unknown" in line for line in told["lines"])


def test_an_unknown_first_price_is_no_zero() -> None:
    told = cost_json([offer("c", None)], Limits())
    assert told["usd_per_h"] is None
    assert told["lines"][0] == "First: l4 spot in c; its price is unknown."


def test_without_any_limit_a_day_is_counted() -> None:
    told = cost_json([offer("c", 0.25)], Limits())
    assert told["at_most_usd"] is None
    assert "a day costs $6.00 at most" in told["lines"][-1]


def test_what_spot_saves_is_said_and_what_on_demand_does_not_is_not() -> None:
    assert "67 % saved" in cost_json([offer("c", 0.25)], Limits())["lines"][0]
    assert "saved" not in cost_json([offer("c", 0.75, spot=False)], Limits())["lines"][0]


def test_a_price_below_ten_cents_keeps_its_digits() -> None:
    assert cost_json([offer("c", 0.0314)], Limits())["lines"][0].startswith("First: l4 spot in c at $0.0314/h")


def test_where_no_place_is_offered_no_price_is_told() -> None:
    told = cost_json([], Limits(max_runtime_s=3600.0))
    assert told["usd_per_h"] is None
    assert told["lines"] == ["No offer fits this run, so there is no price."]
