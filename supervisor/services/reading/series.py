"""Steps and figures of a run over time, as few points as a chart can show: the series of one run, and the small line of
steps (sparkline) of each run in a list.

Points are read page by page and collected into spans of equal length, so that a month of a run is never in memory at
once. Spans start at whole multiples of their length, which comes from a fixed ladder: a minute later, the response has
the same points and one more. No line may be drawn across the end of an attempt or across silence: `gap` marks both.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from typing_extensions import TypedDict

from supervisor.domain.errors import InvalidRequest
from supervisor.domain.policies import STALLING_POLLS
from supervisor.domain.run import Run
from supervisor.ports.store import LINE_PARTS, Sample, Step
from supervisor.services.parts import Parts
from supervisor.services.views import formats

POINTS_MAX = 2000
PAGE = 500  # points in memory at once
MINUTE_S, COARSE_S, DAY_S = 60.0, 600.0, 86_400.0
LADDER_S = (60, 120, 300, 600, 900, 1800, 3600, 7200, 10_800, 21_600, 43_200, 86_400)
SILENT = 2.5  # times the usual spacing: between points that lie further apart no line is drawn
# Of the sparklines: a run that goes on changes its line once a minute.
KEPT_S, ENDED_KEPT_S = 60.0, 600.0
LINES_KEPT = 500  # in memory, about 5 KB each


class Point(TypedDict):
    """One point in time. `gap`: no line leads here from the point before: another attempt, or silence between. Shares
    are of all GPUs of the machine together."""

    at: formats.Time
    attempt: int
    gap: bool
    phase: str
    step: int | None
    total: int | None
    checkpoint_step: int | None
    steps_per_s: float | None
    gpu_pct: float | None
    gpu_memory_pct: float | None
    memory_bytes: float | None
    disk_free_pct: float | None
    metrics: dict[str, float]


class Series(TypedDict):
    """`every_s`: each point stands for this many seconds, rates and figures are means over them; null: no point was
    left out. The database keeps one point a minute for a day, and one in ten minutes for 30 days."""

    run_id: str
    since: formats.Time
    until: formats.Time
    every_s: float | None
    points: list[Point]


class SparkPoint(TypedDict):
    """`gap`: no line leads here from the point before: another attempt, or silence between."""

    at: formats.Time
    step: int
    gap: bool


@dataclass(slots=True)
class _Span:
    """The samples of one span, of the newest attempt in it; figures are summed up."""

    last: Sample
    first_at: float
    sums: dict[str, float] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)

    def add(self, name: str, figure: float | None) -> None:
        if figure is not None:
            self.sums[name] = self.sums.get(name, 0.0) + figure
            self.counts[name] = self.counts.get(name, 0) + 1

    def mean(self, name: str) -> float | None:
        count = self.counts.get(name, 0)
        mean = self.sums[name] / count if count else None
        return mean if mean is not None and math.isfinite(mean) else None

    def rounded(self, name: str) -> float | None:
        """For figures of a known size; a metric may be as small as it likes."""
        mean = self.mean(name)
        return None if mean is None else round(mean, 6)


def series_json(parts: Parts, run: Run, since: float | None, until: float | None, points: int) -> Series:
    """Oldest first, at most `points` of them. `since` None = from the submit on, `until` None = until now. Raises
    InvalidRequest."""
    if since is not None and until is not None and until < since:
        raise InvalidRequest("`until` is before `since`.", {}, [("?until", "is before since")])
    now = parts.clock.now()
    begin = min(now, run.created_at if since is None else max(since, run.created_at))
    end = now if until is None else min(now, max(until, begin))
    every_s = _every_s(parts, run, begin, end, min(points, POINTS_MAX))
    spans = list(_spans(samples_of(parts, run, begin, end), every_s))
    return {
        "run_id": run.run_id,
        "since": formats.time_text(begin),
        "until": formats.time_text(end),
        "every_s": every_s,
        "points": [_point(span, before, every_s, now) for before, span in zip([None, *spans], spans, strict=False)],
    }


def _every_s(parts: Parts, run: Run, begin: float, end: float, most: int) -> float | None:
    """Length of a span; None = there are at most `most` points, and each is shown."""
    first = parts.store.samples(run.key, begin, 1)
    if not first:
        return None
    kept = sum(1 for _ in zip(samples_of(parts, run, begin, end), range(most + 1), strict=False))
    if kept <= most:
        return None
    for length_s in LADDER_S:
        if end // length_s - first[0].at // length_s + 1 <= most:
            return float(length_s)
    days = 1
    while end // (days * DAY_S) - first[0].at // (days * DAY_S) + 1 > most:
        days *= 2
    return days * DAY_S


def samples_of(parts: Parts, run: Run, begin: float, end: float) -> Iterator[Sample]:
    """In order of time, a page at a time."""
    at = begin
    while True:
        page = parts.store.samples(run.key, at, PAGE)
        for sample in page:
            if sample.at > end:
                return
            yield sample
        if len(page) < PAGE:
            return
        at = page[-1].at + 0.001  # times are kept in milliseconds


def _spans(samples: Iterator[Sample], every_s: float | None) -> Iterator[_Span]:
    """Where two attempts share a span it shows the newer one, which has the line from there on."""
    span: _Span | None = None
    for sample in samples:
        if span is not None and (every_s is None or sample.at // every_s != span.last.at // every_s):
            yield span
            span = None
        if span is None or span.last.attempt != sample.attempt:
            span = _Span(sample, sample.at)
        span.last = sample
        for name, figure in _figures(sample):
            span.add(name, figure)
    if span is not None:
        yield span


def _figures(sample: Sample) -> Sequence[tuple[str, float | None]]:
    machine, pulse = sample.figures, sample.pulse
    return (
        ("steps_per_s", pulse.steps_per_s),
        ("gpu_pct", machine.gpu_pct),
        ("gpu_memory_pct", machine.gpu_memory_pct),
        ("memory_bytes", machine.memory_bytes),
        ("disk_free_pct", machine.free_bytes_pct),
        *((f"metric {name}", figure) for name, figure in pulse.metrics.items()),
    )


def _point(span: _Span, before: _Span | None, every_s: float | None, now: float) -> Point:
    last, pulse = span.last, span.last.pulse
    metrics = {name: span.mean(f"metric {name}") for name in pulse.metrics}
    return {
        "at": formats.time_text(last.at),
        "attempt": last.attempt,
        "gap": before is not None and _is_gap(before.last, span, every_s, now),
        "phase": pulse.phase,
        "step": pulse.step,
        "total": pulse.total,
        "checkpoint_step": pulse.checkpoint_step,
        "steps_per_s": span.rounded("steps_per_s"),
        "gpu_pct": span.rounded("gpu_pct"),
        "gpu_memory_pct": span.rounded("gpu_memory_pct"),
        "memory_bytes": span.rounded("memory_bytes"),
        "disk_free_pct": span.rounded("disk_free_pct"),
        "metrics": {name: figure for name, figure in metrics.items() if figure is not None},
    }


def _is_gap(before: Sample, span: _Span, every_s: float | None, now: float) -> bool:
    stall_polls = max(before.pulse.stall_polls, span.last.pulse.stall_polls)
    if before.attempt != span.last.attempt or stall_polls >= STALLING_POLLS:
        return True
    return _is_silence(before.at, span.first_at, now=now, spacing_s=every_s or 0.0)


def _is_silence(before: float, after: float, *, now: float, spacing_s: float) -> bool:
    """Whether two points lie further apart than usual. Points older than a day were thinned out to one in ten minutes,
    which is no silence. `spacing_s`: of the points in the response."""
    kept_s = COARSE_S if now - before > DAY_S else MINUTE_S
    return after - before > SILENT * max(kept_s, spacing_s)


@dataclass(frozen=True, slots=True)
class _KeptLine:
    """Valid until the row of the run changes, because an attempt may have ended then, or until a time."""

    version: int
    until: float  # of the monotonic clock
    points: list[SparkPoint]


class Sparklines:
    """Lines of steps, kept in memory, because a page of runs is read again and again.

    Safe to use from any thread: two that read at once may read the same lines twice."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._kept: dict[int, _KeptLine] = {}  # the one that was read first comes first

    def of(self, runs: Sequence[Run]) -> dict[int, list[SparkPoint]]:
        """Key -> points, oldest first; no points for a run that has reported no step. Raises StoreDown."""
        monotonic, now = self._parts.clock.monotonic(), self._parts.clock.now()
        points_by_run, missing = {}, []
        for run in runs:
            kept = self._kept.get(run.key)
            if kept is not None and kept.version == run.version and monotonic < kept.until:
                points_by_run[run.key] = kept.points
            else:
                missing.append(run)
        lines = self._parts.store.lines([run.key for run in missing]) if missing else {}
        for run in missing:
            points = points_by_run[run.key] = points_of(lines.get(run.key, []), now)
            self._keep(run, _KeptLine(run.version, monotonic + (ENDED_KEPT_S if run.terminal else KEPT_S), points))
        return points_by_run

    def _keep(self, run: Run, line: _KeptLine) -> None:
        self._kept.pop(run.key, None)
        self._kept[run.key] = line
        while len(self._kept) > LINES_KEPT:
            self._kept.pop(next(iter(self._kept), run.key), None)


def points_of(line: Sequence[Step], now: float) -> list[SparkPoint]:
    spacing_s = (line[-1].at - line[0].at) / LINE_PARTS if line else 0.0
    points: list[SparkPoint] = []
    before: Step | None = None
    for point in line:
        if point.step is None:
            continue
        gap = before is not None and (
            before.attempt != point.attempt or _is_silence(before.at, point.at, now=now, spacing_s=spacing_s)
        )
        points.append({"at": formats.time_text(point.at), "step": point.step, "gap": gap})
        before = point
    return points
