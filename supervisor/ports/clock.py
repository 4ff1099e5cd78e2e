"""The one source of time. Decisions never read it: `now` is an argument to them."""

from __future__ import annotations

from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Wall time in epoch seconds (UTC). May step; limits that end something are protected by `monotonic`."""
        ...

    def monotonic(self) -> float:
        """Seconds since an arbitrary start; never goes back and never jumps with the wall clock."""
        ...
