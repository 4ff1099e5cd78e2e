"""A wake within one process: any thread sets it, the loop waits for it."""

from __future__ import annotations

import threading


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
