"""The curves of a training: every metric that it reported, over all attempts, as one line without overlap.

The agent of each attempt stores its series beside the log (contract/metric_series). Here they are read and joined: what
a later attempt did again is cut at the step that it restored. The values after the last stored one, and those of an
attempt whose agent stores no series, come from the samples of its beats, one a minute.

An object that cannot be read is not an absent one: the response names the attempt and says so. What was read is kept in
memory by its generation, so an attempt that is over is read once.
"""

from __future__ import annotations

import math
import re
import threading
from collections import OrderedDict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

from supervisor.contract import metric_series, runfiles
from supervisor.contract.metric_series import MAX_NAMES, Point, Series, last_counted, reduced
from supervisor.domain.attempt import Attempt
from supervisor.domain.run import Run
from supervisor.ports.objectstore import ObjectMissing, StoreUnavailable
from supervisor.services.parts import Parts
from supervisor.services.reading.queries import Queries
from supervisor.services.reading.series import samples_of
from supervisor.services.views import formats

POINTS_LEAST, POINTS_MAX = 10, 2000
ATTEMPTS_READ = 100  # the newest of a run
KEPT_POINTS = 200_000  # in memory, about 150 bytes each
STORED, SAMPLED, NOTHING = "series", "samples", "none"
UNREAD = "The metrics of this attempt cannot be read now: the object store does not respond."
DAMAGED = "The stored metrics of this attempt are damaged."
PURGED = "The stored metrics of this attempt were purged."
OLDER = "This run has more attempts than are read: the metrics of this one are left out."
HIGHER = frozenset((
    "acc", "accuracy", "ap", "auc", "auroc", "bleu", "dice", "em", "f1", "iou", "map", "miou", "precision", "psnr",
    "r2", "recall", "return", "reward", "rouge", "score", "ssim", "success", "top1", "top5",
))  # fmt: skip

Figure = Annotated[float | Literal["nan", "inf", "-inf"], Field(description="A text where it is not finite.")]


class StepValue(TypedDict):
    step: int
    value: Figure


class MetricShown(TypedDict):
    """`better`: which of its values are, by its name. `reports`: how often it was reported, including what was done
    again. `lowest`, `highest`: of the finite values, null: there are none. `odd_step`: where it was first not finite.
    `steps`, `seconds`, `values`: the points, in order; empty for a metric that was not asked for. `seconds` count from
    `since`."""

    name: str
    better: Literal["min", "max"]
    reports: int
    last: StepValue | None
    lowest: StepValue | None
    highest: StepValue | None
    odd_step: int | None
    steps: list[int]
    seconds: list[float]
    values: list[Figure]


class AttemptMetrics(TypedDict):
    """`first_step`, `last_step`: of its values that count; null: none does. `source`: `series` (every report),
    `samples` (one in a minute) or `none`. `problem`: what could not be read; "" = nothing is missing."""

    attempt: int
    resumed_from: int | None
    first_step: int | None
    last_step: int | None
    source: str
    problem: str


class RunMetrics(TypedDict):
    """`names_left_out`: metrics beyond the first 64. `partial`: something could not be read, as `attempts` says."""

    run_id: str
    since: formats.Time
    metrics: list[MetricShown]
    attempts: list[AttemptMetrics]
    names_left_out: int
    partial: bool


@dataclass(slots=True)
class _Part:
    """One attempt. `began_at`: epoch seconds of the agent's start. `begin`: the step that it restored, -1 = from zero,
    None = it did not train, as far as is known."""

    attempt: Attempt
    began_at: float
    begin: int | None
    series: Series | None = None
    problem: str = ""
    sampled: bool = False
    newest: int = -1  # step
    points: dict[str, list[Point]] = field(default_factory=dict)  # at: epoch seconds


