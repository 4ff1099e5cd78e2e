"""The words of a simulated forecast: as exact as it is, and no more."""

from __future__ import annotations

from datetime import UTC, datetime
from math import inf

import pytest

from supervisor.wording.sessions import outlook_text

NOW = datetime(2026, 11, 26, 9, 0, tzinfo=UTC).timestamp()
H = 3600.0
ENDS = (NOW + 51.5 * H, NOW + 53 * H, NOW + 57.2 * H)


def test_the_sentence_of_the_forecast() -> None:
    text = outlook_text(NOW, ENDS, (9.2, 12.4, 17.1), on_demand_usd=41.2)
    assert text == "about $12 (9 to 17), done Sat 14:00 UTC (12:30 to 18:10); on-demand would cost $41"


def test_a_share_below_all_is_never_called_all() -> None:
    text = outlook_text(NOW, ENDS, (9.2, 12.4, 17.1), on_demand_usd=None, deadline=NOW + 80 * H, kept=0.99999)
    assert text.endswith("; the deadline Sun 17:00 UTC is kept in 99 of 100 futures")
    assert "on-demand" not in text


@pytest.mark.parametrize(
    ("usd", "begins"),
    [
        (None, "cost not known, done"),
        ((0.0, 0.0, 0.0), "no cost, done"),
        ((0.001, 0.002, 0.4), "about <$0.01 (<$0.01 to 0.40), done"),
        ((1.234, 2.345, 3.456), "about $2.35 ($1.23 to $3.46), done".replace("($", "(").replace("to $", "to ")),
        ((12.1, 12.2, 12.3), "about $12, done"),
    ],
)
def test_a_cost_has_the_digits_that_mean_something(usd: tuple[float, float, float] | None, begins: str) -> None:
    assert outlook_text(NOW, ENDS, usd, on_demand_usd=41.2).startswith(begins)


def test_a_day_is_named_where_it_is_another_one() -> None:
    text = outlook_text(NOW, (ENDS[0], ENDS[1], NOW + 64 * H), None, on_demand_usd=None)
    assert text == "cost not known, done Sat 14:00 UTC (12:30 to Sun 01:00)"


def test_an_end_that_may_never_come_says_so() -> None:
    assert outlook_text(NOW, (ENDS[0], ENDS[1], inf), None, on_demand_usd=None).endswith("(12:30 to never)")
    assert outlook_text(NOW, (ENDS[0], inf, inf), None, on_demand_usd=None).endswith("more than half of the futures")


def test_what_was_spent_is_not_what_on_demand_would_cost() -> None:
    text = outlook_text(NOW, ENDS, (79.2, 80.4, 81.1), on_demand_usd=91.0, spent=True)
    assert text.endswith("; with the rest on-demand $91")
