"""The source of time, and the wake of a waiting loop. Decisions read neither: `now` is an argument to them."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Epoch seconds (UTC) for decisions and rows. After a step of the wall clock it may continue without the step
        until the new time is proven."""

    def wall(self) -> float:
        """The computer's clock, with its steps: for deadlines, and to compare clocks."""

    def monotonic(self) -> float:
        """Seconds since an arbitrary start, without the steps of the wall clock."""


class Wake(Protocol):
    def set(self) -> None:
        """Request a tick soon. Several calls before that tick count as one. Never blocks, never raises."""

    def wait(self, timeout_s: float) -> bool:
        """Block until there was a `set` since the last return (True), or until the timeout (False)."""
