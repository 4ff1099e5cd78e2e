"""Metrics as Prometheus reads them: the text format, or OpenMetrics where the reader asks for it.

The only module that knows prometheus-client, and nobody loads it before the first scrape: it takes a fifth of a second.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from supervisor.telemetry import metrics
from supervisor.telemetry.metrics import COUNTER, INFO, Counter, Histogram, Labels, Reading, Series

OPENMETRICS = "application/openmetrics-text"


def render(accept: str, readings: Iterable[Reading]) -> tuple[bytes, str]:
    """(the body, its media type) for a reader that sent this header Accept."""
    registry = CollectorRegistry()
    registry.register(_Known(list(readings)))
    ProcessCollector(registry=registry)
    if OPENMETRICS in accept.lower():
        body: bytes = openmetrics.generate_latest(registry)  # type: ignore[no-untyped-call]
        return body, openmetrics.CONTENT_TYPE_LATEST
    return generate_latest(registry), CONTENT_TYPE_PLAIN_0_0_4


class _Known(Collector):
    """All series that have a value now, in the order of their definition."""

    def __init__(self, readings: list[Reading]) -> None:
        self._read: dict[str, list[Reading]] = {}
        for one in readings:
            self._read.setdefault(one.series.name, []).append(one)

    def collect(self) -> Iterator[Metric]:
        for series in metrics.ALL:
            family = _family(series, self._read.get(series.name, []))
            if family.samples:
                yield family

    def describe(self) -> list[Metric]:
        """Nothing to look up: the names are ours, and a test sees that each is there once."""
        return []


def _family(series: Series, read: list[Reading]) -> Metric:
    if isinstance(series, Histogram):
        return _histogram(series)
    if series.kind == INFO:
        info = InfoMetricFamily(series.name.removesuffix("_info"), series.text)
        for one in read:
            info.add_metric((), dict(zip(series.labels, map(str, one.labels), strict=True)))
        return info
    made: CounterMetricFamily | GaugeMetricFamily = (
        CounterMetricFamily(series.name, series.text, labels=series.labels)
        if series.kind == COUNTER
        else GaugeMetricFamily(series.name, series.text, labels=series.labels)
    )
    values = _counted(series) if isinstance(series, Counter) else ((one.labels, one.value) for one in read)
    for labels, value in values:
        made.add_metric(tuple(map(str, labels)), value)
    return made


def _counted(series: Counter) -> Iterable[tuple[Labels, float]]:
    return sorted(series.values().items())


def _histogram(series: Histogram) -> Metric:
    family = HistogramMetricFamily(series.name, series.text, labels=series.labels)
    bounds = [*series.bounds, math.inf]
    for labels, spread in sorted(series.spreads().items()):
        counts = zip(bounds, spread.cumulative(), strict=True)
        buckets = [("+Inf" if bound == math.inf else str(bound), float(count)) for bound, count in counts]
        family.add_metric(tuple(map(str, labels)), buckets, spread.total)
    return family
