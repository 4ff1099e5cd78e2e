"""The clock of this computer, and when it is believed.

The wall clock may be wrong for a few seconds (a person, NTP, a hypervisor), and what is decided in these seconds stays:
a run has ended, a pause lasts an hour. After a step `SteadyClock` therefore goes on by the monotonic clock, until three
further readings have found the wall clock where the step left it. A computer that was suspended looks the same, because
its monotonic clock stood still; then the new time is believed a minute late.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from supervisor.ports.clock import Clock

CLOCK_STEP_S = 5.0
READINGS = 3
APART_MIN_S, APART_MAX_S = 5.0, 24.0  # between two readings that count


class SystemClock:
    def now(self) -> float:
        return self.wall()

    def wall(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


@dataclass
class _Doubt:
    """`offset_s`: wall minus monotonic after the step. `agreed`: how many readings have found it there since."""

    offset_s: float
    counted_at: float
    agreed: int = 0


class SteadyClock:
    """Two readings that are closer together than `apart_s` count as one."""

    def __init__(self, clock: Clock, poll_interval_s: float) -> None:
        self._clock = clock
        self._apart_s = min(max(0.8 * poll_interval_s, APART_MIN_S), APART_MAX_S)
        self._offset_s = clock.wall() - clock.monotonic()
        self._doubt: _Doubt | None = None
        self._lock = threading.Lock()

    def now(self) -> float:
        with self._lock:
            monotonic = self._clock.monotonic()
            self._compare(self._clock.wall() - monotonic, monotonic)
            return monotonic + self._offset_s

    def wall(self) -> float:
        return self._clock.wall()

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def _compare(self, offset_s: float, monotonic: float) -> None:
        if abs(offset_s - self._offset_s) <= CLOCK_STEP_S:  # no step: small corrections are followed at once
            self._offset_s, self._doubt = offset_s, None
            return
        doubt = self._doubt
        if doubt is None or abs(offset_s - doubt.offset_s) > CLOCK_STEP_S:
            self._doubt = _Doubt(offset_s, monotonic)
        elif monotonic - doubt.counted_at >= self._apart_s:
            doubt.counted_at, doubt.agreed = monotonic, doubt.agreed + 1
            if doubt.agreed >= READINGS:
                self._offset_s, self._doubt = offset_s, None


class EventWake:
    """A wake within one process: any thread sets it, the loop waits for it."""

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        self._event.set()

    def wait(self, timeout_s: float) -> bool:
        is_set = self._event.wait(max(0.0, timeout_s))
        # A call between these two lines is not lost: the tick that follows sees its reason.
        self._event.clear()
        return is_set
