"""Plain objects that count. What they count is named in `telemetry_metrics`, who reads them is the API.

They know no library of metrics: the rooms that count load nothing for it, and a beat pays for one lock and one
addition. A process has one of each, as it has one log; they begin at zero with it. Label values are words out of our
own lists; should an unforeseen one get in, no series has more than LABELS_MAX sets of them.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

LABELS_MAX = 1000
OTHER = "other"  # stands for all sets of labels beyond that
COUNTER, GAUGE, HISTOGRAM, INFO = "counter", "gauge", "histogram", "info"

Labels = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Reading:
    """One value of one series, taken at the moment of a scrape."""

    series: Series
    value: float
    labels: Labels = ()


class Series:
    """`name`, `kind`, `text` (one sentence for people) and the names of the labels. `leads`: only the process that
    leads has it."""

    def __init__(self, name: str, kind: str, text: str, *labels: str, leads: bool = False) -> None:
        self.name, self.kind, self.text, self.labels, self.leads = name, kind, text, labels, leads

    def reading(self, value: float, *labels: str) -> Reading:
        return Reading(self, value, labels)


class Gauge(Series):
    """Read at the scrape, from memory or by one cheap question; it keeps nothing."""

    def __init__(self, name: str, text: str, *labels: str, leads: bool = False) -> None:
        super().__init__(name, GAUGE, text, *labels, leads=leads)


class Info(Series):
    """A 1 whose labels are what there is to tell."""

    def __init__(self, name: str, text: str, *labels: str) -> None:
        super().__init__(name, INFO, text, *labels)


class _Counted(Series):
    def __init__(self, name: str, kind: str, text: str, *labels: str, leads: bool = False) -> None:
        super().__init__(name, kind, text, *labels, leads=leads)
        self._lock = threading.Lock()

    def _room(self, known: Mapping[Labels, object], labels: Labels) -> Labels:
        """To be called under the lock."""
        return labels if labels in known or len(known) < LABELS_MAX else (OTHER,) * len(labels)


class Counter(_Counted):
    """Goes up only. `known`: sets of labels that are there at 0 from the start, all where there are no labels: a reader
    sees no growth in a series that appears with its first count."""

    def __init__(
        self, name: str, text: str, *labels: str, known: Iterable[Labels] = (), leads: bool = False
    ) -> None:
        super().__init__(name, COUNTER, text, *labels, leads=leads)
        self._values: dict[Labels, float] = dict.fromkeys(known if labels else [()], 0.0)

    def add(self, *labels: str, by: float = 1.0) -> None:
        with self._lock:
            try:
                self._values[labels] += by
            except KeyError:
                room = self._room(self._values, labels)
                self._values[room] = self._values.get(room, 0.0) + by

    def values(self) -> dict[Labels, float]:
        with self._lock:
            return dict(self._values)


class Level(Counter):
    """A gauge that is counted up and down where it happens, such as what is open now."""

    def __init__(self, name: str, text: str, *labels: str) -> None:
        super().__init__(name, text, *labels)
        self.kind = GAUGE


@dataclass(slots=True)
class Spread:
    """How values lie: `counts[i]` of them are at most the i-th bound, the last count is of those beyond all."""

    counts: list[int]
    total: float = 0.0

    def cumulative(self) -> Sequence[int]:
        found, so_far = [], 0
        for count in self.counts:
            so_far += count
            found.append(so_far)
        return found


class Histogram(_Counted):
    """`bounds`: upper ends of the buckets, going up, in the unit that the name ends in."""

    def __init__(
        self, name: str, text: str, *labels: str, bounds: Sequence[float], leads: bool = False
    ) -> None:
        super().__init__(name, HISTOGRAM, text, *labels, leads=leads)
        self.bounds = tuple(bounds)
        self._spreads: dict[Labels, Spread] = {}
        if not labels:
            self._spreads[()] = self._empty()

    def observe(self, value: float, *labels: str) -> None:
        at = bisect_left(self.bounds, value)
        with self._lock:
            spread = self._spreads.get(labels)
            if spread is None:
                spread = self._spreads.setdefault(self._room(self._spreads, labels), self._empty())
            spread.counts[at] += 1
            spread.total += value

    def spreads(self) -> dict[Labels, Spread]:
        with self._lock:
            return {labels: Spread(list(one.counts), one.total) for labels, one in self._spreads.items()}

    def _empty(self) -> Spread:
        return Spread([0] * (len(self.bounds) + 1))
