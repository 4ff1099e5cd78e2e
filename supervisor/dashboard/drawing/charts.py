"""The charts of a run: which there are, and each as what a template draws of it.

They come from the series that the API tells: steps and pace, the metrics that the training names itself, figures of
the machine. A chart is complete without scripts: axes, the line, attempts in the background, and in words what it
shows. `static/charts.js` puts a chart that can be pointed at and zoomed in its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from supervisor.dashboard.drawing import axis, plot
from supervisor.dashboard.public_api import Json
from supervisor.wording.figures import epoch, plural

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
    return [
        kind
        for kind in (*STEPS, *metrics, *MACHINE)
        if any(_value(point, kind) is not None for point in points)
    ]


def _loss_first(name: str) -> tuple[bool, str]:
    return ("loss" not in name.lower(), name)


def few(found: Sequence[Kind]) -> list[Kind]:
    """Those that tell most at a glance: the step, two metrics, the GPU."""
    step = [kind for kind in found if kind.field == "step"]
    metrics = [kind for kind in found if kind.field.startswith(METRIC)]
    gpu = [kind for kind in found if kind.field == "gpu_pct"]
    return [*step, *metrics[:2], *gpu] or list(found[:2])


def draw(
    found: Iterable[Kind],
    points: Sequence[Json],
    attempts: Sequence[Json],
    times: tuple[float, float],
    height: float,
) -> list[Chart]:
    """`times`: begin and end of the axis, epoch seconds."""
    begin, end = times[0], max(times[1], times[0] + 1.0)
    stretches = _stretches(attempts, begin, end)
    across = tuple(
        Mark(100 * (at - begin) / (end - begin), text) for at, text in axis.time_marks(begin, end, MARKS_X)
    )
    return [
        _chart(kind, points, (begin, end), height=height, across=across, stretches=stretches)
        for kind in found
    ]


def _chart(
    kind: Kind,
    points: Sequence[Json],
    times: tuple[float, float],
    *,
    height: float,
    across: tuple[Mark, ...],
    stretches: tuple[Stretch, ...],
) -> Chart:
    told = [plot.Point(epoch(point["at"]) or 0.0, _value(point, kind), point["gap"]) for point in points]
    found = plot.lines(told)
    values = [value for stretch in found for _, value in stretch]
    low, high = plot.value_range(values, kind.floor, kind.ceiling)
    frame = plot.Frame(*times, low, high, height)
    marks = axis.value_marks(low, high, MARKS_Y)
    apart = marks[1] - marks[0] if len(marks) > 1 else high - low
    up = tuple(Mark(frame.y(mark), axis.mark_text(mark, apart, kind.unit)) for mark in marks)
    last = axis.value_text(values[-1], kind.unit) if values else ""
    bounds, summary = _bounds(kind, values), _summary(kind, values, len(found))
    return Chart(kind, height, plot.path(frame, found), last, bounds, summary, across, up, stretches)


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
    known = [
        (one["number"], epoch(one["started_at"]) or 0.0, epoch(one["ended_at"]), _attempt_text(one))
        for one in attempts
    ]
    return tuple(
        Stretch(
            round(100 * band.begin, 2),
            round(100 * (band.end - band.begin), 2),
            band.number if band.end - band.begin >= NUMBERED_FROM else None,
            band.number % 2 == 0,
            band.text,
        )
        for band in plot.bands(known, begin, end)
    )


def _attempt_text(attempt: Json) -> str:
    how = attempt["cause"] or ("over" if attempt["ended_at"] else "still on")
    return f"Attempt {attempt['number']}, {attempt['placement']['zone']}: {how}"


def _value(point: Json, kind: Kind) -> float | None:
    if kind.field.startswith(METRIC):
        found = point["metrics"].get(kind.field.removeprefix(METRIC))
    else:
        found = point[kind.field]
    return None if found is None else float(found)
