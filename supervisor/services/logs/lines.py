"""Where the lines of a log start: the number of line breaks before every 256 KiB, counted once, as the bytes are read.

One line among ten million is found with a search of the marks and one read of at most SPACING bytes. The marks of a log
of 10 GB take 320 kB. Only bytes that cannot change any more are counted: a log grows only at its end.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left
from typing import NamedTuple

SPACING = 262_144
BREAK = b"\n"


class Mark(NamedTuple):
    """`breaks`: line breaks before byte `offset`."""

    offset: int
    breaks: int


class LineIndex:
    """`feed` it the bytes in order. Thread-safe: bytes that come twice or too early are ignored."""

    def __init__(self) -> None:
        self.epoch = 0  # a reader's bytes count only if nothing was forgotten since it opened the log
        self._marks = array("Q", (0,))  # [i]: breaks before byte i * SPACING
        self._counted = Mark(0, 0)
        self._open = False  # the last counted byte does not end a line
        self._lock = threading.Lock()

    @property
    def counted(self) -> int:
        """How many bytes were counted, from the start."""
        return self._counted.offset

    def feed(self, offset: int, data: bytes, epoch: int) -> None:
        with self._lock:
            counted, breaks = self._counted
            at = counted - offset
            if epoch != self.epoch or not 0 <= at < len(data):
                return
            while at < len(data):
                end = min(len(data), at + SPACING - counted % SPACING)
                breaks += data.count(BREAK, at, end)
                counted += end - at
                at = end
                if counted % SPACING == 0:
                    self._marks.append(breaks)
            self._counted, self._open = Mark(counted, breaks), data[-1:] != BREAK

    def forget(self, offset: int) -> None:
        """The bytes from `offset` on have changed."""
        with self._lock:
            self.epoch += 1
            if offset < self._counted.offset:
                kept = max(0, offset - 1) // SPACING  # something is always counted again, so that its end is known
                del self._marks[kept + 1 :]
                self._counted, self._open = Mark(kept * SPACING, self._marks[kept]), True

    def total(self, size: int) -> int | None:
        """Lines of a log of this size, including an unfinished last line; None: not counted that far."""
        with self._lock:
            counted, breaks = self._counted
            return breaks + (counted > 0 and self._open) if counted == size else None

    def before(self, offset: int) -> Mark | None:
        """The last mark at or before this byte; None: not counted that far."""
        with self._lock:
            if offset >= self._counted.offset:
                return self._counted if offset == self._counted.offset else None
            at = offset // SPACING
            return Mark(at * SPACING, self._marks[at])

    def before_break(self, number: int) -> Mark | None:
        """The last mark before the line break with this number (from 1); None: not counted that far."""
        with self._lock:
            if number > self._counted.breaks:
                return None
            at = max(0, bisect_left(self._marks, number) - 1)
            return Mark(at * SPACING, self._marks[at])
