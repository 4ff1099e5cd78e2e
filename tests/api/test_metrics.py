"""GET /metrics: both formats, the counters, and a scrape while parts are unavailable."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace

import httpx
import pytest
from prometheus_client import parser
from prometheus_client.openmetrics import parser as openmetrics_parser

from supervisor.api.server import create_app
from supervisor.api.wire.deps import Services
from supervisor.contract.heartbeat import encode
from supervisor.domain.callers import Caller, Scope
from supervisor.domain.events import Event, EventKind
from supervisor.ports.store import StoreDown
from supervisor.services.reading import scrape as scraping
from supervisor.telemetry import metrics
from supervisor.telemetry.metrics import LABELS_MAX, OTHER, Counter, Histogram, Reading
from tests.services.bed import Bed, beat

STARTED = Event(EventKind.STARTED, "Training.")
Sample = tuple[str, frozenset[tuple[str, str]]]


def ask(services: Services, method: str, path: str, **more: object) -> httpx.Response:
    async def send() -> httpx.Response:
        transport = httpx.ASGITransport(create_app(services), raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8787") as client:
            return await client.request(method, path, **more)  # type: ignore[arg-type]

    return asyncio.run(send())


def scrape(services: Services) -> dict[Sample, float]:
    answer = ask(services, "GET", "/metrics")
    assert answer.status_code == 200, answer.text
    families = parser.text_string_to_metric_families(answer.text)
    return {(one.name, frozenset(one.labels.items())): one.value for family in families for one in family.samples}


def grown(before: Mapping[Sample, float], after: Mapping[Sample, float], name: str) -> dict[tuple[str, ...], float]:
    """Series of that name that grew: the values of their labels, sorted by the labels' names."""
    return {
        tuple(value for _, value in sorted(labels)): value - before.get((found, labels), 0.0)
        for (found, labels), value in after.items()
        if found == name and value != before.get((found, labels), 0.0)
    }


@pytest.fixture
def services(bed: Bed) -> Services:
    parts = {"database": lambda: scraping.database(bed.parts), "build": lambda: scraping.build(bed.parts, "sqlite")}
    return replace(bed.services, readings=parts)


def test_both_formats_are_what_their_readers_expect(services: Services) -> None:
    plain = ask(services, "GET", "/metrics")
    assert plain.headers["content-type"].startswith("text/plain; version=0.0.4")
    told = {family.name for family in parser.text_string_to_metric_families(plain.text)}
    modern = ask(services, "GET", "/metrics", headers={"Accept": "application/openmetrics-text; version=1.0.0"})
    assert modern.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    strict = {family.name for family in openmetrics_parser.text_string_to_metric_families(modern.text)}
    assert {"spot_beats_pushed", "spot_outbox_pending", "process_resident_memory_bytes"} <= told & strict
    assert "spot_build_info" in told
    assert "spot_build" in strict
    strange = ask(services, "GET", "/metrics", headers={"Accept": "text/plain; version=abc; escaping=\x01, */*;q=x"})
    assert strange.status_code == 200


def test_requests_are_counted_by_operation_and_never_by_path(services: Services, bed: Bed) -> None:
    bed.submit("digits-7")
    before = scrape(services)
    ask(services, "GET", "/v1/runs/digits-7")
    ask(services, "GET", "/v1/runs/digits-8")
    ask(services, "GET", "/v1/nowhere/secret-path")
    ask(services, "BREW", "/v1/runs")
    ask(services, "POST", "/v1/runs", content=b"{", headers={"Content-Type": "application/json"})
    after = scrape(services)
    counted = grown(before, after, "spot_http_requests_total")
    assert counted.pop(("GET", "show_metrics", "2xx")) == 1
    assert {labels: count for labels, count in counted.items() if labels[0] != "other"} == {
        ("GET", "show_run", "2xx"): 1, ("GET", "show_run", "4xx"): 1, ("GET", "none", "4xx"): 1,
        ("POST", "submit_run", "4xx"): 1,
    }  # fmt: skip
    assert sum(count for labels, count in counted.items() if labels[0] == "other") == 1
    assert grown(before, after, "spot_http_refusals_total") == {
        ("RUN_NOT_FOUND",): 1, ("NOT_FOUND",): 1, ("METHOD_NOT_ALLOWED",): 1, ("INVALID_JSON",): 1,
    }  # fmt: skip
    assert grown(before, after, "spot_http_request_duration_seconds_count")[("show_run",)] == 2
    assert "secret-path" not in str(after)


def test_beats_writes_and_commits_are_counted(services: Services, bed: Bed) -> None:
    bed.submit("digits-7")
    bed.train("digits-7")
    before = scrape(services)
    for sequence, nonce in ((1, "n0nce"), (2, "forged")):
        body = encode(beat("digits-7", sequence, nonce=nonce))
        ask(services, "POST", "/v1/runs/digits-7/heartbeat", content=body)
    bed.inbox.useful = lambda: False
    ask(services, "POST", "/v1/runs/digits-7/heartbeat", content=encode(beat("digits-7", 3)))
    after = scrape(services)
    assert grown(before, after, "spot_beats_pushed_total") == {("accepted",): 1, ("refused",): 1, ("away",): 1}
    assert grown(before, after, "spot_database_commit_seconds_count")[()] >= 1
    assert grown(before, after, "spot_database_write_wait_seconds_count")[()] >= 1


