"""Prices fetched from Google: what is read from the price list, what is kept, and what a failed read changes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path

import pytest
from google.oauth2.credentials import Credentials

from supervisor.domain.findings import OK, WARN
from supervisor.ports.provider import ProviderUnavailable
from supervisor.providers.gce.calls.clients import Compute
from supervisor.providers.gce.calls.retry import Retry
from supervisor.providers.gce.config import GceConfig, offers, parse_shape
from supervisor.providers.gce.prices.pricebook import Pricebook, Row, read_rows
from supervisor.providers.gce.prices.pricing import FILE, Pricing, finding
from tests.cloud.billing import PER_GIB_MONTH, BillingFake, switched_off
from tests.cloud.compute import ComputeFake
from tests.cloud.discovery import Oracle
from tests.cloud.web import Request, Reset, Response

NOW = datetime(2026, 11, 22, 12, tzinfo=UTC).timestamp()
TODAY = "2026-11-22"
CONFIG = GceConfig(
    "p",
    ("us-east1-c", "us-east1-b"),
    {"t4": parse_shape("n1-standard-8+1xnvidia-tesla-t4"), "l4": parse_shape("g2-standard-8")},
    store_url="gs://b",
)
DEEP = b"[" * 100_000
DISK_PER_H = 100 * 0.2 / 730


@dataclass
class Desk:
    """Google's price list and machine types, and what asks them. `violations`: what the discovery documents forbid."""

    billing: BillingFake
    compute: ComputeFake
    folder: Path
    violations: list[str]

    def pricing(self, config: GceConfig = CONFIG, days: int = 0, billing: bool = True) -> Pricing:
        """As after a restart, so many days later: nothing is remembered but the file."""
        listed = self.billing.url if billing else ""
        config = replace(config, endpoint=self.compute.url, billing_endpoint=listed)
        clock = [0.0]

        def pause(seconds: float) -> None:
            clock[0] += seconds

        retry = Retry(deadline_s=5.0, per_try_s=2.0, monotonic=lambda: clock[0], sleep=pause)
        compute = Compute(config, retry, lambda: Credentials("a-token"))
        return Pricing(config, compute, lambda: NOW + days * 86400, self.folder)

    def fetched(self, kind: str, name: str) -> Row:
        """The row that the last refresh has kept for us-east1."""
        rows = read_rows((self.folder / FILE).read_text(encoding="utf-8"))
        return next(row for row in rows if row.key == (kind, name, "us-east1"))


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    violations: list[str] = []
    billing_oracle, compute_oracle = Oracle("cloudbilling"), Oracle("compute")

    def of_billing(asked: Request, told: Response) -> None:
        violations.extend(billing_oracle.check(asked, told))

    def of_compute(asked: Request, told: Response) -> None:
        violations.extend(compute_oracle.check(asked, told))

    made = Desk(BillingFake(of_billing), ComputeFake(lambda: NOW, of_compute), tmp_path, violations)
    made.billing.add_machine("N1 Predefined Instance", 0.03, 0.004, 0.25)
    made.billing.add_machine("G2 Instance", 0.025, 0.003, 0.4)
    made.billing.add_card("Nvidia Tesla T4 GPU", 0.4, 0.16)
    made.billing.add_card("Nvidia L4 GPU", 0.5, 0.2)
    made.billing.add("SSD backed PD Capacity", 0.2, unit=PER_GIB_MONTH, group="SSD")
    made.billing.add_addresses(0.004, 0.002)
    yield made
    made.billing.close()
    made.compute.close()
    assert violations == []


def test_a_machine_costs_what_its_cores_memory_cards_disk_and_address_cost(desk: Desk) -> None:
    t4, l4 = desk.pricing().refresh()
    of_type = 8 * 0.03 + 30 * 0.004
    assert t4.on_demand_usd_per_h == pytest.approx(of_type + 0.4 + DISK_PER_H + 0.004, abs=1e-5)
    assert t4.spot_usd_per_h == pytest.approx(of_type / 4 + 0.16 + DISK_PER_H + 0.002, abs=1e-5)
    assert (t4.source, t4.dated) == ("Cloud Billing Catalog", TODAY)
    assert l4.on_demand_usd_per_h == pytest.approx(8 * 0.025 + 32 * 0.003 + 0.5 + DISK_PER_H + 0.004, abs=1e-5)


def test_a_list_of_many_pages_is_read_to_its_end(desk: Desk) -> None:
    whole = desk.pricing().refresh()
    desk.billing.page_rows = 3
    assert desk.pricing().refresh() == whole
    assert len(desk.billing.requests) > 5


