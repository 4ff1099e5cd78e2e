"""What a machine on Google Cloud costs: the sum of its parts, each from the first source that has it."""

import json
from dataclasses import asdict, replace
from datetime import date

import pytest

from supervisor.ports.platform import ShapePrice
from supervisor.providers.gce.config import DataDisk, GceConfig, NewDisk, offers, parse_shape
from supervisor.providers.gce.prices import pricebook
from supervisor.providers.gce.prices.pricebook import Pricebook, Row, packaged_rows, read_rows, write_rows

SHAPES = {
    "t4": parse_shape("n1-standard-8+1xnvidia-tesla-t4"),
    "l4": parse_shape("g2-standard-8"),
    "a100": parse_shape("a2-highgpu-1g"),
}
ZONES = ("us-east1-c", "us-east1-b", "europe-west4-a")
REGIONS = ("us-east1", "us-central1", "us-west1", "us-east4", "europe-west4", "asia-east1")
CONFIG = GceConfig("p", ZONES, SHAPES, store_url="gs://b")


def usd(kind: str, name: str, region: str, spot: float | None, on_demand: float | None, **more: str) -> Row:
    given = {"unit": pricebook.UNITS[kind], "dated": "2026-11-01", "source": "here", **more}
    return Row(kind, name, region, spot_usd=spot, on_demand_usd=on_demand, **given)


PARTS = (
    usd("machine", "n1-standard-8", "us-east1", 0.10, 0.40),
    usd("gpu", "nvidia-tesla-t4", "us-east1", 0.20, 0.35, dated="2026-10-03", source="there"),
    usd("disk", "pd-ssd", "us-east1", 0.146, 0.146),
    usd("address", "external-ip", "*", 0.0025, 0.005),
)


def price_of(rows: tuple[Row, ...], config: GceConfig = CONFIG, packaged: tuple[Row, ...] = ()) -> ShapePrice:
    return Pricebook(config, rows, packaged).prices["t4", "us-east1"]


def test_a_price_is_that_of_the_whole_machine() -> None:
    price = price_of(PARTS)
    assert price.spot_usd_per_h == pytest.approx(0.10 + 0.20 + 0.02 + 0.0025)  # 100 GB x $0.146 / 730 h
    assert price.on_demand_usd_per_h == pytest.approx(0.40 + 0.35 + 0.02 + 0.005)
    assert (price.dated, price.source) == ("2026-10-03", "here, there")  # the day of the oldest part


def test_without_an_address_of_its_own_a_machine_does_not_pay_for_one() -> None:
    assert price_of(PARTS, replace(CONFIG, external_ip=False)).spot_usd_per_h == pytest.approx(0.32)


def test_cards_are_paid_for_one_by_one_and_a_disk_by_its_size() -> None:
    shapes = {"t4": parse_shape("n1-standard-8+4xnvidia-tesla-t4")}
    config = replace(CONFIG, shapes=shapes, boot_disk_gb=200, external_ip=False)
    assert price_of(PARTS, config).spot_usd_per_h == pytest.approx(0.10 + 4 * 0.20 + 0.04)


@pytest.mark.parametrize("missing", range(len(PARTS)))
def test_one_unknown_part_makes_the_whole_price_unknown(missing: int) -> None:
    price = price_of(tuple(row for at, row in enumerate(PARTS) if at != missing))
    assert (price.spot_usd_per_h, price.on_demand_usd_per_h, price.dated) == (None, None, "")


def test_a_price_of_one_market_counts_for_that_market_only() -> None:
    price = price_of((replace(PARTS[0], spot_usd=None), *PARTS[1:]))
    assert price.spot_usd_per_h is None
    assert price.on_demand_usd_per_h == pytest.approx(0.775)


def test_the_price_of_another_region_is_never_used() -> None:
    assert Pricebook(CONFIG, PARTS, ()).prices["t4", "europe-west4"].spot_usd_per_h is None


def test_fetched_rows_come_before_the_package_part_by_part() -> None:
    fetched = (replace(PARTS[0], spot_usd=0.07, on_demand_usd=None, dated="2026-11-20", source="Google"),)
    price = price_of(fetched, packaged=PARTS)
    assert price.spot_usd_per_h == pytest.approx(0.07 + 0.2225)
    assert price.on_demand_usd_per_h == pytest.approx(0.775)  # the fetched row does not have it
    assert price.dated == "2026-10-03"


def test_the_settings_come_first_and_mean_the_whole_machine() -> None:
    price = price_of(PARTS, replace(CONFIG, prices={"t4": (1.2, 3.6)}))
    assert (price.spot_usd_per_h, price.on_demand_usd_per_h) == (1.2, 3.6)
    assert (price.source, price.dated) == ("settings", "")


def test_every_offered_shape_and_region_has_a_price_in_that_order() -> None:
    assert list(Pricebook(CONFIG).prices) == [
        (shape, region) for shape in SHAPES for region in ("us-east1", "europe-west4")
    ]


