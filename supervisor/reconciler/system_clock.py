"""The clock of this computer, and how much of it is believed.

The wall clock may be wrong for a few seconds (a person, NTP, a hypervisor), and what is decided in these seconds stays:
a run has ended, a pause lasts an hour. `SteadyClock` therefore goes on by the monotonic clock after a step, until three
further looks have found the wall clock where the step left it. A computer that slept looks the same, because its
monotonic clock stood still; then the new time is believed a minute late.

A wake within one process: any thread sets it, the loop waits for it.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass

from supervisor.ports.clock import Clock
from supervisor.reconciler.observing.freshness import CLOCK_STEP_S

LOOKS = 3
APART_MIN_S, APART_MAX_S = 5.0, 24.0  # between two looks that count


class SystemClock:
    def now(self) -> float:
        return self.wall()

    def wall(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


@dataclass
class _Doubt:
    """`offset_s`: wall minus monotonic after the step. `agreed`: how many looks have found it there since."""

    offset_s: float
    looked_at: float
    agreed: int = 0


class SteadyClock:
    """Every reading is a look, but two that are closer together than `apart_s` count as one."""

    def __init__(self, clock: Clock, poll_interval_s: float) -> None:
        self._clock = clock
        self._apart_s = min(max(0.8 * poll_interval_s, APART_MIN_S), APART_MAX_S)
        self._offset_s = clock.wall() - clock.monotonic()
        self._doubt: _Doubt | None = None
        self._lock = threading.Lock()

    def now(self) -> float:
        with self._lock:
            monotonic = self._clock.monotonic()
            self._look(self._clock.wall() - monotonic, monotonic)
            return monotonic + self._offset_s

    def wall(self) -> float:
        return self._clock.wall()

    def monotonic(self) -> float:
        return self._clock.monotonic()

    def _look(self, offset_s: float, monotonic: float) -> None:
        if abs(offset_s - self._offset_s) <= CLOCK_STEP_S:  # as ever: small corrections are followed at once
            self._offset_s, self._doubt = offset_s, None
            return
        doubt = self._doubt
        if doubt is None or abs(offset_s - doubt.offset_s) > CLOCK_STEP_S:
            self._doubt = _Doubt(offset_s, monotonic)
        elif monotonic - doubt.looked_at >= self._apart_s:
            doubt.looked_at, doubt.agreed = monotonic, doubt.agreed + 1
            if doubt.agreed >= LOOKS:
                self._offset_s, self._doubt = offset_s, None


class EventWake:
    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        self._event.set()

    def wait(self, timeout_s: float) -> bool:
        asked = self._event.wait(max(0.0, timeout_s))
        # A call between these two lines is not lost: the look that follows sees what it was about.
        self._event.clear()
        return asked
