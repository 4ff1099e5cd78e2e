"""A clock that stands still until the test moves it."""

from __future__ import annotations

START = 1_800_000_000.0  # 2027-01-15T08:00:00Z


class FakeClock:
    """`advance` lets time pass; `step` sets the wall clock, as a person or NTP does, and no time passes."""

    def __init__(self, start: float = START) -> None:
        self._wall = start
        self._monotonic = 1000.0

    def now(self) -> float:
        return self._wall

    def wall(self) -> float:
        return self._wall

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> float:
        """The new wall time. Time does not go back: ValueError for a negative number."""
        if seconds < 0:
            raise ValueError("time does not go back; use step() for the wall clock")
        self._wall += seconds
        self._monotonic += seconds
        return self._wall

    def step(self, seconds: float) -> float:
        self._wall += seconds
        return self._wall
