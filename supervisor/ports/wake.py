"""How a request or a finished action makes the loop look again at once instead of at its next poll."""

from __future__ import annotations

from typing import Protocol


class Wake(Protocol):
    def set(self) -> None:
        """Ask for a tick soon. Any number of calls before that tick count as one. Never blocks, never raises."""
        ...

    def wait(self, timeout_s: float) -> bool:
        """Block until somebody has called `set` since the last return (True), or until the time is over (False)."""
        ...
