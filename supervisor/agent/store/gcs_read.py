"""The content of one object of a bucket, in pieces, of one generation from the first byte to the last.

Where the answer breaks off it is asked for again from there, of the generation that the first answer named. Content
that was read whole is compared with the md5 that its bucket keeps; a composite object has none.
"""

from __future__ import annotations

import re
from typing import Dict, Iterator, Optional

from supervisor.agent.store.gcs_answers import as_base64, md5, refusal
from supervisor.agent.store.googleapi import Effort, GoogleApi, is_busy, said
from supervisor.agent.store.site import Answer, Stream, Unreachable
from supervisor.contract.stores.errors import ObjectMissing, StoreUnavailable

_MD5 = re.compile(r"(?:^|,)\s*md5=([^,\s]+)")


def read_object(
    api: GoogleApi, path: str, doing: str, offset: int = 0, length: Optional[int] = None
) -> Iterator[bytes]:
    """`path`: of the content, with its query. Raises StoreUnavailable, and ObjectMissing with the Answer."""
    reading = _Reading(api, path, doing, offset, length)
    effort = api.effort()
    while not reading.over:
        try:
            for piece in reading.pieces(effort):
                effort.refreshed()
                yield piece
        except Unreachable as error:
            try:
                effort.again(str(error))
            except Unreachable:
                raise StoreUnavailable("%s: %s" % (doing, error)) from None
    reading.check()


class _Reading:
    def __init__(self, api: GoogleApi, path: str, doing: str, offset: int, length: Optional[int]) -> None:
        self._api, self._path, self._doing = api, path, doing
        self._at = offset
        self._end = None if length is None else offset + length
        self._whole = offset == 0 and length is None
        self._digest = md5()
        self._promised: Optional[str] = None  # the md5 that the bucket keeps
        self._pinned = ""  # the generation that the first answer was of, as a query
        self.over = False

    def pieces(self, effort: Effort) -> Iterator[bytes]:
        """What is left, or as much of it as one answer brings. Unreachable where it breaks off."""
        with self._api.open("GET", self._path + self._pinned, None, self._range()) as stream:
            if stream.status == (206 if self._range() else 200):
                self._begin(stream)
                yield from self._counted(stream)
                self.over = True
                return
            answer = Answer(stream.status, stream.headers, b"".join(stream.pieces()))
        if is_busy(answer.status):
            effort.again(said(answer))
        elif answer.status == 416:
            self.over = True  # nothing lies behind the end
        elif answer.status == 404 and not self._pinned:
            raise ObjectMissing(answer)
        elif answer.status == 404:
            raise StoreUnavailable("%s: it was replaced while it was read" % self._doing)
        else:
            raise refusal(answer, self._doing)

    def check(self) -> None:
        """StoreUnavailable when what came is not what was stored."""
        if self._whole and self._promised not in (None, as_base64(self._digest)):
            raise StoreUnavailable("%s: its content differs from its checksum" % self._doing)

    def _range(self) -> Dict[str, str]:
        if self._at == 0 and self._end is None:
            return {}
        if self._end is None:
            return {"Range": "bytes=%d-" % self._at}
        return {"Range": "bytes=%d-%d" % (self._at, max(self._at, self._end - 1))}

    def _begin(self, stream: Stream) -> None:
        generation = stream.headers.get("x-goog-generation")
        if generation and not self._pinned and "generation=" not in self._path:
            self._pinned = "&generation=" + generation
        found = _MD5.search(stream.headers.get("x-goog-hash", ""))
        self._promised = found.group(1) if found else None

    def _counted(self, stream: Stream) -> Iterator[bytes]:
        for brought in stream.pieces():
            piece = brought if self._end is None else brought[: max(0, self._end - self._at)]
            if piece:
                self._at += len(piece)
                self._digest.update(piece)
                yield piece
