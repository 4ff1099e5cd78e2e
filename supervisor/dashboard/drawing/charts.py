"""The charts of a run: which there are, and each as what a template draws of it.

They come from the series that the API tells: steps and pace, the metrics that the training names itself, figures of
the machine. A chart is complete without scripts: axes, the line, attempts in the background, and in words what it
shows. `static/charts.js` puts a chart that can be pointed at and zoomed in its place.

A line is cut wherever the API says `gap` (an attempt ended, or nothing was heard): a chart must not draw what nobody
has seen. A point without a value cuts nothing by itself, since a figure may be told more rarely than others are.
Coordinates lie in a box of WIDTH by the frame's height, y downwards; whatever is asked for, none lies outside.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from supervisor.dashboard.drawing import axis
from supervisor.dashboard.public_api import Json
from supervisor.wording.figures import epoch, plural

WIDTH = 1000.0
HUGE = 1e300  # beyond it a difference of two values is no number any more
FLAT = 1e-9  # a range that is this small a part of its values is one value
PAD = 0.06  # of the range, above and below a line

Place = tuple[float, float]  # epoch seconds, value


@dataclass(frozen=True, slots=True)
class Point:
    """`value` None = not told at that time. `gap`: no line leads here from the point before."""

    at: float
    value: float | None
    gap: bool


@dataclass(frozen=True, slots=True)
class Band:
    """A stretch of time in the background, as shares of the width, 0 to 1."""

    number: int
    begin: float
    end: float
    text: str


@dataclass(frozen=True, slots=True)
class Frame:
    """Times `begin` to `end` and values `low` to `high` (both greater than the first) in a box of this height."""

    begin: float
    end: float
    low: float
    high: float
    height: float

    def share(self, at: float) -> float:
        """Of the width."""
        return min(1.0, max(0.0, (at - self.begin) / (self.end - self.begin)))

    def x(self, at: float) -> float:
        return WIDTH * self.share(at)

    def y(self, value: float) -> float:
        share = (tamed(value) - self.low) / (self.high - self.low)
        return self.height * (1.0 - min(1.0, max(0.0, share)))


def tamed(value: float) -> float:
    return min(HUGE, max(-HUGE, value))


def lines(points: Iterable[Point]) -> list[list[Place]]:
    """Stretches that are drawn through, in order of time; none is empty."""
    stretches: list[list[Place]] = []
    cut = True
    for point in points:
        cut = cut or point.gap
        if point.value is None or not math.isfinite(point.value):
            continue
        if cut:
            stretches.append([])
        stretches[-1].append((point.at, point.value))
        cut = False
    return stretches


def path(frame: Frame, stretches: Sequence[Sequence[Place]]) -> str:
    """Path data. A single point is a line of no length: with round ends it is a dot."""
    pieces = []
    for stretch in stretches:
        corners = [f"{_short(frame.x(at))} {_short(frame.y(value))}" for at, value in stretch]
        pieces.append(f"M{corners[0]}h0" if len(corners) == 1 else f"M{'L'.join(corners)}")
    return "".join(pieces)


def _short(coordinate: float) -> str:
    return f"{coordinate:.1f}".removesuffix(".0")


def value_range(
    values: Sequence[float], floor: float | None = None, ceiling: float | None = None
) -> tuple[float, float]:
    """Low and high for an axis, never equal. `floor` and `ceiling` are shown even where no value comes near them."""
    shown = [tamed(value) for value in values]
    shown += [bound for bound in (floor, ceiling) if bound is not None]
    low, high = (min(shown), max(shown)) if shown else (0.0, 1.0)
    size = max(abs(low), abs(high))
    if high - low <= FLAT * size or high == low:
        room = 0.1 * size or 1.0
        return (floor if floor is not None else low - room), high + room
    pad = PAD * (high - low)
    return (low if low == floor else low - pad, high if high == ceiling else high + pad)


def bands(attempts: Iterable[tuple[int, float, float | None, str]], begin: float, end: float) -> list[Band]:
    """Of attempts (number, start, end or None = still on, words) what lies between the two times."""
    shown = []
    for number, start, stop, text in attempts:
        left, right = max(begin, start), min(end, end if stop is None else stop)
        if right > left:
            length = end - begin
            shown.append(Band(number, (left - begin) / length, (right - begin) / length, text))
    return shown


SMALL_PX, LARGE_PX = 110.0, 190.0
MARKS_X, MARKS_Y = 5, 4
NUMBERED_FROM = 0.035  # of the width: a number needs room
METRIC = "metric "  # before the name of a metric, as a field


class Kind(NamedTuple):
    """`field` of a point, or METRIC and a metric's name; `floor`, `ceiling`: always on the axis."""

    field: str
    title: str
    unit: str
    floor: float | None = None
    ceiling: float | None = None


STEPS = (Kind("step", "Step", "steps"), Kind("steps_per_s", "Steps per second", "rate", 0.0))
MACHINE = (
    Kind("gpu_pct", "GPU", "percent", 0.0, 100.0),
    Kind("gpu_memory_pct", "GPU memory", "percent", 0.0, 100.0),
    Kind("memory_bytes", "Memory of the machine", "bytes", 0.0),
    Kind("disk_free_pct", "Free disk", "percent", 0.0, 100.0),
)


