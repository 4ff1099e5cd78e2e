"""Every reported value of a training's metrics, in bounded room: one series per attempt, an object in the store.

Shared with the agent: Python 3.8, standard library only. A `Curve` takes one value after the other. While they are few
it keeps each of them. When there are more than it may keep, it divides the steps into parts of equal width (a power of
two) and keeps of each part the first, the last, the lowest and the highest value, and the first one that is not finite.
The newest values stay as they are. Wider parts are made of whole narrower ones, so what a curve keeps of a part does
not depend on how often it was made smaller: the extremes of a training are never lost, and a line drawn through the
kept points looks like the line through all of them.

A training that goes back reports the later steps anew: the values that it had reported for them are removed.

The object is JSON in a gzip:

  {"version": 1, "resumed_from": 120, "left_out": 0, "complete": false, "curves": [
    {"name": "loss", "reports": 51230, "steps": [121, 1, 1], "up": [315, 1, 1], "values": [0.31, "nan", 0.3]}]}

`steps` and `up` (tenths of seconds since the start of the agent) hold the first value, then differences. On the server
the object is untrusted input, like a beat: what cannot be read is no point, and sizes are limited before anything is
unpacked.
"""

from __future__ import annotations

import json
import math
import zlib
from itertools import accumulate
from typing import Any, Dict, Iterable, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Tuple

from supervisor.contract.heartbeat import MAX_COUNT, is_count, is_metric_name

VERSION = 1
MAX_NAMES = 64  # metrics of one attempt; further names are counted only
MAX_POINTS = 2000  # of one metric
MAX_TOTAL = 16_000  # of all metrics together: with many metrics each keeps fewer
NEWEST = 200  # values that are kept as they are
SHARES = 4  # points that one part keeps at most, while all values are finite
MAX_BYTES = 1 << 20  # of an object
MAX_UNPACKED = 4 << 20
MAX_UP_S = 1e9
NEVER = 10**16  # beyond every step: where an attempt began that did not train
_DIGITS = "%.8g"
_WORDS = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}

Point = Tuple[int, float, float]  # step, seconds since the start of the agent, value


