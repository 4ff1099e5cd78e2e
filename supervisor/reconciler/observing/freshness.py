"""Since when has each source been read without a gap? Limits that end something begin no earlier than that.

A source's clock starts anew at our own start, at a new leadership, after a gap (`domain.observation.gap_s`), and when
wall and monotonic clock disagree: then ages computed across the step would be wrong.
"""

from __future__ import annotations

from supervisor.domain.observation import gap_s

CLOCK_STEP_S = 5.0


class Freshness:
    def __init__(self, poll_interval_s: float) -> None:
        self._gap_s = gap_s(poll_interval_s)
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

    def read(self, source: str, now: float, monotonic: float, age_s: float = 0.0) -> None:
        """A complete and good read of `source`, asked for `age_s` ago. One that is too old is a gap by itself."""
        read_at, last = monotonic - age_s, self._last.get(source)
        if last is None or read_at - last > self._gap_s or self.is_gap(age_s):
            self._since[source] = now
        self._last[source] = read_at

    def is_gap(self, age_s: float) -> bool:
        return age_s > self._gap_s

    def age_s(self, source: str, monotonic: float) -> float | None:
        """Of the last good read; None = there was none."""
        last = self._last.get(source)
        return None if last is None else max(0.0, monotonic - last)

    def since(self, now: float) -> dict[str, float]:
        """source -> read without a gap since. A source that was never read counts from now."""
        return {source: min(at, now) for source, at in self._since.items()}
