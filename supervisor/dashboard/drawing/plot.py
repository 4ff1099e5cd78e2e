"""Lines over time as coordinates: no markup, no words.

A line is cut wherever the API says `gap` (an attempt ended, or nothing was heard): a chart must not draw what nobody
has seen. A point without a value cuts nothing by itself, since a figure may be told more rarely than others are.
Coordinates lie in a box of WIDTH by the frame's height, y downwards; whatever is asked for, none lies outside.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

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
    found: list[list[Place]] = []
    cut = True
    for point in points:
        cut = cut or point.gap
        if point.value is None or not math.isfinite(point.value):
            continue
        if cut:
            found.append([])
        found[-1].append((point.at, point.value))
        cut = False
    return found


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
    return (
        low if low == floor else low - pad,
        high if high == ceiling else high + pad,
    )


def bands(attempts: Iterable[tuple[int, float, float | None, str]], begin: float, end: float) -> list[Band]:
    """Of attempts (number, start, end or None = still on, words) what lies between the two times."""
    found = []
    for number, start, stop, text in attempts:
        left, right = max(begin, start), min(end, end if stop is None else stop)
        if right > left:
            length = end - begin
            found.append(Band(number, (left - begin) / length, (right - begin) / length, text))
    return found
