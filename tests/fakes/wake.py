"""A wake without threads: waiting lets the fake clock pass instead of blocking."""

from __future__ import annotations

from tests.fakes.clock import FakeClock


class FakeWake:
    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self._asked = False
        self.sets = 0  # how often somebody asked

    def set(self) -> None:
        self.sets += 1
        self._asked = True

    def wait(self, timeout_s: float) -> bool:
        if not self._asked:
            self._clock.advance(timeout_s)
        asked, self._asked = self._asked, False
        return asked
