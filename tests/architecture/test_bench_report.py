"""The report of `make bench`: every promised figure has a row with its target, and a row is never dropped."""

from __future__ import annotations

from collections.abc import Mapping

from tests.benchmarks.__main__ import ALL
from tests.benchmarks.row import AT_LEAST, FULL, QUICK, Bench, Figure, Row, Size, percentile

# Those whose target follows from a baseline of the same run have None here.
PROMISED = {
    "boot_to_readyz_s": 1.0,
    "idle_rss_mb": 70.0,
    "submit_sqlite_per_s": None,
    "submit_sqlite_p95_ms": None,
    "submit_postgres_per_s": None,
    "submit_postgres_p95_ms": None,
    "list_http_p95_ms": 10.0,
    "list_label_http_p95_ms": 10.0,
    "tick_stored_s": 0.7,
    "tick_pushed_s": 0.5,
    "tick_100k_cpu_s": 5.0,
    "rss_100k_kb": 6.0,
    "tick_100k_api_p95_ms": 80.0,
    "tick_lock_hold_ms": None,
    "tick_requests": None,
    "tick_beside_finished_s": None,
    "rss_per_run_kb": 6.0,
    "waiting_500_cpu_percent": 0.3,
    "db_per_run_day_kb": 300.0,
    "beats_per_s": 3500.0,
    "spot_help_ms": 150.0,
    "provider_show_ms": 300.0,
    "kubernetes_tick_requests": 4.0,
    "kubernetes_tick_cpu_s": 1.0,
    "cloud_tick_requests": None,
    "cloud_stop_reads": None,
    "cloud_tick_cpu_s": 1.0,
    "cloud_rss_mb": 150.0,
    "cloud_boot_to_readyz_s": 1.2,
    "cloud_reinsert_push_p99_s": 0.3,
    "cloud_reinsert_poll_p99_s": None,
    "slurm_tick_commands": None,
    "slurm_tick_cpu_s": 1.0,
}


def test_every_promised_figure_has_one_row() -> None:
    names = [row.name for bench in ALL for row in bench.rows]
    assert len(names) == len(set(names))
    targets = {row.name: row.target for bench in ALL for row in bench.rows}
    assert {name: targets.get(name, "no row") for name in PROMISED} == PROMISED


def _breaks(size: Size) -> Mapping[str, Figure]:
    raise OSError("the disk is gone")


def test_a_measurement_that_fails_is_a_row_with_the_reason() -> None:
    (line,) = Bench(_breaks, (Row("a_s", "s", target=2.0),)).report(FULL)
    assert (line["value"], line["met"], line["target"]) == (None, False, 2.0)
    assert line["reason"] == "OSError: the disk is gone"


def test_a_figure_that_a_measurement_forgot_is_a_row_too() -> None:
    lines = Bench(lambda size: {"a_s": Figure(1.0)}, (Row("a_s", "s", target=2.0), Row("b_s", "s"))).report(FULL)
    assert [(line["name"], line["value"], line["met"]) for line in lines] == [("a_s", 1.0, True), ("b_s", None, False)]


def test_a_missed_target_says_by_how_much() -> None:
    figures = {
        "slow_ms": Figure(150.0),
        "few_per_s": Figure(300.0, baseline=600.0, target=480.0),
        "good_ms": Figure(60.0),
    }
    rows = (Row("slow_ms", "ms", target=100.0), Row("few_per_s", "1/s", AT_LEAST), Row("good_ms", "ms", target=80.0))
    lines = Bench(lambda size: figures, rows).report(FULL)
    assert [(line["met"], line["distance"]) for line in lines] == [(False, 1.5), (False, 1.6), (True, 0.75)]
    assert lines[1]["baseline"] == 600.0
    assert all(set(line["machine"]) == {"cores", "cpu", "python", "os"} for line in lines)


def test_quick_figures_say_that_they_are() -> None:
    bench = Bench(lambda size: {"a_s": Figure(1.0)}, (Row("a_s", "s", target=2.0),))
    assert bench.report(QUICK)[0]["quick"] is True
    assert "quick" not in bench.report(FULL)[0]


def test_a_percentile_is_one_of_the_values() -> None:
    assert percentile([3.0, 1.0, 2.0], 0.95) == 3.0
    assert percentile([float(n) for n in range(1, 101)], 0.95) == 95.0
    assert percentile([5.0], 0.5) == 5.0