def test_a_disk_that_is_created_with_each_machine_is_part_of_its_price() -> None:
    plain, with_disk = price_of(PARTS), price_of(PARTS, replace(CONFIG, new_disk=NewDisk(500, "pd-ssd")))
    assert plain.spot_usd_per_h is not None
    assert with_disk.spot_usd_per_h == pytest.approx(plain.spot_usd_per_h + 500 * 0.146 / 730, abs=1e-5)


def test_with_a_data_disk_only_its_region_has_prices() -> None:
    config = replace(CONFIG, data_disk=DataDisk("d", "europe-west4-a"))
    assert {region for _, region in Pricebook(config).prices} == {"europe-west4"}


def test_offers_get_the_price_of_their_zone_s_region_and_market() -> None:
    book = Pricebook(CONFIG)
    for offer in offers(CONFIG):
        priced, price = book.priced(offer), book.prices[offer.placement.shape, offer.placement.region]
        expected = price.spot_usd_per_h if offer.placement.spot else price.on_demand_usd_per_h
        assert (priced.price_usd_per_h, priced.on_demand_usd_per_h) == (expected, price.on_demand_usd_per_h)
        assert expected is not None


# --- the table of the package ---


@pytest.mark.parametrize("region", REGIONS)
def test_the_package_has_t4_and_l4_machines_in_every_promised_region(region: str) -> None:
    config = replace(CONFIG, zones=(f"{region}-b",))
    for shape in ("t4", "l4"):
        price = Pricebook(config).prices[shape, region]
        assert price.spot_usd_per_h is not None
        assert price.on_demand_usd_per_h is not None
        assert 0 < price.spot_usd_per_h < price.on_demand_usd_per_h


def test_three_real_shapes_cost_what_google_s_list_says() -> None:
    """The sums by hand: us-east1, 100 GB of pd-ssd at $0.17, an address at $0.0025 (Spot) or $0.005."""
    disk = 100 * 0.17 / 730
    book = Pricebook(CONFIG)
    for shape, spot, on_demand in (
        ("t4", 0.11605 + 0.175, 0.379997 + 0.35),
        ("l4", 0.117473 + 0.2231, 0.293587 + 0.56004),
        ("a100", 0.36975 + 1.4341, 0.73948 + 2.933908),
    ):
        price = book.prices[shape, "us-east1"]
        assert price.spot_usd_per_h == pytest.approx(spot + disk + 0.0025, abs=0.00001)
        assert price.on_demand_usd_per_h == pytest.approx(on_demand + disk + 0.005, abs=0.00001)


@pytest.mark.parametrize("region", ["us-central1", "us-east4", "europe-west1", "asia-southeast1"])
def test_the_package_has_h100_machines_and_says_that_their_price_is_derived(region: str) -> None:
    rows = {row.key: row for row in packaged_rows()}
    single, eight = (rows[pricebook.MACHINE, name, region] for name in ("a3-highgpu-1g", "a3-highgpu-8g"))
    assert (single.source, single.dated) == ("derived from skynomad-artifact", "2025-10-22")
    assert single.spot_usd is not None
    assert single.on_demand_usd is not None
    assert eight.spot_usd == pytest.approx(8 * single.spot_usd)
    assert 1.5 < single.spot_usd < 3.0
    assert 10.0 < single.on_demand_usd < 15.0


def test_every_row_of_the_package_is_sound_and_says_where_and_when_it_was_read() -> None:
    rows = packaged_rows()
    assert len(rows) > 300
    assert all(row.dated <= "2026-11-22" and date.fromisoformat(row.dated).year >= 2024 for row in rows)
    assert {row.kind for row in rows} == set(pricebook.KINDS)


def test_rows_survive_being_written_and_read() -> None:
    assert read_rows(write_rows(PARTS)) == PARTS


GOOD = asdict(PARTS[0])


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        ({"spot_usd": 0.5}, "above on-demand"),
        ({"spot_usd": 0}, "above 0"),
        ({"spot_usd": -1.0}, "above 0"),
        ({"on_demand_usd": float("nan")}, "above 0"),
        ({"on_demand_usd": float("inf")}, "above 0"),
        ({"on_demand_usd": 10**400}, "above 0"),
        ({"on_demand_usd": "0.4"}, "above 0"),
        ({"on_demand_usd": True}, "above 0"),
        ({"spot_usd": None, "on_demand_usd": None}, "one of the two"),
        ({"dated": "2026-13-01"}, "not a day"),
        ({"dated": "yesterday"}, "not a day"),
        ({"source": " "}, "text is missing"),
        ({"source": None}, "text is missing"),
        ({"unit": "gb_month"}, "own unit"),
        ({"kind": "tea"}, "kinds are"),
        ({"more": 1}, "exactly the fields"),
    ],
)
def test_one_wrong_row_makes_the_table_invalid_and_is_named(broken: dict[str, object], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        read_rows(json.dumps({"rows": [{**GOOD, **broken}]}))


def test_a_row_that_appears_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="twice"):
        read_rows(write_rows((*PARTS, PARTS[0])))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"rows": {}}', '{"rows": [7]}'])
def test_a_text_that_is_not_a_table_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"table|fields|Expecting"):
        read_rows(text)
