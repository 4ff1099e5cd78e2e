"""Where the lines of a log begin: line breaks before every 256 KiB, counted once, as its bytes go by.

A line of ten million is found by a look into the marks and one read of at most SPACING bytes. The marks of a log of
10 GB take 320 kB. Only bytes that cannot change any more are counted: a log grows at its end alone.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterator
from typing import NamedTuple, Protocol

SPACING = 262_144
BREAK = b"\n"


class Mark(NamedTuple):
    """`breaks`: line breaks before byte `offset`."""

    offset: int
    breaks: int


class Readable(Protocol):
    @property
    def size(self) -> int: ...

    @property
    def lines(self) -> LineIndex: ...

    def stream(self, begin: int, end: int) -> Iterator[bytes]: ...

    def read(self, begin: int, end: int) -> bytes: ...


class LineIndex:
    """`feed` it the bytes in order. Safe to use from several threads: what comes twice or too early is ignored."""

    def __init__(self) -> None:
        self.epoch = 0  # a reader's bytes count only if nothing was forgotten since it looked
        self._marks = array("Q", (0,))  # [i]: breaks before byte i * SPACING
        self._counted = Mark(0, 0)
        self._open = False  # the last counted byte ended no line
        self._lock = threading.Lock()

    @property
    def counted(self) -> int:
        """So many bytes from the beginning on."""
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
                kept = max(0, offset - 1) // SPACING  # so that something is counted again, and its end known
                del self._marks[kept + 1 :]
                self._counted, self._open = Mark(kept * SPACING, self._marks[kept]), True

    def total(self, size: int) -> int | None:
        """Lines of a log of this size, the last one without an end too; None: not counted that far."""
        with self._lock:
            counted, breaks = self._counted
            return breaks + (counted > 0 and self._open) if counted == size else None

    def before(self, offset: int) -> Mark | None:
        """The nearest mark at or before this byte; None: not counted that far."""
        with self._lock:
            if offset >= self._counted.offset:
                return self._counted if offset == self._counted.offset else None
            at = offset // SPACING
            return Mark(at * SPACING, self._marks[at])

    def before_break(self, number: int) -> Mark | None:
        """The last mark that lies before the break of this number (from 1 on); None: not counted that far."""
        with self._lock:
            if number > self._counted.breaks:
                return None
            at = max(0, bisect_left(self._marks, number) - 1)
            return Mark(at * SPACING, self._marks[at])


class Allowance:
    """How much one request may read to count lines: `bytes_` and seconds of `monotonic`, whichever is used up first."""

    def __init__(self, bytes_: int, seconds: float, monotonic: Callable[[], float]) -> None:
        self._left, self._until, self._monotonic = bytes_, monotonic() + seconds, monotonic

    def spend(self, bytes_: int) -> bool:
        """False: that was all."""
        self._left -= bytes_
        return self._left > 0 and self._monotonic() < self._until


def count_on(log: Readable, allowance: Allowance, enough: Callable[[], bool] = lambda: False) -> None:
    """Count lines until `enough`, the end, or the end of the allowance."""
    begin = log.lines.counted
    if enough() or begin >= log.size or not allowance.spend(0):
        return
    for piece in log.stream(begin, log.size):
        if enough() or not allowance.spend(len(piece)):
            return


def line_at(log: Readable, offset: int) -> int | None:
    """The number of the line in which this byte lies, from 1 on; None: not counted that far."""
    mark = log.lines.before(offset)
    return None if mark is None else 1 + mark.breaks + log.read(mark.offset, offset).count(BREAK)


def offset_of(log: Readable, line: int) -> int | None:
    """Where this line begins; for a number behind the last line, the end. None: not counted that far."""
    if line == 1:
        return 0
    mark = log.lines.before_break(line - 1)
    if mark is None:
        return log.size if log.lines.counted >= log.size else None
    data = log.read(mark.offset, min(log.size, mark.offset + SPACING))
    rest = data.split(BREAK, line - 1 - mark.breaks)
    return mark.offset + len(data) - len(rest[-1])