def test_new_prices_are_used_at_once_and_after_a_restart(desk: Desk) -> None:
    pricing = desk.pricing()
    given = offers(CONFIG)
    before = pricing.priced(given)
    told = pricing.refresh()
    after = pricing.priced(given)
    assert after != before
    assert after[0].price_usd_per_h == told[0].spot_usd_per_h
    assert desk.pricing().priced(given) == after


def test_offers_are_made_anew_only_when_something_has_changed(desk: Desk) -> None:
    pricing, given = desk.pricing(), offers(CONFIG)
    assert pricing.priced(given) is pricing.priced(given)


def test_the_settings_own_prices_stay(desk: Desk) -> None:
    told = desk.pricing(replace(CONFIG, prices={"t4": (1.2, 3.6)})).refresh()
    assert (told[0].spot_usd_per_h, told[0].source) == (1.2, "settings")


def test_what_the_list_does_not_name_stays_as_it_was(desk: Desk) -> None:
    desk.billing.skus = [sku for sku in desk.billing.skus if "G2" not in sku["description"]]
    desk.compute.advice.offered = False
    t4, l4 = desk.pricing().refresh()
    assert t4.dated == TODAY
    assert l4.on_demand_usd_per_h is not None
    assert l4.dated < TODAY
    assert "skypilot" in l4.source


def test_a_spot_price_that_the_list_does_not_tell_comes_from_the_price_history(desk: Desk) -> None:
    """Only of a machine type as it is: what the history says of added cards is not documented."""
    desk.billing.skus = [sku for sku in desk.billing.skus if "Spot Preemptible G2" not in sku["description"]]
    desk.compute.advice.price_usd["us-east1"] = 0.321
    l4 = desk.pricing().refresh()[1]
    assert l4.spot_usd_per_h == pytest.approx(0.321 + DISK_PER_H + 0.002, abs=1e-5)
    assert "Spot price history" in l4.source


def test_two_different_prices_for_one_part_are_no_price(desk: Desk) -> None:
    desk.billing.add("Nvidia Tesla T4 GPU running in Somewhere", 9.9, group="GPU")
    t4 = desk.pricing().refresh()[0]
    card = 0.35  # the package's: of the list's two neither is believed
    assert t4.on_demand_usd_per_h == pytest.approx(8 * 0.03 + 30 * 0.004 + card + DISK_PER_H + 0.004, abs=1e-5)
    assert t4.dated < TODAY


def test_a_disk_whose_first_gigabytes_are_free_is_priced_by_the_rest(desk: Desk) -> None:
    desk.billing.add("Storage PD Capacity", 0.05, unit=PER_GIB_MONTH, free_first=30.0)
    desk.pricing(replace(CONFIG, boot_disk_type="pd-standard")).refresh()
    assert desk.fetched("disk", "pd-standard").on_demand_usd == 0.05


def test_decimal_gigabytes_are_turned_into_binary_ones(desk: Desk) -> None:
    desk.billing.add("Balanced PD Capacity", 0.1, unit="GBy.mo")
    desk.pricing(replace(CONFIG, boot_disk_type="pd-balanced")).refresh()
    assert desk.fetched("disk", "pd-balanced").on_demand_usd == pytest.approx(0.1 * 1.073741824, abs=1e-6)


@pytest.mark.parametrize(
    "fault",
    [
        Response(503, b"away"),
        Response(200, b"<html>"),
        Reset(),
        Response(500, {}),
        Response(200, []),
        Response(403, DEEP),
        Response(200, DEEP),
        Response(200, {"skus": [None]}),
    ],
)
def test_a_read_that_breaks_off_changes_nothing(desk: Desk, fault: Response | Exception) -> None:
    desk.pricing().refresh()
    kept = (desk.folder / FILE).read_bytes()
    desk.billing.add_card("Nvidia L4 GPU", 0.9, 0.8)
    desk.billing.page_rows = 10
    desk.billing.fail_page(2, fault)
    pricing = desk.pricing()
    before = pricing.prices()
    try:
        with pytest.raises(ProviderUnavailable, match="old"):
            pricing.refresh()
    finally:
        desk.violations.clear()  # what Google would never say
    assert pricing.prices() == before
    assert (desk.folder / FILE).read_bytes() == kept
    assert [path.name for path in desk.folder.iterdir()] == [FILE]


def test_where_the_price_list_is_switched_off_the_command_that_switches_it_on_is_told(desk: Desk) -> None:
    desk.billing.fail_page(1, switched_off())
    with pytest.raises(ProviderUnavailable, match="gcloud services enable cloudbilling"):
        desk.pricing().refresh()


def test_another_currency_is_refused(desk: Desk) -> None:
    desk.billing.currency = "EUR"
    desk.billing.add_card("Nvidia L4 GPU", 0.9, 0.8)
    with pytest.raises(ProviderUnavailable, match="EUR"):
        desk.pricing().refresh()


