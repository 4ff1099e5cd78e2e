"""The page of metrics and the alert rules name the series that there are, with their labels."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from supervisor.telemetry import logs as telemetry
from supervisor.telemetry import metrics as telemetry_metrics
from supervisor.telemetry.metrics import Series
from tests.docs.shown import sections
from tests.docs.test_pages_match_the_code import page

Rule = dict[str, Any]
SERIES = {series.name: series for series in telemetry_metrics.ALL}
PARTS = {"histogram": ("_bucket", "_sum", "_count")}
NAME = re.compile(r"\bspot_[a-z0-9_]+(?:\{[^}]*\})?")
ROW = re.compile(r"^\| `(spot_[a-z_]+)`( \*L\*)? \| (\w+) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE)
WORDS_OF_PROMQL = {"absent", "by", "histogram_quantile", "increase", "le", "max", "or", "rate", "sum"}


def rules() -> list[Rule]:
    (group,) = yaml.safe_load(page("deploy/monitoring/alerts.yaml"))["groups"]
    found: list[Rule] = group["rules"]
    return found


def series_of(name: str) -> Series | None:
    """The series that a query names, also by a part of a histogram."""
    if name in SERIES:
        return SERIES[name] if SERIES[name].kind != "histogram" else None
    for part in PARTS["histogram"]:
        found = SERIES.get(name.removesuffix(part))
        if name.endswith(part) and found is not None and found.kind == "histogram":
            return found
    return None


def faults(expr: str) -> list[str]:
    """What a query says that is not there: series, labels, words, and brackets without a partner."""
    found, known = [], set[str]()
    for said in NAME.findall(expr):
        name, _, matchers = said.partition("{")
        series = series_of(name)
        if series is None:
            found.append(name)
            continue
        known |= {*series.labels, "le"}
        found += [label for label in re.findall(r"(\w+)=", matchers) if label not in series.labels]
    for labels in re.findall(r"by \(([^)]*)\)", expr):
        found += [label.strip() for label in labels.split(",") if label.strip() not in known]
    rest = re.sub(r"\[\d+[mhd]\]|\b\d[\d.]*\b", "", NAME.sub("", expr))
    found += [word for word in re.findall(r"[a-z_]+", rest) if word not in WORDS_OF_PROMQL | known]
    balanced = all(expr.count(opened) == expr.count(closed) for opened, closed in ("()", "[]", "{}"))
    return found if balanced else [*found, "brackets"]


def test_the_page_has_a_row_for_each_series_and_no_other() -> None:
    rows = {
        name: (bool(leads), kind, tuple(re.findall(r"`(\w+)`", labels)), text.strip())
        for name, leads, kind, labels, text in ROW.findall(page("docs/metrics.md"))
    }
    assert rows == {
        series.name: (series.leads, series.kind, series.labels, series.text) for series in telemetry_metrics.ALL
    }


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_an_alert_asks_for_what_there_is(rule: Rule) -> None:
    assert faults(rule["expr"]) == []
    assert rule["labels"]["severity"] in ("page", "ticket")
    assert re.fullmatch(r"[1-9][0-9]*[smh]", rule.get("for", "1m"))
    assert f"`{rule['alert']}`" in page("docs/metrics.md")
    labels = {
        label
        for name in NAME.findall(rule["expr"])
        if (one := series_of(name.partition("{")[0]))
        for label in one.labels
    }
    assert set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])) <= labels


@pytest.mark.parametrize(
    ("expr", "fault"),
    [
        ("spot_tick_age > 5", "spot_tick_age"),
        ('max(spot_leader{cell="x"}) == 0', "cell"),
        ("max by (zone) (spot_breaker_open) == 1", "zone"),
        ("sum(spot_tick_duration_seconds) > 1", "spot_tick_duration_seconds"),
        ("sun(spot_runs) > 1", "sun"),
        ("sum(spot_runs > 1", "brackets"),
    ],
)
def test_an_alert_that_asks_for_something_else_would_be_seen(expr: str, fault: str) -> None:
    assert fault in faults(expr)


def test_what_an_alert_counts_is_there_before_the_first_count() -> None:
    """`increase` sees nothing in a series that begins with 1. What has providers as labels begins with the loop."""
    first_seen = {"spot_machines_leaked_total", "spot_spend_usd_total", "spot_actions_total"}
    for rule in rules():
        for name in re.findall(r"increase\((spot_[a-z_]+)", rule["expr"]):
            counter: Any = SERIES[name]
            assert counter.values() or name in first_seen, name


def test_the_table_of_logs_names_fields_that_there_are() -> None:
    logs = sections(page("docs/operations.md"), "## ")["Logs"]
    rows = re.findall(r"^\| (`[^|]+) \|", logs, re.MULTILINE)
    fields = {field for row in rows for field in re.findall(r"`(\w+)`", row)}
    there = {value for name, value in vars(telemetry).items() if name.isupper() and isinstance(value, str)}
    assert fields - there == {"time", "level", "logger", "message", "exception"}
    assert logs.count("`answered`") == 2