def test_it_responds_while_the_database_is_unavailable(services: Services, caplog: pytest.LogCaptureFixture) -> None:
    def away() -> Iterator[Reading]:
        yield metrics.OUTBOX_PENDING.reading(5)
        raise StoreDown("gone")

    def broken() -> Iterator[Reading]:
        raise KeyError("x")

    parts = {**services.readings, "database": away, "runs": broken}
    told = scrape(replace(services, readings=parts))
    up = {dict(labels)["part"]: value for (name, labels), value in told.items() if name == "spot_scrape_part_up"}
    assert up == {"database": 0.0, "runs": 0.0, "build": 1.0}
    assert ("spot_outbox_pending", frozenset()) not in told
    assert ("spot_sweeps_total", frozenset()) in told
    assert [record.exc_info[0] for record in caplog.records if record.exc_info] == [KeyError]


def test_a_part_that_hangs_delays_no_scrape() -> None:
    over = threading.Event()
    since = time.monotonic()

    def hangs() -> Iterator[Reading]:
        over.wait(30)
        yield metrics.OUTBOX_PENDING.reading(1)

    found = scraping.read({"database": hangs, "loop": tuple}, within_s=0.05)
    over.set()
    assert time.monotonic() - since < 10
    assert [(one.labels, one.value) for one in found] == [(("database",), 0.0), (("loop",), 1.0)]


def test_metrics_need_their_scope_and_no_other(services: Services) -> None:
    def only(*scopes: Scope) -> Services:
        return replace(services, identify=lambda header, request_id: Caller("o", "o", frozenset(scopes)))

    assert ask(only(Scope.METRICS), "GET", "/metrics").status_code == 200
    assert ask(only(Scope.METRICS), "GET", "/v1/runs").json()["code"] == "SCOPE_MISSING"
    assert ask(only(Scope.READ, Scope.WRITE), "GET", "/metrics").json()["meta"] == {"needed": "metrics:read"}


def test_waiting_announcements_are_counted_on_both_databases(any_bed: Bed) -> None:
    bed = any_bed
    nothing = {one.series.name: one.value for one in scraping.database(bed.parts)}
    assert set(nothing.values()) == {0.0}
    for number in range(3):
        bed.submit(f"digits-{number}")
        bed.train(f"digits-{number}")
        run = bed.run(f"digits-{number}")
        bed.store.add_events(run.key, [STARTED], bed.clock.now())
    bed.clock.advance(90.0)
    told = {one.series.name: one.value for one in scraping.database(bed.parts)}
    assert told["spot_outbox_pending"] == 3
    assert told["spot_outbox_overdue_seconds"] == pytest.approx(90.0)
    assert told["spot_database_connections_in_use"] == 0


def test_series_of_single_runs_are_those_of_the_oldest_and_no_more(bed: Bed) -> None:
    for number in range(4):
        bed.submit(f"digits-{number}")
    bed.train("digits-1")
    runs = [bed.run(f"digits-{number}") for number in (3, 1, 0, 2)]
    told = [(one.series.name, *one.labels, one.value) for one in scraping.runs(runs, 2, bed.clock.now())]
    assert told[0] == ("spot_run_cost_usd", "digits-0", 0.0)
    assert told[1:3] == [("spot_run_step", "digits-1", 120), ("spot_run_progress_ratio", "digits-1", 0.12)]
    assert told[3][:2] == ("spot_run_cost_usd", "digits-1")
    assert len(told) == 4
    assert list(scraping.runs(runs, 0, bed.clock.now())) == []


def test_labels_are_bounded_whatever_is_counted() -> None:
    counter, spread = Counter("x_total", "", "word"), Histogram("x_seconds", "", "word", bounds=(1.0, 2.0))
    for number in range(LABELS_MAX + 50):
        counter.add(str(number))
        spread.observe(1.5, str(number))
    assert len(counter.values()) == len(spread.spreads()) == LABELS_MAX + 1
    assert counter.values()[OTHER,] == 50
    assert spread.spreads()[OTHER,].cumulative() == [0, 50, 50]


def test_no_count_is_lost_between_threads() -> None:
    counter, spread = Counter("y_total", ""), Histogram("y_seconds", "", bounds=(1.0,))

    def count() -> None:
        for _ in range(2000):
            counter.add()
            spread.observe(0.5)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counter.values()[()] == spread.spreads()[()].counts[0] == 8000


def test_names_follow_the_rules_of_prometheus() -> None:
    names = [series.name for series in metrics.ALL]
    assert len(names) == len(set(names))
    for series in metrics.ALL:
        assert series.name.startswith("spot_")
        assert (series.kind == "counter") == series.name.endswith("_total"), series.name
        assert (series.kind == "info") == series.name.endswith("_info"), series.name
        assert series.kind != "histogram" or series.name.endswith("_seconds"), series.name
        assert not set(series.labels) & {"path", "owner", "host", "run_id", "url", "le"}, series.name
        assert ("run" in series.labels) == series.name.startswith("spot_run_"), series.name
