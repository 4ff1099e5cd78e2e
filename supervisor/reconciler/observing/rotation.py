"""Whose .stop marker is read in this tick: every active run once in ten minutes, in turn, never all at once."""

from __future__ import annotations

import math
from collections.abc import Iterable
from itertools import islice


class Rotation:
    def __init__(self, poll_interval_s: float, round_s: float) -> None:
        self._share = min(1.0, poll_interval_s / round_s)
        self._last = 0

    def turn(self, keys: Iterable[int]) -> frozenset[int]:
        """At most ceil(active * poll interval / round) keys: those after the last turn's, then from the beginning."""
        ordered = sorted(keys)
        if not ordered:
            return frozenset()
        count = math.ceil(len(ordered) * self._share)
        after = [key for key in ordered if key > self._last]
        chosen = list(islice((*after, *ordered), count))
        self._last = chosen[-1]
        return frozenset(chosen)
