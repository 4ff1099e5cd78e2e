"""A lock that is handed over in the order of asking.

SQLite has one writer at a time, and its busy handler lets late comers win: with eight writers the unlucky one waits
for a second. Whoever stands in this line gets the database in turn.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager


class FifoLock:
    """`longest_hold_s` is the longest time anybody held it since it was last set to 0."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._held = False
        self._line: deque[threading.Lock] = deque()
        self.longest_hold_s = 0.0

    @contextmanager
    def held(self, timeout_s: float) -> Iterator[None]:
        """Raises TimeoutError when its turn has not come by then."""
        self._acquire(timeout_s)
        since = time.perf_counter()
        try:
            yield
        finally:
            self.longest_hold_s = max(self.longest_hold_s, time.perf_counter() - since)
            self._release()

    def _acquire(self, timeout_s: float) -> None:
        with self._mutex:
            if not self._held:
                self._held = True
                return
            turn = threading.Lock()
            turn.acquire()
            self._line.append(turn)
        if turn.acquire(timeout=timeout_s):
            return
        with self._mutex:
            if turn in self._line:
                self._line.remove(turn)
                raise TimeoutError
        # It was handed to us between the timeout and the look: it is ours.

    def _release(self) -> None:
        with self._mutex:
            if self._line:
                self._line.popleft().release()  # still held: by the next in line
            else:
                self._held = False