def test_a_list_that_names_nothing_of_ours_is_no_answer(desk: Desk) -> None:
    desk.billing.skus = []
    desk.compute.advice.offered = False
    with pytest.raises(ProviderUnavailable, match="none of the offered machines"):
        desk.pricing().refresh()


def test_a_file_that_cannot_be_written_changes_nothing(desk: Desk) -> None:
    (desk.folder / FILE).mkdir()
    pricing = desk.pricing()
    before = pricing.prices()
    with pytest.raises(ProviderUnavailable, match="could not be written"):
        pricing.refresh()
    assert pricing.prices() == before
    assert [path.name for path in desk.folder.iterdir()] == [FILE]


@pytest.mark.parametrize("units", [10**6, 10**400], ids=["a million", "too long"])
def test_a_price_beyond_all_reason_is_not_kept(desk: Desk, units: int) -> None:
    for sku in desk.billing.skus:
        if "L4" in sku["description"]:
            rates = sku["pricingInfo"][0]["pricingExpression"]["tieredRates"]
            rates[-1]["unitPrice"] = {"currencyCode": "USD", "units": str(units), "nanos": 1}
    try:
        with pytest.raises(ProviderUnavailable, match="old prices stay"):
            desk.pricing().refresh()
    finally:
        desk.violations.clear()  # what Google would never say
    assert list(desk.folder.iterdir()) == []


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b'{"rows": [{"kind": "machine"}]}', DEEP])
def test_a_spoilt_file_is_told_and_the_package_s_prices_are_used(desk: Desk, content: bytes) -> None:
    (desk.folder / FILE).write_bytes(content)
    pricing = desk.pricing()
    assert pricing.prices() == tuple(Pricebook(CONFIG).prices.values())
    assert pricing.finding().result == WARN
    assert FILE in pricing.finding().fact
    pricing.refresh()
    assert pricing.finding().result == OK


# --- at the start ---


def test_old_prices_are_asked_for_anew_at_the_first_start_and_not_again(desk: Desk) -> None:
    """The package's are more than a year old; what was fetched is left alone for 60 days."""
    assert desk.pricing().refresh_old()
    assert {one.dated for one in desk.pricing().prices()} == {TODAY}
    asked = len(desk.billing.requests)
    assert not desk.pricing().refresh_old()
    assert len(desk.billing.requests) == asked
    for days, again in ((60, False), (61, True)):
        assert desk.pricing(days=days).refresh_old() is again


def test_a_start_where_google_does_not_answer_keeps_the_old_prices_and_tells_their_age(
    desk: Desk, caplog: pytest.LogCaptureFixture
) -> None:
    before = desk.pricing().prices()
    desk.billing.fail_page(1, switched_off())
    pricing = desk.pricing()
    assert not pricing.refresh_old()
    assert pricing.prices() == before
    assert "days old, and the refresh failed" in caplog.text


def test_prices_of_the_settings_are_not_asked_for_at_the_start(desk: Desk) -> None:
    own = replace(CONFIG, prices={"t4": (1.0, 2.0), "l4": (1.0, 2.0)})
    assert not desk.pricing(own).refresh_old()
    assert desk.billing.requests == []


def test_a_stand_in_for_compute_engine_never_leads_to_googles_own_price_list(desk: Desk) -> None:
    pricing = desk.pricing(CONFIG, billing=False)
    assert not pricing.refresh_old()
    assert desk.billing.requests == []


# --- the doctor's line ---


def test_the_doctor_warns_of_old_prices_and_says_what_to_type(desk: Desk) -> None:
    pricing = desk.pricing()
    told = pricing.finding()
    assert (told.result, told.fix) == (WARN, "spot prices refresh")
    assert "days old" in told.fact
    pricing.refresh()
    assert pricing.finding().result == OK


def test_the_doctor_warns_of_unknown_prices_and_names_them(desk: Desk) -> None:
    config = replace(CONFIG, zones=("us-east1-c", "me-central1-a"))
    told = desk.pricing(config).finding()
    assert told.result == WARN
    assert "t4 in me-central1" in told.fact
    assert "us-east1" not in told.fact
    assert told.fix.startswith("spot prices refresh; or set gce_prices, such as t4=")


def test_prices_of_the_settings_do_not_age() -> None:
    book = Pricebook(replace(CONFIG, prices={"t4": (1.0, 2.0), "l4": (1.0, 2.0)}))
    assert finding(tuple(book.prices.values()), date(2036, 1, 1)).result == OK


def test_a_price_may_be_thirty_days_old_and_no_older(desk: Desk) -> None:
    desk.pricing().refresh()
    prices = desk.pricing().prices()
    assert finding(prices, date(2026, 12, 22)).result == OK
    assert finding(prices, date(2026, 12, 23)).result == WARN
