"""The routes of prices: age, unknown prices, and a refresh that is all or nothing."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest

from supervisor.ports.platform import ShapePrice
from supervisor.ports.provider import NotSupported, ProviderUnavailable
from tests.fakes.platform import FakePlatform
from tests.services.bed import Bed, Client


def days_ago(bed: Bed, days: int) -> str:
    today: date = datetime.fromtimestamp(bed.clock.now(), UTC).date()
    return (today - timedelta(days=days)).isoformat()


def platform(bed: Bed) -> FakePlatform:
    found = bed.parts.platform
    assert isinstance(found, FakePlatform)
    return found


def test_prices_are_shown_with_their_age_and_source(bed: Bed, client: Client) -> None:
    platform(bed).price_list = (
        ShapePrice("t4", "us-east1", 0.3, 0.75, "Google", days_ago(bed, 31)),
        ShapePrice("l4", "us-east1", 0.3, 0.9, "Google", days_ago(bed, 30)),
        ShapePrice("a100", "us-east1", 1.2, 3.6, "settings"),
        ShapePrice("h100", "us-east1", None, 9.0, "Google", days_ago(bed, 0)),
        ShapePrice("x", "us-east1", None, None, ""),
    )
    prices = client.get("/v1/prices").json()["prices"]
    assert [(price["age_days"], price["old"]) for price in prices] == [
        (31, True), (30, False), (None, False), (0, False), (None, False),
    ]  # fmt: skip
    assert [price["saved_percent"] for price in prices] == [60.0, 66.7, 66.7, None, None]
    assert (prices[4]["spot_usd_per_h"], prices[4]["on_demand_usd_per_h"]) == (None, None)
    assert (prices[4]["source"], prices[2]["dated"]) == (None, None)


class Renewing(FakePlatform):
    """After a refresh it has `after`."""

    after: tuple[ShapePrice, ...] = ()

    def refresh_prices(self) -> tuple[ShapePrice, ...]:
        self._maybe_fail()
        self.price_list = self.after
        return self.after


def test_a_refresh_names_what_has_changed(bed: Bed) -> None:
    old, same = ShapePrice("t4", "us-east1", 0.3, None, "a"), ShapePrice("l4", "us-east1", 0.4, 0.9, "a")
    renewing = Renewing(price_list=(old, same))
    renewing.after = (ShapePrice("t4", "us-east1", 0.2, 0.8, "b", days_ago(bed, 0)), same)
    services = replace(bed.services, parts=replace(bed.parts, platform=renewing))
    refreshed = Client(services).post("/v1/prices/refresh", json={}).json()
    place = {"shape": "t4", "region": "us-east1"}
    assert refreshed["changed"] == [
        {**place, "market": "spot", "from_usd_per_h": 0.3, "to_usd_per_h": 0.2},
        {**place, "market": "on_demand", "from_usd_per_h": None, "to_usd_per_h": 0.8},
    ]
    assert refreshed["prices"][0]["age_days"] == 0


def test_a_refresh_that_fails_says_so_and_the_old_prices_stay(bed: Bed, client: Client) -> None:
    platform(bed).price_list = (ShapePrice("t4", "us-east1", 0.3, 0.75, "Google"),)
    platform(bed).trouble = ProviderUnavailable("Google does not answer")
    answer = client.post("/v1/prices/refresh")
    assert (answer.status_code, answer.json()["code"]) == (503, "UNAVAILABLE")
    assert "Google does not answer" in answer.json()["detail"]
    assert client.get("/v1/prices").json()["prices"][0]["spot_usd_per_h"] == 0.3


def test_a_refresh_without_a_price_source_is_refused(bed: Bed, client: Client) -> None:
    platform(bed).trouble = NotSupported("machines here cost what local_prices says")
    answer = client.post("/v1/prices/refresh")
    assert (answer.status_code, answer.json()["code"]) == (409, "NOT_SUPPORTED")
    assert "local_prices" in answer.json()["detail"]


@pytest.mark.parametrize("path", ["/v1/prices?region=x", "/v1/prices/refresh?now=1"])
def test_an_unknown_parameter_is_refused(client: Client, path: str) -> None:
    answer = client.post(path) if "refresh" in path else client.get(path)
    assert (answer.status_code, answer.json()["code"]) == (422, "INVALID_REQUEST")


def test_a_body_with_a_field_is_refused(client: Client) -> None:
    assert client.post("/v1/prices/refresh", json={"shape": "t4"}).status_code == 422
