"""What watching costs: a scrape over ten thousand running runs, and a log line that is looked through for secrets."""

from __future__ import annotations

import io
import logging
import time
from collections.abc import Callable, Mapping

from supervisor.telemetry import logs as telemetry
from supervisor.telemetry import redaction
from tests.benchmarks import house, scene
from tests.benchmarks.client import clients
from tests.benchmarks.row import Bench, Figure, Row, Size

PER_RUN = 1000
WATCHED = {**scene.FULL_UP, "SPOT_METRICS_PER_RUN": str(PER_RUN)}
LINES = 2000
FIELDS = {
    telemetry.ACTION: "attempt_ended",
    telemetry.RUN_ID: "digits-7",
    telemetry.ATTEMPT: 3,
    telemetry.ZONE: "us-east1-d",
    telemetry.REASON: "the cloud's record of 06:40 says that it was preempted",
}


def scraped(size: Size) -> Mapping[str, Figure]:
    with scene.folder() as folder:
        scene.crowd(scene.settings_for(folder, **WATCHED), size.runs)
        with house.crowded(folder, WATCHED) as daemon:
            began = time.perf_counter()
            text = daemon.http.get(daemon.url + "/metrics").text
            first_ms = (time.perf_counter() - began) * 1000
            bare = clients("get", daemon.url, size.seconds / 5, 1, 1, path="/livez").only("200")
            seen = clients("get", daemon.url, size.seconds / 2, 1, 1, path="/metrics", token=daemon.token)
    assert text.count("spot_run_cost_usd{") == min(PER_RUN, size.runs)
    note = {"first_ms": round(first_ms, 1), "bytes": len(text), "scrapes": len(seen.spans)}
    return {"scrape_p95_ms": Figure(seen.only("200").p95_ms(), bare.p95_ms(), note=note)}


def logged(size: Size) -> Mapping[str, Figure]:
    log = logging.Logger("bench")  # noqa: LOG001 - outside of the tree of loggers
    log.addHandler(telemetry.handler("json", io.StringIO()))

    def line() -> None:
        log.info("Attempt %d in %s ended as preempted.", 3, "us-east1-d", extra=FIELDS)

    looked, rules = _least_us(line, size), redaction._RULES
    redaction._RULES = ()
    try:
        unlooked = _least_us(line, size)
    finally:
        redaction._RULES = rules
    return {"log_line_us": Figure(looked, unlooked)}


def _least_us(act: Callable[[], None], size: Size) -> float:
    """CPU time of one, in the best of a few rows."""
    found = []
    for _ in range(size.times):
        began = time.process_time()
        for _ in range(LINES):
            act()
        found.append((time.process_time() - began) / LINES * 1e6)
    return min(found)


BENCHES = (
    Bench(scraped, (Row("scrape_p95_ms", "ms", target=100.0),)),
    Bench(logged, (Row("log_line_us", "us", target=60.0),)),
)
