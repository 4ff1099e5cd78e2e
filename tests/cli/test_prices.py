"""spot prices: a table with ages, what is unknown, and what a refresh has changed."""

from __future__ import annotations

import json

from supervisor.wording.figures import DASH
from tests.cli.fake_api import squeezed

PRICE = {
    "shape": "t4", "region": "us-east1", "spot_usd_per_h": 0.3168, "on_demand_usd_per_h": 0.7583,
    "saved_percent": 58.2, "source": "Cloud Billing Catalog", "dated": "2026-11-22", "age_days": 0, "old": False,
}  # fmt: skip
OLD = {**PRICE, "region": "us-west1", "age_days": 470, "old": True}
UNKNOWN = {
    **PRICE, "region": "me-west1", "spot_usd_per_h": None, "on_demand_usd_per_h": None, "saved_percent": None,
    "source": None, "dated": None, "age_days": None,
}  # fmt: skip


def answer(*prices, **more):
    return {"provider": "gce", "prices": list(prices), "old_after_days": 30, **more}


def test_every_price_is_a_line_with_what_is_saved_and_its_age(api, spot) -> None:
    for words in (("prices",), ("prices", "ls")):
        api.respond("GET", "/v1/prices", answer(PRICE, OLD))
        ended = spot(*words)
        lines = [squeezed(line) for line in ended.lines]
        assert lines[0] == "SHAPE REGION SPOT ON-DEMAND SAVED AGE SOURCE"
        assert lines[1] == "t4 us-east1 $0.3168/h $0.7583/h 58 % today Cloud Billing Catalog"
        assert lines[2] == "t4 us-west1 $0.3168/h $0.7583/h 58 % 470 days ! Cloud Billing Catalog"
        assert "! 1 price older than 30 days: spot prices refresh" in ended.err


def test_the_options_of_the_list_need_no_second_word(api, spot) -> None:
    api.respond("GET", "/v1/prices", answer(PRICE))
    assert json.loads(spot("prices", "-o", "json").out)["prices"] == [PRICE]
    assert "refresh  Read the prices from Google now" in spot("prices", "--help").out
    assert spot("prices", "rfresh").code == 2


def test_what_is_unknown_is_never_nothing(api, spot) -> None:
    api.respond("GET", "/v1/prices", answer(UNKNOWN))
    ended = spot("prices")
    assert squeezed(ended.lines[1]) == f"t4 me-west1 unknown unknown {DASH} {DASH} {DASH}"
    assert "a run with a budget is refused" in ended.err
    assert "$0" not in ended.out


def test_a_refresh_shows_the_changes(api, spot) -> None:
    changed = [
        {"shape": "t4", "region": "us-east1", "market": "spot", "from_usd_per_h": 0.29, "to_usd_per_h": 0.3168},
        {"shape": "t4", "region": "us-east1", "market": "on_demand", "from_usd_per_h": None, "to_usd_per_h": 0.75},
    ]  # fmt: skip
    api.respond("POST", "/v1/prices/refresh", answer(PRICE, changed=changed))
    ended = spot("prices", "refresh")
    assert ended.code == 0
    assert ended.lines[-3:] == [
        "t4 in us-east1: spot $0.2900/h → $0.3168/h",
        "t4 in us-east1: on-demand unknown → $0.7500/h",
        "2 prices changed.",
    ]


def test_a_refresh_without_a_change_says_so(api, spot) -> None:
    api.respond("POST", "/v1/prices/refresh", answer(PRICE, changed=[]))
    assert spot("prices", "refresh").lines[-1] == "No price changed."


def test_as_json_it_is_the_whole_answer(api, spot) -> None:
    api.respond("GET", "/v1/prices", answer(PRICE))
    assert json.loads(spot("prices", "ls", "-o", "json").out) == answer(PRICE)
