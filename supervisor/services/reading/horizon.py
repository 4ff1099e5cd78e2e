"""How far the history may be told: up to the first hole in the ids that an open writer may still fill.

Told once is told in that order for ever, so an id below one that was told must never appear afterwards. A hole is
closed when everybody who was writing after it was seen has ended, and what they wrote has been read; or when that
took so long that all others have waited enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from supervisor.ports.history import Writers

PATIENCE_S = 10.0  # for one writer that does not end; every other statement of ours is broken off by then


@dataclass(frozen=True, slots=True)
class Hole:
    """Ids are missing below `below`, the highest id that was seen. `writers`: who was open afterwards. `since`: on the
    monotonic clock."""

    below: int
    writers: Writers
    since: float

    def closed(self, writers: Writers, now: float) -> bool:
        """`writers`: who is open now, asked before the next read."""
        return self.late(now) or not (self.writers & writers)

    def late(self, now: float) -> bool:
        return now - self.since >= PATIENCE_S


def in_line(passed: int, ids: Sequence[int], closed_below: int) -> int:
    """How many of these ids, which rise from above `passed` on, may be told: holes below `closed_below` are closed."""
    expected = passed + 1
    for count, found in enumerate(ids):
        if found > max(expected, closed_below):
            return count
        expected = found + 1
    return len(ids)
