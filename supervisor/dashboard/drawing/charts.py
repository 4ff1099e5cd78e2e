"""The charts of a run, drawn once, on the server: axes, lines, attempts in the background, and the words of each point.

The points come from the API: steps and pace, the metrics of the training, figures of the machine. A chart is complete
without scripts; static/charts.js only shows which point the reader points at, from the texts made here.

A line is cut where the API says `gap` (an attempt ended, or no beat arrived): a chart must not draw what was not
observed. A point without a value cuts nothing, because some figures are reported more rarely than others. Coordinates
are in a box of WIDTH by the frame's height, y downwards; none lies outside. Units: `steps`, `rate` (steps/s), `percent`
(0 to 100), `bytes` (in powers of 1000), and `` for a metric, of which nothing is known.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from supervisor.dashboard.public_api import Json
from supervisor.wording.figures import count_text, epoch, plural, rate_text, size_text

WIDTH = 1000.0
SMALL_PX, LARGE_PX = 110.0, 190.0
MARKS_X, MARKS_Y = 5, 4
FEW_MARKS_X = 2  # in a small chart: with seconds, a third one would touch its neighbors
NUMBERED_FROM = 0.035  # of the width: a narrower attempt shows no number
HUGE = 1e300  # beyond it the difference of two values overflows
FLAT = 1e-9  # a range that is this small a part of its values is one value
PAD = 0.06  # of the range, above and below a line
METRIC = "metric "  # before the name of a metric, as a field
DAY_S = 86_400
TIME_STEPS_S = (
    1, 5, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14_400, 21_600, 43_200,
    DAY_S, 2 * DAY_S, 7 * DAY_S, 14 * DAY_S, 28 * DAY_S, 91 * DAY_S, 364 * DAY_S,
)  # fmt: skip
PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
SCIENTIFIC_FROM, SCIENTIFIC_BELOW = 1e7, 1e-4
LONG_FROM = 1e9  # too long for an axis when written out
DIGITS = 4  # significant digits of a metric


class Kind(NamedTuple):
    """`field` of a point, or METRIC and the name of a metric; `floor`, `ceiling`: always on the axis."""

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


class Point(NamedTuple):
    """`value` None = not reported at that time. `gap`: no line leads here from the point before."""

    at: float
    value: float | None
    gap: bool


Corner = tuple[int, float, float]  # the index of its point, epoch seconds, value


@dataclass(frozen=True, slots=True)
class Frame:
    """Times `begin` to `end` and values `low` to `high` (both greater than the first) in a box of this height."""

    begin: float
    end: float
    low: float
    high: float
    height: float

    def x(self, at: float) -> float:
        return WIDTH * min(1.0, max(0.0, (at - self.begin) / (self.end - self.begin)))

    def y(self, value: float) -> float:
        share = (tamed(value) - self.low) / (self.high - self.low)
        return self.height * (1.0 - min(1.0, max(0.0, share)))


class Stretch(NamedTuple):
    """An attempt in the background; percent of the width. `number` None = too narrow for a number."""

    left: float
    width: float
    number: int | None
    even: bool
    text: str


@dataclass(frozen=True, slots=True)
class Chart:
    """`path` "" = nothing to draw. `last`: the newest figure; `bounds`: lowest and highest; `summary`: all of it in
    words. `up`: (px from the top, text) of the marks. `readings`: (index of the point, y, text) of each drawn value.
    `faint`: the line of the values below a smoothed one. `more`: (number of the run, path) of several runs. `moments`:
    as in Charts, where this chart has points of its own."""

    kind: Kind
    height: float
    path: str
    last: str
    bounds: str
    summary: str
    up: tuple[tuple[float, str], ...]
    readings: list[tuple[int, float, str]]
    faint: str = ""
    more: tuple[tuple[int, str], ...] = ()
    moments: list[tuple[float, str, str]] | None = None


@dataclass(frozen=True, slots=True)
class Charts:
    """Charts over the same time, `begin` to `end`. `across`: (percent of the width, text) of the marks. `moments`: (x,
    time, step or "") of each point."""

    begin: float
    end: float
    charts: list[Chart]
    across: list[tuple[float, str]]
    stretches: list[Stretch]
    moments: list[tuple[float, str, str]]


def kinds(points: Sequence[Json]) -> list[Kind]:
    """The kinds that any point reports; metrics in the order of their names, a loss first."""
    names = sorted({name for point in points for name in point["metrics"]}, key=_loss_first)
    metrics = [Kind(METRIC + name, name, "") for name in names]
    return [kind for kind in (*STEPS, *metrics, *MACHINE) if any(_value(point, kind) is not None for point in points)]


def _loss_first(name: str) -> tuple[bool, str]:
    return ("loss" not in name.lower(), name)


def few(kinds: Sequence[Kind]) -> list[Kind]:
    """The most telling at a glance: the step, two metrics, the GPU."""
    step = [kind for kind in kinds if kind.field == "step"]
    metrics = [kind for kind in kinds if kind.field.startswith(METRIC)]
    gpu = [kind for kind in kinds if kind.field == "gpu_pct"]
    return [*step, *metrics[:2], *gpu] or list(kinds[:2])


def draw(
    kinds: Iterable[Kind], points: Sequence[Json], attempts: Sequence[Json], times: tuple[float, float], height: float
) -> Charts:
    """`points`, `attempts`: as the API has them. `times`: begin and end of the axis, epoch seconds."""
    begin, end = times[0], max(times[1], times[0] + 1.0)
    frame, most = Frame(begin, end, 0.0, 1.0, height), FEW_MARKS_X if height <= SMALL_PX else MARKS_X
    times_s = [epoch(point["at"]) or 0.0 for point in points]
    return Charts(
        begin,
        end,
        [_chart(kind, points, times_s, (begin, end), height) for kind in kinds],
        [(frame.x(at) / 10, text) for at, text in time_marks(begin, end, most)],
        stretches(attempts, begin, end),
        [
            (round(frame.x(at), 1), moment_text(at), "" if point["step"] is None else count_text(point["step"]))
            for at, point in zip(times_s, points, strict=True)
        ],
    )


def _chart(
    kind: Kind, points: Sequence[Json], times_s: Sequence[float], times: tuple[float, float], height: float
) -> Chart:
    pieces = lines([Point(at, _value(point, kind), point["gap"]) for at, point in zip(times_s, points, strict=True)])
    corners = [corner for piece in pieces for corner in piece]
    values = [value for *_, value in corners]
    low, high = value_range(values, kind.floor, kind.ceiling)
    frame = Frame(*times, low, high, height)
    marks = value_marks(low, high, MARKS_Y)
    apart = marks[1] - marks[0] if len(marks) > 1 else high - low
    texts = [value_text(value, kind.unit) for value in values]
    bounds = bounds_text(values, kind.unit)
    return Chart(
        kind,
        height,
        path(frame, pieces),
        texts[-1] if texts else "",
        bounds,
        _summary(texts, bounds, len(pieces)),
        tuple((frame.y(mark), mark_text(mark, apart, kind.unit)) for mark in marks),
        [(index, round(frame.y(value), 1), text) for (index, _, value), text in zip(corners, texts, strict=True)],
    )


def lines(points: Iterable[Point]) -> list[list[Corner]]:
    """The pieces of a line without gaps, in order of time; none is empty."""
    pieces: list[list[Corner]] = []
    cut = True
    for index, point in enumerate(points):
        cut = cut or point.gap
        if point.value is None or not math.isfinite(point.value):
            continue
        if cut:
            pieces.append([])
        pieces[-1].append((index, point.at, point.value))
        cut = False
    return pieces


def path(frame: Frame, pieces: Sequence[Sequence[Corner]]) -> str:
    """Path data. A single point is a line of no length: with round ends it is a dot."""
    data = []
    for piece in pieces:
        corners = [f"{_short(frame.x(at))} {_short(frame.y(value))}" for _, at, value in piece]
        data.append(f"M{corners[0]}h0" if len(corners) == 1 else f"M{'L'.join(corners)}")
    return "".join(data)


def _short(coordinate: float) -> str:
    return f"{coordinate:.1f}".removesuffix(".0")


def tamed(value: float) -> float:
    return min(HUGE, max(-HUGE, value))


def value_range(
    values: Sequence[float], floor: float | None = None, ceiling: float | None = None
) -> tuple[float, float]:
    """Low and high for an axis, never equal. `floor` and `ceiling` are shown even where no value comes near them."""
    shown = [tamed(value) for value in values]
    shown += [bound for bound in (floor, ceiling) if bound is not None]
    low, high = (min(shown), max(shown)) if shown else (0.0, 1.0)
    size = max(abs(low), abs(high))
    if high - low <= FLAT * size or high == low:
        margin = 0.1 * size or 1.0
        return (floor if floor is not None else low - margin), high + margin
    pad = PAD * (high - low)
    return (low if low == floor else low - pad, high if high == ceiling else high + pad)


def stretches(attempts: Sequence[Json], begin: float, end: float) -> list[Stretch]:
    """The attempts, cut to the time between the two."""
    shown = []
    for attempt in attempts:
        ended_at = epoch(attempt["ended_at"])
        left = max(begin, epoch(attempt["started_at"]) or 0.0)
        right = end if ended_at is None else min(end, ended_at)
        if right <= left:
            continue
        share, number = (right - left) / (end - begin), attempt["number"]
        how = attempt["cause"] or ("over" if attempt["ended_at"] else "still on")
        text = f"Attempt {number}, {attempt['placement']['zone']}: {how}"
        offset = round(100 * (left - begin) / (end - begin), 2)
        wide = share >= NUMBERED_FROM
        shown.append(Stretch(offset, round(100 * share, 2), number if wide else None, number % 2 == 0, text))
    return shown


def bounds_text(values: Sequence[float], unit: str) -> str:
    if not values:
        return ""
    lowest, highest = (value_text(value, unit) for value in (min(values), max(values)))
    if lowest != highest:
        return f"lowest {lowest}, highest {highest}"
    if len(values) == 1:
        return "one point"
    return "always the same" if min(values) == max(values) else "nearly the same"


def _summary(texts: Sequence[str], bounds: str, pieces: int) -> str:
    if not texts:
        return "Nothing was reported in this time."
    gaps = f", with {plural(pieces - 1, 'gap')}" if pieces > 1 else ""
    many = f"; {plural(len(texts), 'point')}" if len(texts) > 1 else ""
    return f"Last {texts[-1]}, {bounds}{many}{gaps}."


def _value(point: Json, kind: Kind) -> float | None:
    if kind.field.startswith(METRIC):
        value = point["metrics"].get(kind.field.removeprefix(METRIC))
    else:
        value = point[kind.field]
    return None if value is None else float(value)


def time_marks(begin: float, end: float, most: int) -> list[tuple[float, str]]:
    """At most `most` round times between the two, in UTC: the clock, and at midnight the day."""
    step = next((step for step in TIME_STEPS_S if end // step - math.ceil(begin / step) + 1 <= most), TIME_STEPS_S[-1])
    first = math.ceil(begin / step) * step
    marks = [first + number * step for number in range(most) if first + number * step <= end]
    return [(float(at), _time_text(at, step)) for at in marks]


def _time_text(at: float, step: float) -> str:
    moment = datetime.fromtimestamp(at, UTC)
    if at % DAY_S == 0:
        return f"{moment:%b} {moment.day}"
    return f"{moment:%H:%M}" if step >= 60 else f"{moment:%H:%M:%S}"


def moment_text(at: float) -> str:
    """`Nov 22, 09:31:00 UTC`"""
    moment = datetime.fromtimestamp(at, UTC)
    return f"{moment:%b} {moment.day}, {moment:%H:%M:%S} UTC"


def value_marks(low: float, high: float, most: int) -> list[float]:
    """At most `most` round values between the two (which differ), in order."""
    step = _round_up((high - low) / most)
    first = math.ceil(low / step)
    marks = [(first + number) * step for number in range(most + 1)]
    return [mark for mark in marks if low <= mark <= high][:most]


def _round_up(step: float) -> float:
    """To 1, 2 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(step))
    return next(size * power for size in (1, 2, 5, 10) if size * power >= step * (1 - 1e-9))


