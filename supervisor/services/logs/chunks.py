"""The bytes of an attempt's log: its chunks in the object store, one after the other.

Chunks are numbered and only the last one may still grow, so sizes are remembered: a reader who follows the log costs
a look at the last chunk and a question for the next one, not a listing of all that came before. Where the store says
otherwise (an agent that began again), what was counted of the changed part is forgotten.

Where the lines of a log begin: line breaks before every 256 KiB, counted once, as its bytes go by.

A line of ten million is found by a look into the marks and one read of at most SPACING bytes. The marks of a log of
10 GB take 320 kB. Only bytes that cannot change any more are counted: a log grows at its end alone.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from supervisor.ports.objectstore import ObjectInfo, ObjectMissing, ObjectStore, StoreUnavailable

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


RELIST_S = 30.0  # a gap in the numbers is noticed after this time


@dataclass(frozen=True, slots=True)
class LogBytes:
    """A log as it was when it was looked at. `ends[i]`: bytes of it up to the end of chunk i. `lines` knows the log
    beyond this moment; `epoch`: which of its beginnings this is."""

    objects: ObjectStore
    keys: tuple[str, ...]
    ends: tuple[int, ...]
    lines: LineIndex
    epoch: int

    @property
    def size(self) -> int:
        return self.ends[-1] if self.ends else 0

    def stream(self, begin: int, end: int, chunks_at_most: int | None = None) -> Iterator[bytes]:
        """Bytes [begin, end) in pieces of at most a megabyte. Ends early where a chunk gave less than it was told to
        have: whoever needs all compares. What is read in order is counted on the way. Raises StoreUnavailable,
        ObjectMissing."""
        first = bisect_right(self.ends, begin)
        last = len(self.keys) if chunks_at_most is None else first + chunks_at_most
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

    def read(self, begin: int, end: int, chunks_at_most: int | None = None) -> bytes:
        return b"".join(self.stream(begin, end, chunks_at_most))


@dataclass(slots=True)
class Chunks:
    """What is remembered of one log: about a hundred bytes for each chunk. Guarded by `lock`: one reader refreshes,
    and who came before it began gets what it found; with a slow store the last of many readers waits for two looks."""

    _keys: list[str] = field(default_factory=list)
    _ends: array[int] = field(default_factory=lambda: array("Q"))
    _contents: array[int] = field(default_factory=lambda: array("q"))  # hashes of their generations
    _listed_at: float = float("-inf")
    _lines: LineIndex = field(default_factory=LineIndex)
    _looks: int = 0  # that have begun
    _looked: int = 0  # the newest that has ended with an answer: what was found, or that the store is away
    _away: StoreUnavailable | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __len__(self) -> int:
        return len(self._keys)

    def look(self, objects: ObjectStore, prefix: str, monotonic: float) -> LogBytes:
        """StoreUnavailable, ObjectMissing (what was known is forgotten then)."""
        came = self._looks
        with self._lock:
            if self._looked <= came:
                self._look(objects, prefix, monotonic)
            if self._away is not None:
                raise StoreUnavailable(str(self._away)) from self._away
            return LogBytes(objects, tuple(self._keys), tuple(self._ends), self._lines, self._lines.epoch)

    def _look(self, objects: ObjectStore, prefix: str, monotonic: float) -> None:
        self._looks += 1
        self._away = None
        try:
            self._refresh(objects, prefix, monotonic)
        except ObjectMissing:
            self._replace([], float("-inf"))
            raise
        except StoreUnavailable as error:
            self._away = error
        self._looked = self._looks

    def _refresh(self, objects: ObjectStore, prefix: str, monotonic: float) -> None:
        before = self._size
        if self._keys:
            last = self._renew_last(objects)
            while (info := _next(objects, last)) is not None:
                self._renew_last(objects)  # it may have grown between its look and the next one's birth
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
    """The chunk after `key`, None when there is none yet."""
    name = key.rpartition("/")[2].removesuffix(".log")
    if not name.isdigit():
        return None
    try:
        return objects.stat(key[: key.rindex("/") + 1] + f"{int(name) + 1:08d}.log")
    except ObjectMissing:
        return None
