"""The one source of time, and what ends a wait early. Decisions read neither: `now` is an argument to them."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Epoch seconds (UTC) to decide and to write by. After a step of the wall clock it may go on as before until
        the new time has proven itself."""
        ...

    def wall(self) -> float:
        """What the computer's clock says right now, step or not: for deadlines, and to compare clocks."""
        ...

    def monotonic(self) -> float:
        """Seconds since an arbitrary start; never goes back and never jumps with the wall clock."""
        ...


class Wake(Protocol):
    def set(self) -> None:
        """Ask for a tick soon. Any number of calls before that tick count as one. Never blocks, never raises."""
        ...

    def wait(self, timeout_s: float) -> bool:
        """Block until somebody has called `set` since the last return (True), or until the time is over (False)."""
        ...