@dataclass(frozen=True, slots=True)
class Mark:
    """On an axis. `at`: percent of the width, or px from the top."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Stretch:
    """An attempt in the background; percent of the width. `number` None = too narrow to be numbered."""

    left: float
    width: float
    number: int | None
    even: bool
    text: str


@dataclass(frozen=True, slots=True)
class Chart:
    """`path` "" = nothing to draw. `last`: the newest figure; `bounds`: lowest and highest; `summary`: what the whole
    chart shows."""

    kind: Kind
    height: float
    path: str
    last: str
    bounds: str
    summary: str
    across: tuple[Mark, ...]
    up: tuple[Mark, ...]
    stretches: tuple[Stretch, ...]


def kinds(points: Sequence[Json]) -> list[Kind]:
    """Those that any point tells of; metrics in the order of their names, a loss first."""
    names = sorted({name for point in points for name in point["metrics"]}, key=_loss_first)
    metrics = [Kind(METRIC + name, name, "") for name in names]
    return [kind for kind in (*STEPS, *metrics, *MACHINE) if any(_value(point, kind) is not None for point in points)]


def _loss_first(name: str) -> tuple[bool, str]:
    return ("loss" not in name.lower(), name)


def few(kinds: Sequence[Kind]) -> list[Kind]:
    """Those that tell most at a glance: the step, two metrics, the GPU."""
    step = [kind for kind in kinds if kind.field == "step"]
    metrics = [kind for kind in kinds if kind.field.startswith(METRIC)]
    gpu = [kind for kind in kinds if kind.field == "gpu_pct"]
    return [*step, *metrics[:2], *gpu] or list(kinds[:2])


def draw(
    kinds: Iterable[Kind], points: Sequence[Json], attempts: Sequence[Json], times: tuple[float, float], height: float
) -> list[Chart]:
    """`times`: begin and end of the axis, epoch seconds."""
    begin, end = times[0], max(times[1], times[0] + 1.0)
    stretches = _stretches(attempts, begin, end)
    across = tuple(Mark(100 * (at - begin) / (end - begin), text) for at, text in axis.time_marks(begin, end, MARKS_X))
    return [_chart(kind, points, (begin, end), height=height, across=across, stretches=stretches) for kind in kinds]


def _chart(
    kind: Kind,
    points: Sequence[Json],
    times: tuple[float, float],
    *,
    height: float,
    across: tuple[Mark, ...],
    stretches: tuple[Stretch, ...],
) -> Chart:
    samples = [Point(epoch(point["at"]) or 0.0, _value(point, kind), point["gap"]) for point in points]
    pieces = lines(samples)
    values = [value for stretch in pieces for _, value in stretch]
    low, high = value_range(values, kind.floor, kind.ceiling)
    frame = Frame(*times, low, high, height)
    marks = axis.value_marks(low, high, MARKS_Y)
    apart = marks[1] - marks[0] if len(marks) > 1 else high - low
    up = tuple(Mark(frame.y(mark), axis.mark_text(mark, apart, kind.unit)) for mark in marks)
    last = axis.value_text(values[-1], kind.unit) if values else ""
    bounds, summary = _bounds(kind, values), _summary(kind, values, len(pieces))
    return Chart(kind, height, path(frame, pieces), last, bounds, summary, across, up, stretches)


def _bounds(kind: Kind, values: Sequence[float]) -> str:
    if not values:
        return ""
    lowest, highest = (axis.value_text(value, kind.unit) for value in (min(values), max(values)))
    if lowest != highest:
        return f"lowest {lowest}, highest {highest}"
    if len(values) == 1:
        return "one point"
    return "always the same" if min(values) == max(values) else "nearly the same"


def _summary(kind: Kind, values: Sequence[float], stretches: int) -> str:
    if not values:
        return "Nothing was told in this time."
    cuts = f", with {plural(stretches - 1, 'gap')}" if stretches > 1 else ""
    last = axis.value_text(values[-1], kind.unit)
    many = f"; {plural(len(values), 'point')}" if len(values) > 1 else ""
    return f"Last {last}, {_bounds(kind, values)}{many}{cuts}."


def _stretches(attempts: Sequence[Json], begin: float, end: float) -> tuple[Stretch, ...]:
    attempt_times = [
        (attempt["number"], epoch(attempt["started_at"]) or 0.0, epoch(attempt["ended_at"]), _attempt_text(attempt))
        for attempt in attempts
    ]
    return tuple(
        Stretch(
            round(100 * band.begin, 2),
            round(100 * (band.end - band.begin), 2),
            band.number if band.end - band.begin >= NUMBERED_FROM else None,
            band.number % 2 == 0,
            band.text,
        )
        for band in bands(attempt_times, begin, end)
    )


def _attempt_text(attempt: Json) -> str:
    how = attempt["cause"] or ("over" if attempt["ended_at"] else "still on")
    return f"Attempt {attempt['number']}, {attempt['placement']['zone']}: {how}"


def _value(point: Json, kind: Kind) -> float | None:
    if kind.field.startswith(METRIC):
        value = point["metrics"].get(kind.field.removeprefix(METRIC))
    else:
        value = point[kind.field]
    return None if value is None else float(value)
