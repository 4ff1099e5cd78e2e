"""Every reported value of the training's metrics, on its way to the store (contract/metric_series.py).

`MetricSeries` takes each report; `SeriesDuty` stores all of it as one object, again and again. How soon again depends
on its size, so that on average not more than BYTES_PER_S go to the store. The upload after a new checkpoint need not
wait, because the next attempt begins there and its curve must join this one; the uploads after it wait longer.

An agent that was started again on the same machine goes on with what its predecessor has stored. Until that could be
read, nothing is written over it.
"""

from __future__ import annotations

import logging
import math
import threading
import time
from typing import Callable, Dict, Optional, Set

from supervisor.agent.machine.job import Job
from supervisor.agent.machine.masking import NOTHING, Masker
from supervisor.agent.watch.ends import EndReasons
from supervisor.contract import metric_series, runfiles
from supervisor.contract.heartbeat import MAX_METRICS, is_metric_name
from supervisor.contract.metric_series import MAX_NAMES, MAX_POINTS, MAX_TOTAL, Curve, Kept, Series
from supervisor.contract.stores.promise import ObjectMissing, ObjectStore, StoreUnavailable

BYTES_PER_S = 65_536 / 60
SOONEST_S, LATEST_S = 1.0, 60.0  # between two uploads of a small object
LOOK_S = 5.0
MAX_UNKNOWN = 1000  # names beyond MAX_NAMES that are counted
_WORDS = {"inf": math.inf, "-inf": -math.inf}  # any other word is NaN
_log = logging.getLogger("agent")


class MetricSeries:
    """Safe to use from every thread. `up_s`: seconds since the agent's start."""

    def __init__(self, up_s: Callable[[], float], masker: Masker = NOTHING) -> None:
        self._up_s, self._masker = up_s, masker
        self._lock = threading.Lock()
        self._curves: Dict[str, Curve] = {}  # by the name as reported
        self._named: Dict[str, Curve] = {}  # the same by the name without secrets
        self._unknown: Set[str] = set()
        self._most = MAX_POINTS
        self.resumed_from: Optional[int] = None
        self.reports = 0

    def add(self, step: int, metrics: object, nonfinite: object) -> None:
        """One report. Both come from the training: anything may be in them. At most MAX_METRICS of a report count."""
        up_s = self._up_s()
        with self._lock:
            self.reports += 1
            if type(metrics) is dict:
                if len(metrics) > MAX_METRICS:
                    metrics = dict(list(metrics.items())[:MAX_METRICS])
                for name, value in metrics.items():
                    if type(value) is float:
                        self._add(name, step, up_s, value)
                    elif type(value) is int:
                        self._add(name, step, up_s, float(value) if abs(value) < 1 << 1000 else math.inf)
            if nonfinite:
                self._add_nonfinite(step, up_s, nonfinite)

    def _add_nonfinite(self, step: int, up_s: float, nonfinite: object) -> None:
        if isinstance(nonfinite, dict):
            for name, word in list(nonfinite.items())[:MAX_METRICS]:
                self._add(name, step, up_s, _WORDS.get(str(word), math.nan))
        elif isinstance(nonfinite, list):
            for name in nonfinite[:MAX_METRICS]:
                if isinstance(name, str):
                    self._add(name, step, up_s, math.nan)

    def _add(self, name: str, step: int, up_s: float, value: float) -> None:
        curve = self._curves.get(name) or self._new(name)
        if curve is not None:
            curve.add(step, up_s, value)

    def _new(self, name: str) -> Optional[Curve]:
        """None: not a name that is kept."""
        masked = self._masker.text(name)
        if not masked or not is_metric_name(masked):
            return None
        curve = self._named.get(masked)
        if curve is None and len(self._named) >= MAX_NAMES:
            if len(self._unknown) < MAX_UNKNOWN:
                self._unknown.add(masked)
            return None
        if curve is None:
            curve = self._named[masked] = Curve(self._most)
            self._share()
        if len(self._curves) < 2 * MAX_NAMES:
            self._curves[name] = curve
        return curve

    def _share(self) -> None:
        """With many metrics each keeps fewer points."""
        most = min(MAX_POINTS, MAX_TOTAL // len(self._named))
        if most == self._most:
            return
        self._most = most
        for curve in self._named.values():
            curve.most = most
            if len(curve.points) > most:
                curve.shrink()

    def put_before(self, earlier: Series) -> None:
        """What an earlier agent of this attempt has stored."""
        with self._lock:
            first = min((curve.points[0][0] for curve in self._named.values() if curve.points), default=None)
            if first is None and self.resumed_from is not None:
                first = self.resumed_from + 1
            for name, kept in earlier.curves.items():
                curve = self._new(name)
                if curve is not None:
                    points = [point for point in kept.points if first is None or point[0] < first]
                    curve.put_before(points, kept.reports)
            steps = (earlier.resumed_from, self.resumed_from)
            self.resumed_from = None if None in steps else min(step for step in steps if step is not None)

    def now(self, complete: bool) -> Series:
        with self._lock:
            curves = {name: Kept(curve.reports, tuple(curve.points)) for name, curve in self._named.items()}
            return Series(self.resumed_from, len(self._unknown), complete, curves)


class SeriesDuty:
    """The step of a thread."""

    def __init__(
        self,
        job: Job,
        store: ObjectStore,
        series: MetricSeries,
        end_reasons: EndReasons,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._series, self._end_reasons, self._monotonic = store, series, end_reasons, monotonic
        self._key = runfiles.metrics(job.run_id, job.attempt)
        self._soonest_s = min(LATEST_S, max(SOONEST_S, job.log_chunk_s))
        self._due_at = float("-inf")
        self._ahead_at = float("-inf")  # an upload after a checkpoint may come so early
        self._looked = False  # for what an earlier agent has stored
        self._saved = False  # a checkpoint, since the last upload
        self._stored = 0  # reports
        self._last = False

    def saved(self) -> None:
        """A checkpoint is in the store."""
        self._saved = True

    def finish(self) -> None:
        """The command has ended: store the rest."""
        self._last = True

    def step(self) -> Optional[float]:
        last = self._last
        if self._end_reasons.uploads_over():
            return None
        try:
            self._look()
            if last or self._is_due():
                self._put(last)
        except (StoreUnavailable, OSError) as error:
            _log.info("the metrics are not stored yet: %s", error)
            return min(5.0, self._soonest_s)
        return None if last else min(LOOK_S, self._soonest_s)

    def _look(self) -> None:
        """Raises StoreUnavailable."""
        if self._looked:
            return
        try:
            raw = b"".join(self._store.read(self._key, 0, metric_series.MAX_BYTES + 1))
        except ObjectMissing:
            raw = b""
        earlier = metric_series.decode(raw) if raw else None
        if earlier is not None:
            self._series.put_before(earlier)
        self._looked = True

    def _is_due(self) -> bool:
        now = self._monotonic()
        due_at = self._ahead_at if self._saved else self._due_at
        return self._series.reports > self._stored and now >= due_at

    def _put(self, last: bool) -> None:
        reports, self._saved = self._series.reports, False
        if not reports:
            return
        raw = metric_series.encode(self._series.now(complete=last))
        self._store.put(self._key, raw)
        now, self._stored = self._monotonic(), reports
        takes_s = max(self._soonest_s, len(raw) / BYTES_PER_S)
        # One upload may be ahead of its time, not two: the average holds.
        self._ahead_at = max(now, self._due_at)
        self._due_at = self._ahead_at + takes_s
