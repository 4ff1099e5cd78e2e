"""Since when has each source been read without a gap? Limits that end something begin no earlier than that.

A source's clock starts anew at our own start, at a new leadership, after a gap of more than two polls, and when wall
and monotonic clock disagree: then ages computed across the step would be wrong.
"""

from __future__ import annotations

CLOCK_STEP_S = 5.0
GAP_POLLS = 2.0


class Freshness:
    def __init__(self, poll_interval_s: float) -> None:
        self._gap_s = GAP_POLLS * poll_interval_s
        self._since: dict[str, float] = {}  # wall time, as decisions compare it
        self._last: dict[str, float] = {}  # monotonic time of the last good read
        self._offset_s: float | None = None  # wall minus monotonic

    def clocks(self, now: float, monotonic: float) -> bool:
        """True when the wall clock has stepped since the last call; every source then begins anew."""
        offset_s = now - monotonic
        stepped = self._offset_s is not None and abs(offset_s - self._offset_s) > CLOCK_STEP_S
        self._offset_s = offset_s
        if stepped:
            self.reset()
        return stepped

    def reset(self) -> None:
        self._since.clear()
        self._last.clear()

    def read(self, source: str, now: float, monotonic: float) -> None:
        """A complete and good read of `source` just now."""
        last = self._last.get(source)
        if last is None or monotonic - last > self._gap_s:
            self._since[source] = now
        self._last[source] = monotonic

    def since(self, now: float) -> dict[str, float]:
        """source -> read without a gap since. A source that was never read counts from now."""
        return {source: min(at, now) for source, at in self._since.items()}
