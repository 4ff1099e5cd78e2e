"""The last points of a young training: one every five seconds of its first minutes, carried by every beat as one text.

Shared with the agent: Python 3.8, standard library only. A short run sends few beats; these points still give its chart
a curve. Names of metrics stand once, points in columns below them:

  {"names": ["loss"], "points": [[31.5, 120, 4.2, 0.31], [36.5, 141, 4.2, null]]}    up_s, step, steps_per_s, metrics

A beat carries the last two minutes, so that no point is missed where beats are stored or read once a minute. The text
is untrusted input, like the beat: what cannot be read is no point, and no reason to refuse a beat.
"""

from __future__ import annotations

import json
from collections import deque
from typing import Any, Deque, Dict, Iterable, List, Mapping, NamedTuple, Optional, Tuple

from supervisor.contract.heartbeat import MAX_METRICS, MAX_RECENT_BYTES, NO_METRICS, is_count, is_metric_name, is_number

EVERY_S = 5.0
COLLECTED_S = 420.0  # of the agent's run time; after that one point a minute is enough
MAX_POINTS = 24
CARRIED_S = COLLECTED_S + MAX_POINTS * EVERY_S  # the beats of an agent that runs longer carry none
FEWER_METRICS = (4, 2, 1)  # as many as fit
_FIXED = 3  # columns before those of metrics


class RecentPoint(NamedTuple):
    """`up_s`: how long the agent had run, by its own monotonic clock."""

    up_s: float
    step: int
    steps_per_s: Optional[float] = None
    metrics: Mapping[str, float] = NO_METRICS


class RecentPoints:
    """The points that an agent has collected; a few KB at most. Used under its caller's lock."""

    def __init__(self) -> None:
        self._points: Deque[RecentPoint] = deque(maxlen=MAX_POINTS)

    def note(self, point: RecentPoint) -> None:
        early = self._points and point.up_s < self._points[-1].up_s + EVERY_S
        if point.up_s < COLLECTED_S and not early:
            self._points.append(point)

    def text(self, up_s: float) -> str:
        """The text for a beat that is made now."""
        if up_s >= CARRIED_S:
            self._points.clear()
        return encode(self._points)


def encode(points: Iterable[RecentPoint]) -> str:
    """At most MAX_RECENT_BYTES, all ASCII; "" without points."""
    newest = list(points)[-MAX_POINTS:]
    names = list(newest[-1].metrics) if newest else []
    text = ""
    for kept in (*FEWER_METRICS, 0):
        text = _text(newest, names[:kept])
        if len(text) <= MAX_RECENT_BYTES:
            break
    return text


def _text(points: List[RecentPoint], names: List[str]) -> str:
    if not points:
        return ""
    rows = []
    for point in points:
        metrics = (_short(point.metrics.get(name)) for name in names)
        rows.append([round(point.up_s, 1), point.step, _short(point.steps_per_s), *metrics])
    return json.dumps({"names": names, "points": rows}, separators=(",", ":"), allow_nan=False)


def _short(figure: Optional[float]) -> Optional[float]:
    return None if figure is None else float("%.5g" % figure)


def decode(text: str) -> Tuple[RecentPoint, ...]:
    """The points in order of time, without absurd ones. Never raises: () for any other text."""
    try:
        data = json.loads(text) if text else None
    except (ValueError, RecursionError):
        return ()
    names = data.get("names") if isinstance(data, dict) else None
    rows = data.get("points") if isinstance(data, dict) else None
    if not isinstance(names, list) or not isinstance(rows, list) or not all(map(is_metric_name, names)):
        return ()
    points: List[RecentPoint] = []
    for row in rows[:MAX_POINTS]:
        point = _point(row, names[:MAX_METRICS])
        if point is not None and (not points or point.up_s > points[-1].up_s):
            points.append(point)
    return tuple(points)


def _point(row: Any, names: List[str]) -> Optional[RecentPoint]:
    if not isinstance(row, list) or len(row) < _FIXED:
        return None
    up_s, step, pace = row[:_FIXED]
    if not is_count(step) or not is_number(up_s) or not 0 <= up_s < CARRIED_S:
        return None
    metrics: Dict[str, float] = {name: float(value) for name, value in zip(names, row[_FIXED:]) if is_number(value)}
    return RecentPoint(float(up_s), step, float(pace) if is_number(pace) else None, metrics)
