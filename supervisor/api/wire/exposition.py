"""Metrics in the format of Prometheus: its text format, or OpenMetrics where the request accepts it.

The only module that knows prometheus-client. The first scrape loads it, because that takes a fifth of a second.
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
    """(the body, its media type) for a request with this header Accept."""
    registry = CollectorRegistry()
    registry.register(_Collected(readings))
    ProcessCollector(registry=registry)
    if OPENMETRICS in accept.lower():
        body: bytes = openmetrics.generate_latest(registry)  # type: ignore[no-untyped-call]
        return body, openmetrics.CONTENT_TYPE_LATEST
    return generate_latest(registry), CONTENT_TYPE_PLAIN_0_0_4


class _Collected(Collector):
    """All series that have a value now, in the order of their definition."""

    def __init__(self, readings: Iterable[Reading]) -> None:
        self._readings: dict[str, list[Reading]] = {}
        for reading in readings:
            self._readings.setdefault(reading.series.name, []).append(reading)

    def collect(self) -> Iterator[Metric]:
        for series in metrics.ALL:
            family = _family(series, self._readings.get(series.name, []))
            if family.samples:
                yield family

    def describe(self) -> list[Metric]:
        """Without names, which would be compared with those of other collectors; a test proves that each is unique."""
        return []


def _family(series: Series, readings: list[Reading]) -> Metric:
    if isinstance(series, Histogram):
        return _histogram(series)
    if series.kind == INFO:
        info = InfoMetricFamily(series.name.removesuffix("_info"), series.text)
        for reading in readings:
            info.add_metric((), dict(zip(series.labels, map(str, reading.labels), strict=True)))
        return info
    kind = CounterMetricFamily if series.kind == COUNTER else GaugeMetricFamily
    family: CounterMetricFamily | GaugeMetricFamily = kind(series.name, series.text, labels=series.labels)
    values: Iterable[tuple[Labels, float]] = ((reading.labels, reading.value) for reading in readings)
    if isinstance(series, Counter):
        values = sorted(series.values().items())
    for labels, value in values:
        family.add_metric(tuple(map(str, labels)), value)
    return family


def _histogram(series: Histogram) -> Metric:
    family = HistogramMetricFamily(series.name, series.text, labels=series.labels)
    bounds = [*series.bounds, math.inf]
    for labels, spread in sorted(series.spreads().items()):
        counts = zip(bounds, spread.cumulative(), strict=True)
        buckets = [("+Inf" if bound == math.inf else str(bound), float(count)) for bound, count in counts]
        family.add_metric(tuple(map(str, labels)), buckets, spread.total)
    return family
