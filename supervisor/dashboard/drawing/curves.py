"""Charts of metrics by every value that was reported: of one run, or of several over each other.

The points come from `GET /v1/runs/{id}/metrics` and `/v1/compare`. The axis is the time, the time since the submit, or
the step. A logarithmic axis has no place for values of zero and below, and no axis has one for values that are not
finite: they are left out, and the summary counts them. A smoothed line lies over the faint line of the values; its
weight counts per usual distance of two points, so that a gap in the steps is not smoothed over.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median
from typing import NamedTuple

from supervisor.dashboard.drawing import charts
from supervisor.dashboard.drawing.charts import METRIC, WIDTH, Chart, Charts, Frame, Kind, Stretch
from supervisor.dashboard.public_api import Json
from supervisor.wording.figures import age_text, count_text, epoch, plural

TIME, STEP = "time", "step"
SMOOTHED = ("0.6", "0.9", "0.97")
MARKS_X, MARKS_Y = 5, 5


class Look(NamedTuple):
    """How curves are drawn. `smooth`: weight of the values before, 0 = as they are."""

    x: str = TIME
    log: bool = False
    smooth: float = 0.0

    @property
    def by_step(self) -> bool:
        return self.x == STEP


class Dot(NamedTuple):
    """`x`: epoch seconds, seconds since the submit, or the step. `piece`: points of different pieces are not joined."""

    x: float
    value: float
    step: int
    piece: int = 0


class Line(NamedTuple):
    """`odd`: how many values are not finite. `name`: of a run, "" where there is one line only."""

    name: str
    dots: list[Dot]
    odd: int = 0


def look_of(query: Mapping[str, str]) -> Look:
    """As the address has it; an unknown word counts as none."""
    smooth = query.get("smooth", "")
    return Look(
        STEP if query.get("x") == STEP else TIME, query.get("y") == "log", float(smooth) if smooth in SMOOTHED else 0.0
    )


def line_of(metric: Json, look: Look, *, since: float, attempts: Sequence[Json] = (), name: str = "") -> Line:
    """`metric`: as the API has it. By time, each attempt is a piece; by step, the line goes on through all of them.
    `since`: added to the seconds."""
    ends = [] if look.by_step else [each["last_step"] for each in attempts if each["last_step"] is not None]
    dots: list[Dot] = []
    odd, piece = 0, 0
    for step, seconds, value in zip(metric["steps"], metric["seconds"], metric["values"], strict=True):
        while piece < len(ends) and step > ends[piece]:
            piece += 1
        if isinstance(value, str):
            odd += 1
        else:
            dots.append(Dot(float(step) if look.by_step else since + seconds, float(value), step, piece))
    return Line(name, dots, odd)


def run_charts(
    metrics: Json, look: Look, span: tuple[float, float] | None, height: float, drawn: Charts | None
) -> Charts:
    """The metrics of one run. By time they take the place of those in `drawn`, which is over the same time; by step
    they stand alone, over the steps of `span` (None = all)."""
    since = epoch(metrics["since"]) or 0.0
    lines = {row["name"]: line_of(row, look, since=since, attempts=metrics["attempts"]) for row in metrics["metrics"]}
    if not look.by_step and drawn is not None:
        made = [_chart(name, [line], look, (drawn.begin, drawn.end), height=height) for name, line in lines.items()]
        others = [chart for chart in drawn.charts if not chart.kind.field.startswith(METRIC)]
        places = len([chart for chart in others if chart.kind in charts.STEPS])
        return replace(drawn, charts=[*others[:places], *made, *others[places:]])
    begin, end = span or _span(lines.values())
    made = [_chart(name, [line], look, (begin, end), height=height) for name, line in lines.items()]
    return Charts(begin, end, made, step_marks(begin, end), list(_stretches(metrics["attempts"], begin, end)), [])


def compared_charts(
    comparison: Json, names: Sequence[str], look: Look, span: tuple[float, float] | None, height: float
) -> Charts:
    """One chart for each of these metrics, with a line for each run that has it; seconds count from each submit."""
    by_name = {
        name: [
            line_of(row, look, since=0.0, name=run["run_id"])
            for run in comparison["runs"]
            for row in run["metrics"]
            if row["name"] == name
        ]
        for name in names
    }
    begin, end = span or _span([line for lines in by_name.values() for line in lines])
    order = [run["run_id"] for run in comparison["runs"]]
    made = [
        _chart(name, lines, look, (begin, end), height=height, order=order) for name, lines in by_name.items() if lines
    ]
    across = step_marks(begin, end) if look.by_step else _duration_marks(begin, end)
    return Charts(begin, end, made, across, [], [])


def _span(lines: Iterable[Line]) -> tuple[float, float]:
    xs = [dot.x for line in lines for dot in (line.dots[:1] + line.dots[-1:])]
    begin, end = (min(xs), max(xs)) if xs else (0.0, 1.0)
    return begin, max(end, begin + 1.0)


def _chart(
    name: str, lines: Sequence[Line], look: Look, span: tuple[float, float], *, height: float, order: Sequence[str] = ()
) -> Chart:
    """`order`: of the runs, whose colors are the same in all charts; none = one line of one run."""
    shown = [Line(line.name, list(_visible(line.dots, look, span)), line.odd) for line in lines]
    smooth = [smoothed(line.dots, look.smooth) for line in shown] if look.smooth else [line.dots for line in shown]
    values = [dot.value for line in shown for dot in line.dots]
    low, high = charts.value_range([_scaled(value, look) for value in values])
    frame = Frame(*span, low, high, height)
    paths = [_path(frame, dots, look) for dots in smooth]
    faint = [_path(frame, line.dots, look) for line in shown] if look.smooth and not order else []
    moments, readings = _readings(frame, zip(shown, smooth, strict=True), look, bool(order))
    texts = [charts.value_text(value, "") for value in values]
    left_out = sum(line.odd for line in lines) + sum(
        1 for line in lines for dot in line.dots if look.log and dot.value <= 0
    )
    bounds = charts.bounds_text(values, "")
    missing = f"; {plural(left_out, 'value')} not shown" if left_out else ""
    last = "" if order or not texts else texts[-1]
    return Chart(
        Kind(METRIC + name, name, ""),
        height,
        "" if order else paths[0],
        last,
        bounds + missing,
        f"{f'Last {last}, ' if last else ''}{bounds}; {plural(len(texts), 'point')}{missing}."
        if texts
        else f"Nothing to show{missing}.",
        tuple((frame.y(_scaled(mark, look)), text) for mark, text in _up(low, high, look)),
        readings,
        faint=faint[0] if faint else "",
        more=tuple((order.index(line.name), path) for line, path in zip(shown, paths, strict=True)) if order else (),
        moments=moments,
    )


def _visible(dots: Sequence[Dot], look: Look, span: tuple[float, float]) -> Iterator[Dot]:
    return (dot for dot in dots if span[0] <= dot.x <= span[1] and (dot.value > 0 or not look.log))


def _scaled(value: float, look: Look) -> float:
    return math.log10(value) if look.log else charts.tamed(value)


def smoothed(dots: Sequence[Dot], weight: float) -> list[Dot]:
    """An exponential mean without the pull of a first value."""
    if len(dots) < 2:
        return list(dots)
    usual = median(after.step - before.step for before, after in pairwise(dots)) or 1.0
    made, mean, total, before = [], 0.0, 0.0, dots[0].step
    for dot in dots:
        kept = weight ** max(0.0, (dot.step - before) / usual)
        mean, total, before = mean * kept + dot.value * (1 - weight), total * kept + (1 - weight), dot.step
        made.append(dot._replace(value=mean / total))
    return made


def _path(frame: Frame, dots: Sequence[Dot], look: Look) -> str:
    pieces: dict[int, list[charts.Corner]] = {}
    for dot in dots:
        pieces.setdefault(dot.piece, []).append((0, dot.x, _scaled(dot.value, look)))
    return charts.path(frame, list(pieces.values()))


def _readings(
    frame: Frame, lines: Iterable[tuple[Line, list[Dot]]], look: Look, named: bool
) -> tuple[list[tuple[float, str, str]], list[tuple[int, float, str]]]:
    """(the moments of this chart, its readings), as charts.js takes them; in the order of x."""
    rows = sorted(
        ((dot, drawn, line.name) for line, smooth in lines for dot, drawn in zip(line.dots, smooth, strict=True)),
        key=lambda row: row[0].x,
    )
    moments: list[tuple[float, str, str]] = []
    readings: list[tuple[int, float, str]] = []
    for at, (dot, drawn, name) in enumerate(rows):
        if look.by_step:
            moment = (f"step {count_text(dot.step)}", "")
        else:
            moment = (age_text(dot.x) if named else charts.moment_text(dot.x), count_text(dot.step))
        text = charts.value_text(dot.value, "")
        moments.append((round(frame.x(dot.x), 1), *moment))
        readings.append((at, round(frame.y(_scaled(drawn.value, look)), 1), f"{name} {text}" if named else text))
    return moments, readings


def _up(low: float, high: float, look: Look) -> list[tuple[float, str]]:
    """(value, text) of the marks beside the axis. `low`, `high`: as scaled."""
    if not look.log:
        marks = charts.value_marks(low, high, MARKS_Y)
        apart = marks[1] - marks[0] if len(marks) > 1 else high - low
        return [(mark, charts.mark_text(mark, apart, "")) for mark in marks]
    powers = range(max(-307, math.floor(low)), min(307, math.floor(high)) + 1)
    fine = [size * 10.0**power for power in powers for size in (1, 2, 5)]
    fine = [mark for mark in fine if low <= math.log10(mark) <= high]
    coarse = [10.0**power for power in powers if power >= low]
    marks = fine if len(fine) <= MARKS_Y + 1 else coarse[:: -(-len(coarse) // MARKS_Y)]
    return [(mark, charts.value_text(mark, "")) for mark in marks]


def step_marks(begin: float, end: float) -> list[tuple[float, str]]:
    """(percent of the width, text)."""
    marks = [mark for mark in charts.value_marks(begin, end, MARKS_X) if mark == int(mark)]
    return [(100 * (mark - begin) / (end - begin), count_text(int(mark))) for mark in marks]


def _duration_marks(begin: float, end: float) -> list[tuple[float, str]]:
    step = next((step for step in charts.TIME_STEPS_S if (end - begin) / step <= MARKS_X), charts.TIME_STEPS_S[-1])
    first, last = math.ceil(begin / step), math.floor(end / step)
    return [(100 * (n * step - begin) / (end - begin), age_text(n * step)) for n in range(first, last + 1)][
        : MARKS_X + 1
    ]


def _stretches(attempts: Sequence[Json], begin: float, end: float) -> Iterator[Stretch]:
    """By step; each goes on to the next one, so that no step lies between two."""
    counted = [each for each in attempts if each["first_step"] is not None]
    for each, following in zip(counted, [*counted[1:], None], strict=False):
        left = max(begin, each["first_step"])
        right = min(end, end if following is None else following["first_step"])
        if right <= left:
            continue
        share, number = (right - left) / (end - begin), each["attempt"]
        text = f"Attempt {number}, steps {count_text(each['first_step'])} to {count_text(each['last_step'])}"
        wide = number if share >= charts.NUMBERED_FROM else None
        offset = round(WIDTH * (left - begin) / (end - begin) / 10, 2)
        yield Stretch(offset, round(100 * share, 2), wide, number % 2 == 0, text)