class Joined:
    """All values of a run, each step once. `names`: of the metrics, at most MAX_NAMES."""

    def __init__(self, run: Run, parts: Sequence[_Part]) -> None:
        self.run, self._parts = run, parts
        names = _order(name for part in parts for name in part.points)
        self.names = names[:MAX_NAMES]
        unknown = max((part.series.left_out for part in parts if part.series), default=0)
        self.left_out = unknown + len(names) - len(self.names)
        self.problem = next((part.problem for part in parts if part.problem), "")

    def points(self, name: str) -> list[Point]:
        """In order; the time in epoch seconds."""
        return [point for part in self._parts for point in part.points.get(name, ())]

    def metric(self, name: str, most: int) -> MetricShown:
        """With at most `most` of its points; 0 = without."""
        series = [part.series for part in self._parts if part.series is not None]
        reports = sum(each.curves[name].reports for each in series if name in each.curves)
        return _metric(name, self.points(name), reports, self.run.created_at, min(most, POINTS_MAX))

    def attempts(self) -> list[AttemptMetrics]:
        return [_attempt(part) for part in self._parts]


class Curves:
    """Safe to use from every thread."""

    def __init__(self, parts: Parts, queries: Queries) -> None:
        self._parts, self._queries = parts, queries
        self._lock = threading.Lock()
        self._kept: OrderedDict[tuple[str, str], Series] = OrderedDict()
        self._kept_points = 0

    def show(self, run_id: str, names: Collection[str], points: int) -> RunMetrics:
        """At most `points` of each metric in `names` (none = all), and the last, lowest and highest value of all.
        Raises NotFound."""
        joined = self.of(self._queries.find(run_id))
        return {
            "run_id": joined.run.run_id,
            "since": formats.time_text(joined.run.created_at),
            "metrics": [joined.metric(name, points if not names or name in names else 0) for name in joined.names],
            "attempts": joined.attempts(),
            "names_left_out": joined.left_out,
            "partial": bool(joined.problem),
        }

    def of(self, run: Run) -> Joined:
        parts = self._read(run)
        self._add_samples(run, parts)
        _cut(parts)
        return Joined(run, parts)

    # --- reading ------------------------------------------------------------------------------------------------------

    def _read(self, run: Run) -> list[_Part]:
        parts = [_part(attempt) for attempt in self._parts.store.attempts(run.key)]
        for part in parts[:-ATTEMPTS_READ]:
            part.problem = OLDER
        read = parts[-ATTEMPTS_READ:]
        try:
            prefix = runfiles.all_metrics(run.run_id)
            there = {info.key: info for page in self._parts.objects.pages(prefix) for info in page.objects}
        except StoreUnavailable:
            for part in read:
                part.problem = UNREAD
            return parts
        for part in read:
            info = there.get(runfiles.metrics(run.run_id, part.attempt.number))
            if info is not None:
                self._read_object(part, info.key, info.generation)
            elif run.files.purging or (run.files.purged_at is not None and run.has_purged(part.attempt)):
                part.problem = PURGED if part.begin is not None else ""
        return parts

    def _read_object(self, part: _Part, key: str, generation: str) -> None:
        try:
            part.series = self._series(key, generation)
        except StoreUnavailable:
            part.problem = UNREAD
            return
        except ObjectMissing:
            part.problem = PURGED  # since it was listed
            return
        if part.series is None:
            part.problem = DAMAGED
            return
        part.begin = -1 if part.series.resumed_from is None else part.series.resumed_from
        for name, curve in part.series.curves.items():
            part.points[name] = [(step, part.began_at + up_s, value) for step, up_s, value in curve.points]
        part.newest = max((points[-1][0] for points in part.points.values() if points), default=-1)

    def _series(self, key: str, generation: str) -> Series | None:
        """Raises StoreUnavailable, ObjectMissing."""
        with self._lock:
            kept = self._kept.get((key, generation))
            if kept is not None:
                self._kept.move_to_end((key, generation))
                return kept
        series = metric_series.decode(b"".join(self._parts.objects.read(key, 0, metric_series.MAX_BYTES + 1)))
        if series is not None:
            with self._lock:
                before = self._kept.pop((key, generation), None)
                self._kept[key, generation] = series
                self._kept_points += _size(series) - (0 if before is None else _size(before))
                while self._kept_points > KEPT_POINTS and len(self._kept) > 1:
                    self._kept_points -= _size(self._kept.popitem(last=False)[1])
        return series

    def _add_samples(self, run: Run, parts: Sequence[_Part]) -> None:
        """Of attempts whose series is not there, or not complete: after its last value."""
        missing = {part.attempt.number: part for part in parts if part.series is None or not part.series.complete}
        if not missing:
            return
        since = min(map(_read_to, missing.values()))
        for sample in samples_of(self._parts, run, since, self._parts.clock.now()):
            part, step = missing.get(sample.attempt), sample.pulse.step
            if part is not None and step is not None:
                _add_sample(part, step, sample.at, sample.pulse.metrics)


