"""The log of an attempt: its chunks in the object store, one after the other, read in bounded pieces.

Chunks are numbered and only the last one may still grow, so sizes are remembered: a reader who follows the log costs
a look at the last chunk and a question for the next one, not a listing of all that came before.
"""

from __future__ import annotations

import codecs
import threading
from bisect import bisect_right
from collections import OrderedDict
from dataclasses import dataclass, field

from supervisor.domain import runfiles
from supervisor.domain.attempt import Attempt
from supervisor.domain.errors import NotFound, Unavailable
from supervisor.domain.run import Run
from supervisor.ports.objectstore import ObjectInfo, ObjectMissing, ObjectStore, StoreUnavailable
from supervisor.services.heartbeat import BeatInbox
from supervisor.services.parts import Parts
from supervisor.services.purge import refuse_purged
from supervisor.services.queries import Queries
from supervisor.services.run_view import Json

LIMIT_MAX = 1_048_576  # bytes of one answer
CHUNKS_PER_ANSWER = 512
LOGS_KEPT = 64
RELIST_S = 30.0  # a gap in the numbers is noticed after this time


@dataclass(slots=True)
class _Chunks:
    """`ends[i]`: bytes of the log up to the end of chunk i. Guarded by `lock`: one reader refreshes, others wait."""

    keys: list[str] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    listed_at: float = float("-inf")
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def size(self) -> int:
        return self.ends[-1] if self.ends else 0

    def add(self, info: ObjectInfo) -> None:
        end = self.size + info.size
        self.keys.append(info.key)
        self.ends.append(end)

    def drop_last(self) -> None:
        self.keys.pop()
        self.ends.pop()


class Logs:
    """Reads logs; tells the inbox that somebody does, so that agents write them at the fast pace."""

    def __init__(self, parts: Parts, queries: Queries, inbox: BeatInbox) -> None:
        self._parts, self._queries, self._inbox = parts, queries, inbox
        self._known: OrderedDict[str, _Chunks] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, run_id: str, number: int | None, offset: int, limit: int) -> Json:
        """Text of the log from byte `offset`, at most `limit` bytes; `number` None = the newest attempt. `complete`:
        nothing will follow `next_offset`. Bytes that are not UTF-8 are replaced. Raises NotFound, FilesPurged,
        Unavailable."""
        run = self._queries.find(run_id)
        attempt = self._attempt(run, number)
        if attempt is None:
            answer = {
                "run_id": run.run_id,
                "attempt": None,
                "text": "",
                "offset": offset,
                "next_offset": offset,
            }
            return {**answer, "size": 0, "complete": run.terminal}
        refuse_purged(run, attempt)
        if run.live_attempt is not None:
            self._inbox.follow(run.run_id)
        # Before the read: what is over now cannot grow while we look.
        over = attempt.ended_at is not None and (attempt.gone_at is not None or run.terminal)
        try:
            raw, size = self._bytes(runfiles.logs(run.run_id, attempt.number), offset, min(limit, LIMIT_MAX))
        except (StoreUnavailable, ObjectMissing) as error:
            raise Unavailable(
                f"The log of {run.run_id} cannot be read now. Try again.", {"run_id": run_id}
            ) from error
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        end = offset + len(raw)
        text = decoder.decode(raw, final=over and end >= size)
        next_offset = end - len(decoder.getstate()[0])
        return {
            "run_id": run.run_id,
            "attempt": attempt.number,
            "text": text,
            "offset": offset,
            "next_offset": next_offset,
            "size": size,
            "complete": over and next_offset >= size,
        }

    def _attempt(self, run: Run, number: int | None) -> Attempt | None:
        if number is None or (run.attempt is not None and run.attempt.number == number):
            return run.attempt
        for attempt in self._parts.store.attempts(run.key):
            if attempt.number == number:
                return attempt
        raise NotFound(f"{run.run_id} has no attempt {number}.", {"run_id": run.run_id})

    def _bytes(self, prefix: str, offset: int, limit: int) -> tuple[bytes, int]:
        chunks = self._chunks(prefix)
        with chunks.lock:
            _refresh(chunks, self._parts.objects, prefix, self._parts.clock.monotonic())
            size = chunks.size
            first = bisect_right(chunks.ends, offset)
            wanted = list(zip(chunks.keys, chunks.ends, strict=True))[first : first + CHUNKS_PER_ANSWER]
            start = chunks.ends[first - 1] if first else 0
        found = bytearray()
        for key, end in wanted:
            room = min(limit - len(found), end - max(start, offset))
            if room <= 0:
                break
            piece = b"".join(self._parts.objects.read(key, max(0, offset - start), room))
            found += piece
            if len(piece) < room:
                break  # shorter than it was told to be: the rest is asked for again
            start = end
        return bytes(found), size

    def _chunks(self, prefix: str) -> _Chunks:
        with self._lock:
            chunks = self._known.setdefault(prefix, _Chunks())
            self._known.move_to_end(prefix)
            if len(self._known) > LOGS_KEPT:
                self._known.popitem(last=False)
            return chunks


def _refresh(chunks: _Chunks, objects: ObjectStore, prefix: str, monotonic: float) -> None:
    before = chunks.size
    if chunks.keys:
        last = chunks.keys[-1]
        chunks.drop_last()
        chunks.add(objects.stat(last))
        while (info := _next(objects, last)) is not None:
            chunks.add(info)
            last = info.key
    if chunks.size == before and monotonic - chunks.listed_at >= (RELIST_S if chunks.keys else 0.0):
        listed = [info for page in objects.pages(prefix) for info in page.objects]
        chunks.keys, chunks.ends = [], []
        for info in listed:
            chunks.add(info)
        chunks.listed_at = monotonic


def _next(objects: ObjectStore, key: str) -> ObjectInfo | None:
    """The chunk after `key`, None when there is none yet."""
    name = key.rpartition("/")[2].removesuffix(".log")
    if not name.isdigit():
        return None
    try:
        return objects.stat(key[: key.rindex("/") + 1] + f"{int(name) + 1:08d}.log")
    except ObjectMissing:
        return None
