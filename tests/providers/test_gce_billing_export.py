"""Google's billing export: what is read from BigQuery, and that a part of it is never taken for the whole."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from unittest.mock import ANY

import pytest
from google.oauth2.credentials import Credentials

from supervisor.ports.platform import BillKind
from supervisor.ports.provider import ProviderUnavailable
from supervisor.providers.gce.calls.clients import Compute
from supervisor.providers.gce.calls.retry import Retry
from supervisor.providers.gce.config import GceConfig
from supervisor.providers.gce.prices import export
from supervisor.providers.gce.prices.export import BillingExport, kind_of
from tests.cloud.bigquery import TABLE, BigQueryFake, exported, refused
from tests.cloud.web import Response

SINCE = datetime(2026, 10, 27, tzinfo=UTC).timestamp()
UNTIL = datetime(2026, 11, 27, tzinfo=UTC).timestamp()


@pytest.fixture
def bigquery() -> Iterator[BigQueryFake]:
    fake = BigQueryFake(exported())
    yield fake
    fake.server.close()


def reader(bigquery: BigQueryFake) -> BillingExport:
    clock = [0.0]

    def pause(seconds: float) -> None:
        clock[0] += seconds

    config = GceConfig("p", ("us-east1-c",), {}, bigquery_endpoint=bigquery.server.url, billing_table=TABLE)
    retry = Retry(deadline_s=5.0, per_try_s=2.0, monotonic=lambda: clock[0], sleep=pause)
    return BillingExport(config, Compute(config, retry, lambda: Credentials("a-token")))


def test_lines_are_sums_of_a_day_a_machine_and_a_kind(bigquery: BigQueryFake) -> None:
    bill = reader(bigquery).read(SINCE, UNTIL, "s-1")
    first = [line for line in bill.lines if (line.day, line.machine_name) == ("2026-11-20", "spot-digits-1-a1")]
    assert sum(line.seconds for line in first if line.seconds is not None) == 7200, "core-seconds of two hours / 8"
    sums = {kind: round(sum(line.cost for line in first if line.kind is kind), 9) for kind in BillKind}
    assert sums == {"machine": 0.42, "disk": 0.05, "address": 0.01, "traffic": 0, "other": 0}
    assert {line.launch_id for line in first} == {"1.1.1", ""}, "a disk has no label"
    euros = [line for line in bill.lines if line.currency == "EUR"]
    assert [(line.kind, line.cost, round(line.credits, 9), line.rate) for line in euros] == [
        (BillKind.MACHINE, 0.5, -0.15, 0.5), (BillKind.TRAFFIC, 0.01, 0, 0.5), (BillKind.OTHER, -0.02, 0, 0.5),
    ]  # fmt: skip
    assert all(line.machine_name.startswith("spot-") for line in bill.lines)
    assert bill.settled_until == datetime(2026, 11, 22, 12, tzinfo=UTC).timestamp(), "48 h before the newest export"


def test_a_read_is_bounded_and_says_what_it_costs(bigquery: BigQueryFake) -> None:
    bills = reader(bigquery)
    bills.read(SINCE, UNTIL, "s-1")
    assert [query.json()["maximumBytesBilled"] for query in bigquery.queries] == [str(10 << 30)] * 2
    assert "at most $0.12" in bills.terms, "2 x 10/1024 x 6.25"


def test_pages_and_a_slow_job_are_waited_for(bigquery: BigQueryFake) -> None:
    whole = reader(bigquery).read(SINCE, UNTIL, "s-1")
    bigquery.page_rows, bigquery.slow = 2, 3
    assert reader(bigquery).read(SINCE, UNTIL, "s-1") == whole


def test_an_empty_export_says_nothing_about_any_day(bigquery: BigQueryFake) -> None:
    bigquery.rows.clear()
    bill = reader(bigquery).read(SINCE, UNTIL, "s-1")
    assert (bill.lines, bill.settled_until) == ((), None)


def test_what_is_not_whole_is_no_bill(bigquery: BigQueryFake, monkeypatch: pytest.MonkeyPatch) -> None:
    bigquery.page_rows, bigquery.lost_page = 2, True
    with pytest.raises(ProviderUnavailable, match="2 of 11 rows came"):
        reader(bigquery).read(SINCE, UNTIL, "s-1")
    bigquery.lost_page, bigquery.slow = False, 99
    with pytest.raises(ProviderUnavailable, match="has not ended"):
        reader(bigquery).read(SINCE, UNTIL, "s-1")
    bigquery.slow = 0
    monkeypatch.setattr(export, "PAGES", 2)
    with pytest.raises(ProviderUnavailable, match="6 of 11 rows came"):
        reader(bigquery).read(SINCE, UNTIL, "s-1")
    bigquery.page_rows, bigquery.renamed = 1000, True
    with pytest.raises(ProviderUnavailable, match="its columns are x"):
        reader(bigquery).read(SINCE, UNTIL, "s-1")


def test_a_part_that_is_taken_for_the_whole_is_caught(bigquery: BigQueryFake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken variant: the rows are not counted, so a smaller bill comes of a page without rows."""
    with monkeypatch.context() as broken:
        broken.setattr(export, "int", lambda text: ANY, raising=False)
        with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
            test_what_is_not_whole_is_no_bill(bigquery, monkeypatch)
        assert len(reader(bigquery).read(SINCE, UNTIL, "s-1").lines) == 2


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (refused(401, "authError", "Invalid credentials"), "credentials could not be renewed"),
        (refused(403, "accessDenied", "Access Denied: Table p:billing"), "roles/bigquery.dataViewer"),
        (refused(403, "accessNotConfigured", "BigQuery API has not been used"), "services enable bigquery"),
        (refused(429, "rateLimitExceeded", "Slow down"), "429"),
        (refused(404, "notFound", "Not found: Table"), "404"),
        (Response(200, {"jobComplete": True, "errors": [{"reason": "backendError", "message": "broken"}]}), "broken"),
        (Response(200, {"jobComplete": True}), "not understood"),
        (Response(200, {"jobComplete": True, "schema": {"fields": [{"name": "newest"}]}, "rows": [{"f": []}]}), "not"),
    ],
)
def test_a_refusal_is_no_bill(bigquery: BigQueryFake, answer: Response, text: str) -> None:
    bigquery.refusal = answer
    with pytest.raises(ProviderUnavailable, match=text):
        reader(bigquery).read(SINCE, UNTIL, "s-1")


def test_a_query_over_too_many_bytes_costs_nothing_and_names_the_setting(bigquery: BigQueryFake) -> None:
    bigquery.bytes_scanned = 11 << 30
    with pytest.raises(ProviderUnavailable, match="set a larger gce_billing_read_gb"):
        reader(bigquery).read(SINCE, UNTIL, "s-1")
    assert len(bigquery.queries) == 1


def test_kinds_by_the_texts_of_the_price_list() -> None:
    for text, kind in (
        ("N1 Predefined Instance Core running in Americas", BillKind.MACHINE),
        ("Compute optimized Ram running in Americas", BillKind.MACHINE),
        ("SSD backed Local Storage", BillKind.MACHINE),
        ("Balanced PD Capacity", BillKind.DISK),
        ("Hyperdisk Balanced Capacity", BillKind.DISK),
        ("External IP Charge on a Standard VM", BillKind.ADDRESS),
        ("Network Internet Data Transfer Out from Americas to Americas", BillKind.TRAFFIC),
        ("A new word", BillKind.OTHER),
    ):
        assert kind_of(text, "regular") is kind
        assert kind_of(text, "tax") is BillKind.OTHER