class Curve:
    """The values of one metric. Used by one thread, or under its owner's lock. `reports`: how many there were."""

    __slots__ = ("_last", "most", "points", "reports")

    def __init__(self, most: int = MAX_POINTS) -> None:
        self.points: List[Point] = []
        self.reports = 0
        self.most = most
        self._last = -1

    def add(self, step: int, up_s: float, value: float) -> None:
        if step < self._last:
            self.cut(step)
        self._last = step
        self.reports += 1
        self.points.append((step, up_s, value))
        if len(self.points) > self.most:
            self.shrink()

    def cut(self, step: int) -> None:
        """The training has gone back: it reports `step` and all later ones anew."""
        while self.points and self.points[-1][0] >= step:
            self.points.pop()

    def shrink(self) -> None:
        newest = min(NEWEST, self.most // 4)
        at = len(self.points) - newest
        self.points = reduced(self.points[:at], 2 * (self.most - newest) // 3) + self.points[at:]

    def put_before(self, points: Iterable[Point], reports: int) -> None:
        """Values that an earlier agent of this attempt has kept; those that were reported anew are left out. Times
        count from the start of this agent: for how long there was none is not known."""
        earlier = list(points)
        end_s = earlier[-1][1] if earlier else 0.0
        first = self.points[0][0] if self.points else None
        before = [(step, up_s - end_s, value) for step, up_s, value in earlier if first is None or step < first]
        self.points = before + self.points
        self.reports += reports
        if self._last < 0 and before:
            self._last = before[-1][0]
        if len(self.points) > self.most:
            self.shrink()


def reduced(points: List[Point], most: int) -> List[Point]:
    """At most `most` of these points (in the order of their steps; more only where values are not finite): of each part
    of the steps its first, last, lowest, highest and first not finite one. All of them where they are few enough."""
    if len(points) <= most:
        return points
    parts, width = max(1, most // SHARES), 1
    while points[-1][0] // width - points[0][0] // width >= parts:
        width *= 2
    kept: List[Point] = []
    begin, number = 0, points[0][0] // width
    for at, point in enumerate(points):
        if point[0] // width != number:
            kept.extend(_of_part(points[begin:at]))
            begin, number = at, point[0] // width
    kept.extend(_of_part(points[begin:]))
    return kept


def _of_part(points: List[Point]) -> List[Point]:
    values = [point[2] for point in points]
    at = {0, len(points) - 1}
    finite = [value for value in values if math.isfinite(value)]
    if finite:
        at.update((values.index(min(finite)), values.index(max(finite))))
    if len(finite) < len(values):
        at.add(next(index for index, value in enumerate(values) if not math.isfinite(value)))
    return [points[index] for index in sorted(at)]


class Kept(NamedTuple):
    """The points of one metric as they were kept, in the order of their steps."""

    reports: int
    points: Tuple[Point, ...]


class Series(NamedTuple):
    """`resumed_from`: the step of the restored checkpoint, None = from zero. `left_out`: names of metrics beyond
    MAX_NAMES. `complete`: the command has ended, and nothing will follow."""

    resumed_from: Optional[int] = None
    left_out: int = 0
    complete: bool = False
    curves: Mapping[str, Kept] = {}


def encode(series: Series) -> bytes:
    """Equal series give equal bytes."""
    curves = [
        {
            "name": name,
            "reports": curve.reports,
            "steps": _differences([point[0] for point in curve.points]),
            "up": _differences([round(10 * point[1]) for point in curve.points]),
            "values": [_value(point[2]) for point in curve.points],
        }
        for name, curve in series.curves.items()
    ]
    data = {
        "version": VERSION,
        "resumed_from": series.resumed_from,
        "left_out": series.left_out,
        "complete": series.complete,
        "curves": curves,
    }
    packer = zlib.compressobj(6, zlib.DEFLATED, 31)  # a gzip without a time in it
    return packer.compress(json.dumps(data, separators=(",", ":"), allow_nan=False).encode()) + packer.flush()


def _differences(values: List[Any]) -> List[Any]:
    return values[:1] + [after - before for before, after in zip(values, values[1:])]


def _value(value: float) -> Any:
    if math.isfinite(value):
        return float(_DIGITS % value)
    return "nan" if math.isnan(value) else "inf" if value > 0 else "-inf"


def decode(raw: bytes) -> Optional[Series]:
    """None where this is no such object, or one of a version that we do not know. Never raises."""
    try:
        data = json.loads(_unpacked(raw))
    except (ValueError, RecursionError, zlib.error):
        return None
    if not isinstance(data, dict) or data.get("version") != VERSION or not isinstance(data.get("curves"), list):
        return None
    curves: Dict[str, Kept] = {}
    for row in data["curves"][:MAX_NAMES]:
        if isinstance(row, dict) and is_metric_name(row.get("name")) and row["name"]:
            curves.setdefault(row["name"].encode("utf-8", "replace").decode(), _curve(row))
    return Series(
        resumed_from=_count(data.get("resumed_from")),
        left_out=_count(data.get("left_out")) or 0,
        complete=data.get("complete") is True,
        curves=curves,
    )


def _unpacked(raw: bytes) -> bytes:
    """Raises ValueError, zlib.error."""
    if len(raw) > MAX_BYTES:
        raise ValueError("too large")
    unpacker = zlib.decompressobj(31)
    data = unpacker.decompress(raw, MAX_UNPACKED)
    if not unpacker.eof:
        raise ValueError("cut off, or too large")
    return data


def _curve(row: Mapping[str, Any]) -> Kept:
    """Without the points that are absurd or not in order; a point whose step or time cannot be read ends the curve,
    because the later ones are counted from it."""
    columns: List[Any] = [row.get(name) for name in ("steps", "up", "values")]
    if not all(isinstance(column, list) for column in columns):
        columns = [[], [], []]
    steps, up, values = (column[: min(MAX_POINTS, *map(len, columns))] for column in columns)
    points = _plain(steps, up, values) if steps else ()
    if points is None:
        points = tuple(_checked(steps, up, values))
    return Kept(max(len(points), _count(row.get("reports")) or 0), points)


def _plain(steps: List[Any], up: List[Any], values: List[Any]) -> Optional[Tuple[Point, ...]]:
    """All points at once; None where any of them must be looked at."""
    if {*map(type, steps)} | {*map(type, up)} != {int} or not {*map(type, values)} <= {int, float}:
        return None
    if min(steps) < 0 or sum(steps) > MAX_COUNT:
        return None
    if _largest(values) > 1e300 or not math.isfinite(sum(values)):
        return None
    tenths = list(accumulate(up))
    if _largest(tenths) > 10 * MAX_UP_S:
        return None
    return tuple(zip(accumulate(steps), [tenth / 10 for tenth in tenths], map(float, values)))


def _largest(values: List[Any]) -> Any:
    """The largest magnitude."""
    low, high = min(values), max(values)
    return max(-low, high)


def _checked(steps: List[Any], up: List[Any], values: List[Any]) -> Iterator[Point]:
    step, tenths = 0, 0
    for more, later, value in zip(steps, up, values):
        if not is_count(more) or type(later) is not int:
            return
        step, tenths = step + more, tenths + later
        if not is_count(step) or abs(tenths) > 10 * MAX_UP_S:
            return
        number = _WORDS.get(value) if isinstance(value, str) else float(value) if _is_finite(value) else None
        if number is not None:
            yield step, tenths / 10, number


def _count(value: Any) -> Optional[int]:
    return value if is_count(value) else None


def _is_finite(value: Any) -> bool:
    """A number as JSON has it, however large; False for True."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


def last_counted(begins: Sequence[int]) -> List[Optional[int]]:
    """For each attempt of a run, in order: the last step whose values count, because a later attempt has done the steps
    after it again; None = all count. `begins`: the step that each one restored, -1 = it began from zero, NEVER = it did
    not train."""
    ends: List[Optional[int]] = []
    earliest = NEVER
    for begin in reversed(begins):
        ends.append(None if earliest == NEVER else earliest)
        earliest = min(begin, earliest)
    return ends[::-1]
