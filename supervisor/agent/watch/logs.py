"""The command's output on its way to the store: chunks of at most 1 MB that sort by name.

A chunk that is still small is written again, longer, under the same name, so that following a quiet log makes no crowd
of tiny objects; it is sealed at SEAL_BYTES. Readers may rely on it: a chunk only ever grows, and chunks before the last
one never change. What is not in the store yet waits on disk, not in memory.
"""

from __future__ import annotations

import os
from typing import List

from supervisor.agent.machine.masking import NOTHING, Masker, MaskStream
from supervisor.agent.machine.plainfile import open_plain
from supervisor.agent.store.reach import Store
from supervisor.contract import runfiles

LINE_BYTES = 65536  # of one line that are kept
CHUNK_BYTES = 1 << 20
SEAL_BYTES = 1 << 16
_READ_BYTES = 1 << 20
FOLLOW_S = 2.0


class LineCutter:
    """Cuts lines to LINE_BYTES as they stream by, leaving a mark with what was left out."""

    def __init__(self) -> None:
        self._length = 0  # of the line that is under way
        self._cut = 0

    def feed(self, data: bytes) -> bytes:
        out: List[bytes] = []
        *complete, rest = data.split(b"\n")
        for line in complete:
            out.extend((self._part(line), self._mark(), b"\n"))
            self._length = 0
        out.append(self._part(rest))
        return b"".join(out)

    def end(self) -> bytes:
        """The mark of a last line without an end."""
        return self._mark()

    def _part(self, data: bytes) -> bytes:
        kept = data[: max(0, LINE_BYTES - self._length)]
        self._length += len(kept)
        self._cut += len(data) - len(kept)
        return kept

    def _mark(self) -> bytes:
        mark = b" [... %d bytes of this line were cut]" % self._cut if self._cut else b""
        self._cut = 0
        return mark


class LogShipper:
    """Used by one thread. Ships `path` as the log of one attempt, masked before a line is cut."""

    def __init__(self, store: Store, run_id: str, attempt: int, path: str, masker: Masker = NOTHING) -> None:
        self._store = store
        self._run_id = run_id
        self._attempt = attempt
        self._path = path
        self._stream = MaskStream(masker)
        self._cutter = LineCutter()
        self._offset = 0  # read from the file so far
        self._chunk = b""  # content of the last chunk, with what waits to be written
        self._sequence = 0
        self._written = 0  # bytes of `_chunk` that are in the store

    def ship(self, last: bool = False) -> None:
        """Write what is new now; what is written meanwhile is for the next call, so that a flood ends no call too late.
        StoreUnavailable: it is shipped by the next call. OSError: this disk.

        A file that the training removed, or replaced by something else, holds nothing new.
        """
        source = open_plain(self._path)
        if source is None:
            self._write()
            return
        with source:
            end = os.fstat(source.fileno()).st_size
            if end < self._offset:
                self._offset = 0  # it was emptied: what it holds now is new
            while True:
                if len(self._chunk) < CHUNK_BYTES:
                    source.seek(self._offset)
                    data = source.read(min(_READ_BYTES, end - self._offset))
                    self._offset += len(data)
                    plain = self._stream.feed(data) if data else self._stream.rest()
                    self._chunk += self._cutter.feed(plain)
                    more = bool(data) and self._offset < end
                else:
                    more = True
                if last and not more:
                    self._chunk += self._cutter.feed(self._stream.end()) + self._cutter.end()
                self._write()
                if not more:
                    return

    def _write(self) -> None:
        while len(self._chunk) > self._written:
            piece = self._chunk[:CHUNK_BYTES]
            self._store.put(runfiles.log_chunk(self._run_id, self._attempt, self._sequence), piece)
            self._written = len(piece)
            if len(piece) >= SEAL_BYTES:
                self._sequence += 1
                self._chunk = self._chunk[len(piece) :]
                self._written = 0
