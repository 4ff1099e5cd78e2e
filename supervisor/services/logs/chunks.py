"""The bytes of an attempt's log: its chunks in the object store, one after the other.

Chunks are numbered and only the last one can still grow, so their sizes are cached: a reader that follows the log costs
one request for the last chunk and one for the next chunk, not a listing of all earlier ones. If the store shows other
sizes (an agent that started again), the counts of the changed part are dropped.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from supervisor.ports.objectstore import ObjectInfo, ObjectMissing, ObjectStore, StoreUnavailable
from supervisor.services.logs.lines import BREAK, SPACING, LineIndex

RELIST_S = 30.0  # after this time a gap in the numbers is noticed


class Allowance:
    """How much one request may read to count lines: `bytes_` or seconds of `monotonic`, whichever ends first."""

    def __init__(self, bytes_: int, seconds: float, monotonic: Callable[[], float]) -> None:
        self._left, self._until, self._monotonic = bytes_, monotonic() + seconds, monotonic

    def spend(self, bytes_: int) -> bool:
        """False: the allowance is used up."""
        self._left -= bytes_
        return self._left > 0 and self._monotonic() < self._until


@dataclass(frozen=True, slots=True)
class LogBytes:
    """A log as it was when it was opened. `ends[i]`: bytes of the log up to the end of chunk i. `lines`: also covers
    later bytes; `epoch`: the version of it that this log belongs to. All methods that read raise StoreUnavailable,
    ObjectMissing."""

    objects: ObjectStore
    keys: tuple[str, ...]
    ends: tuple[int, ...]
    lines: LineIndex
    epoch: int

    @property
    def size(self) -> int:
        return self.ends[-1] if self.ends else 0

    def stream(self, begin: int, end: int, chunks_max: int | None = None) -> Iterator[bytes]:
        """Bytes [begin, end) in pieces of at most a megabyte; the lines of pieces in order are counted. Ends early if a
        chunk returns fewer bytes than its size: a caller that needs all bytes compares."""
        first = bisect_right(self.ends, begin)
        last = len(self.keys) if chunks_max is None else first + chunks_max
        at = begin
        for key, chunk_end, start in zip(
            self.keys[first:last], self.ends[first:last], (0, *self.ends)[first:last], strict=False
        ):
            stop = min(end, chunk_end)
            if at >= stop:
                return
            for piece in self.objects.read(key, at - start, stop - at):
                self.lines.feed(at, piece, self.epoch)
                at += len(piece)
                yield piece
            if at < stop:
                return

    def read(self, begin: int, end: int, chunks_max: int | None = None) -> bytes:
        return b"".join(self.stream(begin, end, chunks_max))

    def count_lines(self, allowance: Allowance, enough: Callable[[], bool] = lambda: False) -> None:
        """Continue counting until `enough`, the end of the log, or the end of the allowance."""
        begin = self.lines.counted
        if enough() or begin >= self.size or not allowance.spend(0):
            return
        for piece in self.stream(begin, self.size):
            if enough() or not allowance.spend(len(piece)):
                return

    def line_at(self, offset: int) -> int | None:
        """The number, from 1, of the line that contains this byte; None: not counted that far."""
        mark = self.lines.before(offset)
        return None if mark is None else 1 + mark.breaks + self.read(mark.offset, offset).count(BREAK)

    def offset_of(self, line: int) -> int | None:
        """Where this line starts; the end of the log for a number after the last line. None: not counted that far."""
        if line == 1:
            return 0
        mark = self.lines.before_break(line - 1)
        if mark is None:
            return self.size if self.lines.counted >= self.size else None
        data = self.read(mark.offset, min(self.size, mark.offset + SPACING))
        rest = data.split(BREAK, line - 1 - mark.breaks)
        return mark.offset + len(data) - len(rest[-1])


@dataclass(slots=True)
class Chunks:
    """The cached chunks of one log, about 100 bytes for each. Under `_lock` one reader refreshes them, and readers that
    came before it started get its result; with a slow store the last of many readers waits for two refreshes."""

    _keys: list[str] = field(default_factory=list)
    _ends: array[int] = field(default_factory=lambda: array("Q"))
    _contents: array[int] = field(default_factory=lambda: array("q"))  # hashes of their generations
    _listed_at: float = float("-inf")
    _lines: LineIndex = field(default_factory=LineIndex)
    _started: int = 0  # refreshes
    _finished: int = 0  # the number of the last refresh that has ended with a result or with StoreUnavailable
    _error: StoreUnavailable | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __len__(self) -> int:
        return len(self._keys)

    def open(self, objects: ObjectStore, prefix: str, monotonic: float) -> LogBytes:
        """The log as it is now. Raises StoreUnavailable; ObjectMissing, and then the cache is emptied."""
        before = self._started
        with self._lock:
            if self._finished <= before:
                self._try_refresh(objects, prefix, monotonic)
            if self._error is not None:
                raise StoreUnavailable(str(self._error)) from self._error
            return LogBytes(objects, tuple(self._keys), tuple(self._ends), self._lines, self._lines.epoch)

    def _try_refresh(self, objects: ObjectStore, prefix: str, monotonic: float) -> None:
        self._started += 1
        self._error = None
        try:
            self._refresh(objects, prefix, monotonic)
        except ObjectMissing:
            self._replace([], float("-inf"))
            raise
        except StoreUnavailable as error:
            self._error = error
        self._finished = self._started

    def _refresh(self, objects: ObjectStore, prefix: str, monotonic: float) -> None:
        before = self._size
        if self._keys:
            last = self._renew_last(objects)
            while (info := _next(objects, last)) is not None:
                self._renew_last(objects)  # it may have grown after its stat and before the next chunk appeared
                self._add(info)
                last = info.key
        if self._size == before and monotonic - self._listed_at >= (RELIST_S if self._keys else 0.0):
            self._replace([info for page in objects.pages(prefix) for info in page.objects], monotonic)

    @property
    def _size(self) -> int:
        return self._ends[-1] if self._ends else 0

    def _add(self, info: ObjectInfo) -> None:
        self._ends.append(self._size + info.size)
        self._keys.append(info.key)
        self._contents.append(hash(info.generation))

    def _renew_last(self, objects: ObjectStore) -> str:
        info = objects.stat(self._keys[-1])
        end = self._ends.pop()
        self._keys.pop()
        self._contents.pop()
        if self._size + info.size < end:
            self._lines.forget(self._size)
        self._add(info)
        return info.key

    def _replace(self, listed: list[ObjectInfo], monotonic: float) -> None:
        same, start = 0, 0
        for key, end, content, info in zip(self._keys, self._ends, self._contents, listed, strict=False):
            grown = same + 1 == len(self._keys) and start + info.size >= end
            if key != info.key or (content != hash(info.generation) and not grown):
                break
            same, start = same + 1, end
        if same < len(self._keys):
            self._lines.forget(start)
        self._listed_at = monotonic
        self._keys, self._ends, self._contents = [], array("Q"), array("q")
        for info in listed:
            self._add(info)


def _next(objects: ObjectStore, key: str) -> ObjectInfo | None:
    """The chunk after `key`; None = there is none yet."""
    name = key.rpartition("/")[2].removesuffix(".log")
    if not name.isdigit():
        return None
    try:
        return objects.stat(key[: key.rindex("/") + 1] + f"{int(name) + 1:08d}.log")
    except ObjectMissing:
        return None
