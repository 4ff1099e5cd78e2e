"""A run's steps over time as a line a centimetre high: broken where an attempt ended, with a band where nothing ran.

Only paths with numbers in them, so that nothing here needs a style of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple

from supervisor.wording.figures import age_text, count_text, plural

WIDTH, HEIGHT = 96, 24
EDGE = 2.0  # so that the line's own width is not cut off
SOON_S = 30.0  # how exact an end is that moves on
BAND_MIN = 1.5  # a gap that is shorter than a pixel is seen all the same

Point = tuple[float, float]


class Spark(NamedTuple):
    """`line`, `bands`: data of SVG paths, "" = there is none. `text`: the same in words."""

    line: str
    bands: str
    text: str


def spark(points: Sequence[dict[str, Any]], until: float | None = None) -> Spark | None:
    """`points` as the API tells them. `until`: nothing has run from the newest point to this time; None: it goes on, or
    is over. None where there is nothing to draw."""
    if not points:
        return None
    line = tuple((point["at"], point["step"], point["gap"]) for point in points)
    return _spark(line, None if until is None else until // SOON_S * SOON_S)


@lru_cache(1024)  # lines stay the same for a minute, and all pages show the same
def _spark(points: tuple[tuple[str, int, bool], ...], until: float | None) -> Spark:
    told = [(datetime.fromisoformat(at).timestamp(), step) for at, step, _ in points]
    first, last = told[0][0], max(told[-1][0], until or 0.0)
    low, high = min(step for _, step in told), max(step for _, step in told)
    across = (WIDTH - 2 * EDGE) / max(1.0, last - first)
    up = (HEIGHT - 2 * EDGE) / max(1, high - low)
    drawn = [(EDGE + (at - first) * across, HEIGHT - EDGE - (step - low) * up) for at, step in told]
    gaps = [False, *(gap for _, _, gap in points[1:])]
    bands = [
        _band(before[0], x) for before, (x, _), gap in zip(drawn, drawn[1:], gaps[1:], strict=False) if gap
    ]
    if until is not None and last > told[-1][0]:
        bands.append(_band(drawn[-1][0], WIDTH - EDGE))
    broken = sum(gaps)
    text = f"Steps {count_text(told[0][1])} to {count_text(told[-1][1])} in {age_text(told[-1][0] - first)}"
    return Spark(
        _line(drawn, gaps), "".join(bands), text + (f", {plural(broken, 'interruption')}" if broken else "")
    )


def _line(drawn: Sequence[Point], gaps: Sequence[bool]) -> str:
    """A point between two gaps becomes a dot: a line of no length with round ends."""
    parts = []
    for number, ((x, y), gap) in enumerate(zip(drawn, gaps, strict=True)):
        begins = number == 0 or gap
        parts.append(f"{'M' if begins else 'L'}{x:.1f} {y:.1f}")
        if begins and (number + 1 == len(drawn) or gaps[number + 1]):
            parts.append("h0")
    return "".join(parts)


def _band(left: float, right: float) -> str:
    """From top to bottom."""
    width = max(BAND_MIN, right - left)
    return f"M{left:.1f} 0h{width:.1f}v{HEIGHT}h-{width:.1f}z"
