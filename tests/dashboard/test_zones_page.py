"""The zones page: what is known of each offer, filtered and ordered by the address."""

from __future__ import annotations

import pytest

from supervisor.dashboard.pages import machines
from supervisor.dashboard.words import look_of, price
from supervisor.domain.machines import ZoneRecord
from supervisor.wording.figures import DASH
from tests.dashboard.document import Element
from tests.dashboard.looking import Looking
from tests.services.bed import Bed


@pytest.fixture
def learned(bed: Bed) -> Looking:
    """Zone a cools, zone b was refused some time ago and lost two machines; of c nothing is known."""
    now = bed.clock.now()
    records = {
        "local-a": ZoneRecord(6, now + 200, "no_capacity", "no room <b>at all</b>", (), now - 60),
        "local-b": ZoneRecord(1, now - 30, "quota", "0 of 0", (now - 900, now - 600)),
    }
    for zone, record in records.items():
        bed.store.put_zone("local cell", ("local", zone, "cpu", True), record)
    return Looking(bed.services, now=bed.clock.now)


def rows(page: Element) -> list[str]:
    """Zone and kind of each row, in order."""
    body = page.one("tbody")
    return [
        f"{row.one('th').one('a').text} {row.attributes['id'].rpartition('-spot')[1][1:]}".strip()
        for row in body.all("tr")
    ]


def test_what_keeps_runs_waiting_comes_first_with_the_reason(learned: Looking) -> None:
    page = learned.page("/ui/zones")
    assert rows(page)[:2] == ["local-a spot", "local-b spot"]
    first, second = page.one("tbody").all("tr")[:2]
    assert first.one("span", class_="chip").text == "◔ cooling"
    assert "next request in 3 min 20 s" in first.text
    assert "no_capacity , 6 refusals in a row no room <b>at all</b>" in first.text
    assert "1 min ago" in first.text
    assert not first.all("b")
    assert second.one("span", class_="chip").text == "✗ refused"
    assert "2 machines last 10 min ago" in second.text
    counts = [one.text for one in page.one(id="zones-counts").all("a")]
    assert counts == ["All 6", "◔ 1 cooling", "✗ 1 refused", "○ 4 unknown"]


def test_filters_and_order_stand_in_the_address(learned: Looking) -> None:
    assert rows(learned.page("/ui/zones?state=refused")) == ["local-b spot"]
    assert len(rows(learned.page("/ui/zones?market=on-demand&region=local&shape=cpu"))) == 3
    page = learned.page("/ui/zones?sort=price&market=spot")
    assert rows(page) == ["local-a spot", "local-b spot", "local-c spot"]
    assert page.one("select", id="market").one("option", selected="").text == "spot"
    cooling = page.one(id="zones-counts").all("a")[1]
    assert cooling.attributes["href"] == "/ui/zones?state=cooling&market=spot&sort=price"
    nothing = learned.page("/ui/zones?shape=%3Cscript%3E")
    assert "No offer matches" in nothing.text
    assert not nothing.all("tbody")


def test_machines_of_ours_are_counted(learned: Looking, bed: Bed) -> None:
    bed.submit("digits-7")
    bed.train("digits-7")
    row = learned.page("/ui/zones?sort=price").one("tr", id="offer-local-local-a-cpu-spot")
    assert [cell.text for cell in row.all("td", class_="figure")] == ["$0.10", "1"]


def test_an_empty_house_says_so(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bed.provider, "offers", lambda: ())
    page = Looking(bed.services, now=bed.clock.now).page("/ui/zones")
    assert "The provider offers no machines" in page.text


def offer(state: str, zone: str, **more: object) -> dict[str, object]:
    return {
        "state": state, "zone": zone, "region": "r", "shape": "s", "spot": True, "market": "spot",
        "cool_until": None, "machines": 0, "price_usd_per_h": 1.0, **more,
    }  # fmt: skip


def test_orders() -> None:
    told = [
        offer("unknown", "a", price_usd_per_h=None),
        offer("good", "b", machines=1, price_usd_per_h=2.0),
        offer("good", "c", machines=5),
        offer("cooling", "d", cool_until="2026-01-01T00:09:00Z"),
        offer("cooling", "e", cool_until="2026-01-01T00:05:00Z"),
        offer("frozen", "f", price_usd_per_h=0.5),
    ]
    orders = {
        name: "".join(one["zone"] for one in machines.choose(told, {"sort": name}).shown)
        for name in ("", "price", "provider", "nonsense")
    }
    assert orders == {"": "edcbaf", "price": "fcdeba", "provider": "abcdef", "nonsense": "edcbaf"}
    assert look_of("frozen", machines.OFFER_LOOKS).text == "frozen"


@pytest.mark.parametrize(
    ("usd_per_h", "expected"),
    [(None, DASH), (0.0, "$0.00"), (0.2871, "$0.2871"), (0.1, "$0.10"), (1.5, "$1.50"), (34.2, "$34.20")],
)
def test_prices_of_an_hour(usd_per_h: float | None, expected: str) -> None:
    assert price(usd_per_h) == expected
