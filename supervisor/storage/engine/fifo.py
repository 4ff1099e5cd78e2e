"""A lock that is handed over in the order of asking.

SQLite has one writer at a time, and its busy handler lets late comers win: with eight writers the unlucky one waits
for a second. Whoever stands in this line gets the database in turn.
"""

from __future__ import annotations

import threading
from collections import deque


class FifoLock:
    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._held = False
        self._line: deque[threading.Lock] = deque()

    def acquire(self, timeout_s: float) -> None:
        """Raises TimeoutError when its turn has not come by then."""
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

    def hand_over(self) -> bool:
        """To the next in line; False when nobody waits, then it is still ours."""
        with self._mutex:
            if not self._line:
                return False
            self._line.popleft().release()
            return True

    def release(self) -> None:
        with self._mutex:
            if self._line:
                self._line.popleft().release()  # still held: by the next in line
            else:
                self._held = False