def _add_sample(part: _Part, step: int, at: float, metrics: Mapping[str, float]) -> None:
    """A pulse keeps the metrics of the last report that had any, so the same step says nothing new."""
    if step == part.newest or (step < part.newest and part.series is not None):
        return
    part.newest, part.sampled = step, True
    for name, value in metrics.items():
        curve = part.points.setdefault(name, [])
        while curve and curve[-1][0] >= step:
            curve.pop()
        curve.append((step, at, value))


def _part(attempt: Attempt) -> _Part:
    start = attempt.training_at if attempt.training_at is not None else attempt.started_at
    began_at = start if attempt.agent_at is None else attempt.agent_at + attempt.drift_s
    trained = attempt.training_at is not None
    return _Part(attempt, began_at, (-1 if attempt.step_from is None else attempt.step_from) if trained else None)


def _read_to(part: _Part) -> float:
    """Until when its values are known; epoch seconds."""
    return max((curve[-1][1] for curve in part.points.values() if curve), default=part.attempt.started_at)


def _size(series: Series) -> int:
    return sum(len(curve.points) for curve in series.curves.values())


# --- joining ----------------------------------------------------------------------------------------------------------


def _cut(parts: Sequence[_Part]) -> None:
    """Remove what a later attempt did again. A training that ignored its checkpoint began before the step that was
    restored."""
    begins = []
    for part in parts:
        first = min((curve[0][0] for curve in part.points.values() if curve), default=None)
        steps = [step for step in (part.begin, None if first is None else first - 1) if step is not None]
        begins.append(min(steps, default=metric_series.NEVER))
    for part, end in zip(parts, last_counted(begins), strict=True):
        if end is not None:
            for name, curve in part.points.items():
                part.points[name] = [point for point in curve if point[0] <= end]


def _order(names: Iterator[str]) -> list[str]:
    """Each once, a loss first."""
    return sorted(set(names), key=lambda name: ("loss" not in name.lower(), name))


def higher_is_better(name: str) -> bool:
    """By the words of the name; what is not known is a loss."""
    return not HIGHER.isdisjoint(re.split(r"[^a-z0-9]+", name.lower()))


def _metric(name: str, points: list[Point], reports: int, since: float, most: int) -> MetricShown:
    finite, odd = points, None
    if not math.isfinite(sum(value for _, _, value in points)):
        finite = [point for point in points if math.isfinite(point[2])]
        odd = next((step for step, _, value in points if not math.isfinite(value)), None)
    values = [value for _, _, value in finite]
    shown = reduced(points, most * 4 // 5) if len(points) > most else points
    return {
        "name": name,
        "better": "max" if higher_is_better(name) else "min",
        "reports": max(reports, len(points)),
        "last": _value(points[-1]) if points else None,
        "lowest": _value(finite[values.index(min(values))]) if finite else None,
        "highest": _value(finite[values.index(max(values))]) if finite else None,
        "odd_step": odd,
        "steps": [step for step, _, _ in shown] if most else [],
        "seconds": [round(at - since, 1) for _, at, _ in shown] if most else [],
        "values": [_figure(value) for _, _, value in shown] if most else [],
    }


def _value(point: Point) -> StepValue:
    return {"step": point[0], "value": _figure(point[2])}


def _figure(value: float) -> Figure:
    if math.isfinite(value):
        return value
    return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"


def _attempt(part: _Part) -> AttemptMetrics:
    ends = [(curve[0][0], curve[-1][0]) for curve in part.points.values() if curve]
    source = STORED if part.series is not None else SAMPLED if part.sampled else NOTHING
    return {
        "attempt": part.attempt.number,
        "resumed_from": part.begin if part.begin is not None and part.begin >= 0 else None,
        "first_step": min((first for first, _ in ends), default=None),
        "last_step": max((last for _, last in ends), default=None),
        "source": source,
        "problem": part.problem,
    }
