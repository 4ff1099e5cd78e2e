"""Metrics that are not finite, or that jump: the first one of each is noted, with its step and what was before it.

A metric is NaN or infinite where the training says so: the name is in the report's `nonfinite`, or the value itself is
(a line that was written without spot_progress). Every metric is noted then. A jump is looked for only in the metrics
that the run's spec watches: a value whose magnitude is more than FACTOR times the median magnitude of the last POINTS
finite values, and more than twice the largest of them, so that a metric which is noisy by its nature does not count.
The first LEAST values of an attempt are not judged: a training that warms up moves fast.

Nothing here ends a command.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import replace
from statistics import median
from typing import Any, Callable, Deque, Dict, Iterator, List, Mapping, Optional, Tuple

from supervisor.agent.machine.masking import NOTHING, Masker
from supervisor.contract.heartbeat import is_metric_name
from supervisor.contract.signs import INF, NAN, SPIKE, OddMetric

POINTS, LEAST, FACTOR, ABOVE_LARGEST = 50, 20, 10.0, 2.0
NAMES = 64  # metrics that are followed; further names of a training that makes new ones all the time are not
Watched = Mapping[str, Mapping[str, str]]


class MetricWatch:
    """Used by one thread; `signs` by any. `watched`: name -> what the spec wants (nan, spike). `up_s`: seconds since
    the agent's start. A value that is odd again after it was well is the same one: only the first step is kept."""

    def __init__(self, watched: Watched, up_s: Callable[[], float], masker: Masker = NOTHING) -> None:
        self._watched, self._up_s, self._masker = watched, up_s, masker
        self._finite: Dict[str, Optional[Tuple[int, float]]] = {}  # name -> (step, the last finite value)
        self._points: Dict[str, Deque[float]] = {}  # of the metrics whose jumps are watched
        self._odd: Dict[Tuple[str, str], OddMetric] = {}  # by (name, NAN or SPIKE)
        self._signs: Dict[str, Any] = {}
        self.has_any = False

    def add(self, step: int, metrics: object, nonfinite: object) -> None:
        """One report. Both come from the training: anything may be in them."""
        before = dict(self._odd)
        for name, value in _values(metrics, nonfinite):
            self.has_any = True
            if name not in self._finite and len(self._finite) >= NAMES:
                continue
            if math.isfinite(value):
                self._is_finite(name, step, value)
            else:
                self._is_not_finite(name, step, value)
        if self._odd != before:
            self._signs = self._made()

    def signs(self) -> Mapping[str, Any]:
        """Fields of contract/signs.py."""
        return self._signs

    def _is_not_finite(self, name: str, step: int, value: float) -> None:
        odd = self._odd.get((name, NAN))
        if odd is None:
            before_step, before = self._finite.setdefault(name, None) or (None, None)
            kind = NAN if math.isnan(value) else INF
            self._odd[name, NAN] = OddMetric(name, kind, step, self._up_s(), before, before_step)
        elif odd.back_step is not None:
            self._odd[name, NAN] = replace(odd, back_step=None)

    def _is_finite(self, name: str, step: int, value: float) -> None:
        odd = self._odd.get((name, NAN))
        if odd is not None and odd.back_step is None:
            self._odd[name, NAN] = replace(odd, back_step=step)
        self._finite[name] = (step, value)
        if SPIKE not in self._watched.get(name, {}):
            return
        points = self._points.setdefault(name, deque(maxlen=POINTS))
        if (name, SPIKE) not in self._odd and _jumps(value, points):
            usual = median(points)
            self._odd[name, SPIKE] = OddMetric(name, SPIKE, step, self._up_s(), before=usual, value=value)
        points.append(abs(value))

    def _made(self) -> Dict[str, Any]:
        """The watched metrics first, then by time."""
        odds = sorted(self._odd.values(), key=lambda odd: (odd.name not in self._watched, odd.up_s))
        masked = [replace(odd, name=self._masker.text(odd.name)) for odd in odds]
        nonfinite = dict.fromkeys(odd.name for odd in masked if odd.kind != SPIKE)
        return {"metrics": tuple(masked), "nonfinite": tuple(nonfinite)}


def _jumps(value: float, points: Deque[float]) -> bool:
    """`points`: magnitudes."""
    usual = median(points) if len(points) >= LEAST else 0.0
    return usual > 0 and abs(value) > max(FACTOR * usual, ABOVE_LARGEST * max(points))


def _values(metrics: object, nonfinite: object) -> Iterator[Tuple[str, float]]:
    reported: List[Tuple[Any, Any]] = list(metrics.items()) if isinstance(metrics, dict) else []
    if isinstance(nonfinite, dict):
        reported += [(name, _WORDS.get(str(word), math.nan)) for name, word in nonfinite.items()]
    elif isinstance(nonfinite, list):
        reported += [(name, math.nan) for name in nonfinite]
    for name, value in reported:
        number = _number(value)
        if number is not None and name and is_metric_name(name):
            yield name, number


_WORDS = {"inf": math.inf, "-inf": -math.inf}  # any other word is NaN


def _number(value: object) -> Optional[float]:
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return None
    try:
        return float(value)
    except OverflowError:  # a whole number without a bound
        return math.inf
