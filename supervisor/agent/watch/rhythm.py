"""The rhythm of a run's steps, and when the next one is late.

Intervals between reports of steps are measured; those in an announced phase (evaluation, checkpoint) are not. After
REPORTS of them the rhythm is known: the median, and the 99th percentile of the newest WINDOW, or of their newer half
where that is larger, because steps may grow. An interval longer than LONG medians is of the second kind: an evaluation
or a checkpoint that the training does not announce. Once such intervals have come twice, they are expected again,
where they come at equal gaps of steps or of time only when the next one is due, and no more once they stay away.

A step is late after `late_s`: five times what is usual for the kind that is due, and at least FLOOR_S. A single long
interval (the first compile) makes no kind: whether anything moves is for others to say. Pure; times are seconds of any
one clock.

`Pace` is about minutes, not single steps: whether the run is slower than it was.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Collection, Deque, NamedTuple, Optional, Sequence, Tuple

REPORTS, WINDOW, LONG_WINDOW = 20, 512, 32
LONG = 5.0  # medians
LATE = 5.0  # 99th percentiles
FLOOR_S = 60.0
EQUAL = 0.1  # gaps that differ by this share are equal
MOST = 0.8  # of the gaps must be equal
SORT_EVERY = 16  # intervals
PACES, LEAST_PACES, LEAST_STEPS = 480, 10, 10
USUAL = 0.9  # a slower pace than this share of the usual one is not usual
SLACK = 1 / 60  # of a window: its first report may be so much late
STAY_AWAY = 3.0  # gaps after which long intervals are no longer expected


class _Interval(NamedTuple):
    began_at: float
    step: int  # before it
    length_s: float


class Rhythm:
    """`add` each report of a step; `pause` when a phase is announced. `carried_s`: what was usual in the attempt
    before, which counts until the rhythm of this one is known; None = that is not known either."""

    carried_s: Optional[float] = None

    def __init__(self, floor_s: float = FLOOR_S) -> None:
        self._floor_s = floor_s
        self._usual: Deque[_Interval] = deque(maxlen=WINDOW)
        self._long: Deque[_Interval] = deque(maxlen=LONG_WINDOW)
        self._measured = 0
        self._longest_usual_s = math.inf  # a longer interval is of the second kind
        self._usual_s = self._long_s = 0.0  # 99th percentiles
        self._at: Optional[float] = None  # of the last report; None = no interval is being measured
        self._step = 0

    def add(self, now: float, step: int) -> None:
        """A report of this step. A step that goes back starts the measure again."""
        if self._at is not None and step > self._step:
            self._measure(_Interval(self._at, self._step, now - self._at))
        self._at, self._step = now, step

    def pause(self) -> None:
        """The present interval is no measure of a step."""
        self._at = None

    def late_s(self) -> Optional[float]:
        """How long after the last report the next step is late; None until the rhythm is known."""
        if self._measured < REPORTS:
            return None if self.carried_s is None else max(self._floor_s, LATE * self.carried_s)
        due_s = max(self._usual_s, self._long_s) if self._long_is_due() else self._usual_s
        return max(self._floor_s, LATE * due_s)

    @property
    def usual_s(self) -> Optional[float]:
        """Of this attempt; None until it is known."""
        return None if self._measured < REPORTS else self._usual_s

    def _measure(self, interval: _Interval) -> None:
        self._measured += 1
        is_long = interval.length_s > self._longest_usual_s
        (self._long if is_long else self._usual).append(interval)
        if is_long or self._measured == REPORTS or self._measured % SORT_EVERY == 0:
            self._sort_out()

    def _sort_out(self) -> None:
        """What is long is known only by the others: the first intervals of a run are often the longest."""
        if self._measured < REPORTS:
            return
        self._longest_usual_s = LONG * percentile([interval.length_s for interval in self._usual], 0.5)
        longer = [interval for interval in self._usual if interval.length_s > self._longest_usual_s]
        if longer:
            self._long = deque(sorted((*longer, *self._long)), maxlen=LONG_WINDOW)
            self._usual = deque((interval for interval in self._usual if interval not in longer), maxlen=WINDOW)
        lengths = [interval.length_s for interval in self._usual]
        self._usual_s = max(percentile(lengths), percentile(lengths[len(lengths) // 2 :]))
        self._long_s = percentile([interval.length_s for interval in self._long]) if self._long else 0.0

    def _long_is_due(self) -> bool:
        if len(self._long) < 2 or self._at is None:
            return False
        steps = [after.step - before.step for before, after in zip(self._long, list(self._long)[1:])]
        times = [after.began_at - before.began_at for before, after in zip(self._long, list(self._long)[1:])]
        last = self._long[-1]
        by_steps: Tuple[float, Sequence[float]] = (self._step - last.step, steps)
        for since, gaps in (by_steps, (self._at - last.began_at, times)):
            gap = _equal(gaps)
            if gap is not None:
                return (1 - EQUAL) * gap <= since <= STAY_AWAY * gap
        return self._step - last.step <= STAY_AWAY * max(steps)


class Pace:
    """Steps a second of training, compared with the median of before."""

    def __init__(self, window_s: float) -> None:
        self._window_s = window_s
        self._points: Deque[Tuple[float, int]] = deque()
        self._young: Deque[Tuple[float, float]] = deque()  # paces that are still within the window
        self._usual: Deque[float] = deque(maxlen=PACES)

    def clear(self) -> None:
        """What is usual stays."""
        self._points.clear()
        self._young.clear()

    def add(self, trained_s: float, step: int) -> None:
        if self._points and step < self._points[-1][1]:
            self.clear()
        self._points.append((trained_s, step))
        while len(self._points) > 2 and self._points[1][0] <= trained_s - self._window_s:
            self._points.popleft()

    def share(self, trained_s: float) -> Optional[float]:
        """Of the usual pace; None where it is not known yet, or the steps are too long to say. Call it at equal times:
        each call takes one pace for later."""
        pace, recent = self._pace(trained_s, self._window_s), self._pace(trained_s, self._window_s / 3)
        share = self._share_of(pace)
        if recent is not None:
            self._young.append((trained_s, recent))
        while self._young and self._young[0][0] <= trained_s - self._window_s:
            _, old = self._young.popleft()
            if share is None or share >= USUAL:
                self._usual.append(old)
        return share

    def _share_of(self, pace: Optional[float]) -> Optional[float]:
        usual = median(self._usual) if len(self._usual) >= LEAST_PACES else 0.0
        if pace is None or usual * self._window_s < LEAST_STEPS:
            return None
        return round(pace / usual, 2)

    def _pace(self, trained_s: float, window_s: float) -> Optional[float]:
        """Over the last `window_s`; None until there are so many."""
        since = trained_s - window_s
        if not self._points or self._points[0][0] > since + SLACK * self._window_s:
            return None
        first = next((point for point in self._points if point[0] >= since), self._points[-1])
        seconds = self._points[-1][0] - first[0]
        return (self._points[-1][1] - first[1]) / seconds if seconds > window_s / 2 else None


def median(values: Collection[float]) -> float:
    """Of one value at least. The standard library's takes 3 ms and 1 MB of each agent, for its fractions."""
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def percentile(lengths_s: Sequence[float], share: float = 0.99) -> float:
    """The smallest of the lengths that is at least as long as `share` of them."""
    ordered = sorted(lengths_s)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)]


def _equal(gaps: Sequence[float]) -> Optional[float]:
    """The usual gap, where nearly all are equal to it."""
    usual = percentile(gaps, 0.5)
    equal = sum(1 for gap in gaps if abs(gap - usual) <= EQUAL * usual)
    return usual if equal >= MOST * len(gaps) else None