def mark_text(value: float, step: float, unit: str) -> str:
    """Beside an axis whose marks are `step` apart: short, and no two marks of one axis read alike."""
    if unit == "percent":
        return f"{_decimals(value, step)} %"
    if unit == "bytes":
        return _shortened(value, step, "B") if value else "0 B"
    if unit == "steps":
        return _shortened(value, step, "").replace(" ", "")
    if value == 0:
        return "0"
    if abs(value) >= LONG_FROM or step < SCIENTIFIC_BELOW:
        return _scientific(value, max(0, math.floor(math.log10(abs(value))) - math.floor(math.log10(step))))
    return _decimals(value, step)


def _shortened(value: float, step: float, unit: str) -> str:
    for size, letter in PREFIXES:
        if abs(value) >= size:
            return f"{_decimals(value / size, step / size)} {letter}{unit}"
    return f"{_decimals(value, step)} {unit}".strip()


def _decimals(value: float, step: float) -> str:
    """As many decimals as tell marks apart that are `step` apart."""
    return f"{value:,.{max(0, min(9, -math.floor(math.log10(step) + 1e-9)))}f}"


def _scientific(value: float, decimals: int) -> str:
    head, _, power = f"{value:.{min(6, decimals)}e}".partition("e")
    return f"{head}e{int(power)}"


def value_text(value: float, unit: str) -> str:
    """`12,300`, `3.1 steps/s`, `87.5 %`, `24.1 GB`, `0.3112`"""
    if unit == "steps":
        return count_text(round(value))
    if unit == "rate":
        return rate_text(value)
    if unit == "percent":
        return f"{_trimmed(f'{value:.1f}')} %"
    if unit == "bytes":
        return size_text(round(value))
    size = abs(value)
    if size != 0 and (size >= SCIENTIFIC_FROM or size < SCIENTIFIC_BELOW):
        head, _, power = f"{value:.{DIGITS - 1}e}".partition("e")
        return f"{_trimmed(head)}e{int(power)}"
    whole = len(str(int(size))) if size >= 1 else 0
    leading = -math.floor(math.log10(size)) - 1 if 0 < size < 1 else 0  # zeros after the point
    return _trimmed(f"{value:,.{max(0, DIGITS - whole) + leading}f}")


def _trimmed(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text
