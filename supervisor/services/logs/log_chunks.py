"""The bytes of an attempt's log: its chunks in the object store, one after the other.

Chunks are numbered and only the last one may still grow, so sizes are remembered: a reader who follows the log costs
a look at the last chunk and a question for the next one, not a listing of all that came before. Where the store says
otherwise (an agent that began again), what was counted of the changed part is forgotten.
"""

from __future__ import annotations

import threading
from array import array
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field

from supervisor.ports.objectstore import ObjectInfo, ObjectMissing, ObjectStore, StoreUnavailable
from supervisor.services.logs.log_lines import LineIndex

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
        for key, end, content, found in zip(self._keys, self._ends, self._contents, listed, strict=False):
            grown = same + 1 == len(self._keys) and start + found.size >= end
            if key != found.key or (content != hash(found.generation) and not grown):
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
