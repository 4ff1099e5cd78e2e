"""A large file into Cloud Storage: one resumable session, everything in one request, and on from where it broke.

After a break the session is asked how much has arrived. Bytes are hashed as they are sent; going back means hashing
the beginning again, which is rare. A session that is gone (they live a week) is begun anew.
"""

from __future__ import annotations

import re
from typing import Any, BinaryIO, Iterator, Mapping, Optional, Tuple
from urllib.parse import urlsplit

from supervisor.agent.store.gcs_answers import as_base64, md5
from supervisor.agent.store.googleapi import Effort, GoogleApi, is_busy, said
from supervisor.agent.store.site import Answer, Unreachable
from supervisor.contract.stores.errors import StoreUnavailable

PIECE_BYTES = 1 << 20
_ARRIVED = re.compile(r"bytes=0-(\d+)")
_GONE = (404, 410)


class Source:
    """The file's content from any offset, hashed on the way."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self.size = size
        self._digest: Any = md5()
        self._hashed = 0

    def pieces(self, offset: int) -> Iterator[bytes]:
        """StoreUnavailable when the file has become shorter than it was."""
        if self._hashed != offset:
            self._digest, self._hashed = md5(), 0
            for _ in self._read(offset):
                pass
        yield from self._read(self.size)

    @property
    def md5(self) -> str:
        return as_base64(self._digest)

    def _read(self, end: int) -> Iterator[bytes]:
        self._file.seek(self._hashed)
        while self._hashed < end:
            piece = self._file.read(min(PIECE_BYTES, end - self._hashed))
            if not piece:
                raise StoreUnavailable("the file became shorter while it was sent")
            self._digest.update(piece)
            self._hashed += len(piece)
            yield piece


class Upload:
    """One file on its way. `start`: where a session is begun, with its query; `about`: the object's resource."""

    def __init__(self, api: GoogleApi, start: str, about: bytes, source: Source) -> None:
        self._api = api
        self._start, self._about = start, about
        self._source = source
        self._effort: Effort = api.effort()

    @property
    def doubtful(self) -> bool:
        """The answer may tell of an object that this very upload has made."""
        return self._effort.doubtful

    def run(self) -> Answer:
        """The last answer: 200 with the object's resource, or a refusal. Unreachable, StoreUnavailable."""
        session, answer = self._begin()
        arrived, known = 0, True
        while session:
            found = self._send(session, arrived) if known else self._ask(session)
            if found is None:
                known = False
            elif found.status == 308:
                before, arrived = arrived, _arrived(found)
                if arrived > before:
                    self._effort.refreshed()
                elif known:
                    self._effort.again("nothing of what was sent has arrived")
                known = True
            elif found.status in _GONE:
                self._effort.again(said(found))
                session, answer = self._begin()
                arrived, known = 0, True
            else:
                return found
        return answer

    def _begin(self) -> Tuple[str, Answer]:
        """Path of the session, "" for an answer that is a refusal."""
        headers = {
            "Content-Type": "application/json; charset=UTF-8",
            "X-Upload-Content-Type": "application/octet-stream",
            "X-Upload-Content-Length": str(self._source.size),
        }
        answer = self._api.call("POST", self._start, self._about, headers, self._effort)
        parts = urlsplit(answer.headers.get("location", ""))
        if answer.status != 200:
            return "", answer
        if not parts.query:
            raise StoreUnavailable("an upload was begun and has no address")
        return "%s?%s" % (parts.path, parts.query), answer

    def _send(self, session: str, offset: int) -> Optional[Answer]:
        size = self._source.size
        headers = {
            "Content-Length": str(size - offset),
            "Content-Range": "bytes %d-%d/%d" % (offset, size - 1, size),
        }
        return self._put(session, headers, self._source.pieces(offset))

    def _ask(self, session: str) -> Optional[Answer]:
        headers = {"Content-Length": "0", "Content-Range": "bytes */%d" % self._source.size}
        return self._put(session, headers, None)

    def _put(
        self, session: str, headers: Mapping[str, str], body: Optional[Iterator[bytes]]
    ) -> Optional[Answer]:
        """None: no clear answer, so what has arrived is to be asked."""
        try:
            answer = self._api.once("PUT", session, body, headers)
        except Unreachable as error:
            self._effort.again(str(error))
            return None
        if is_busy(answer.status) or answer.status == 401:
            self._effort.again(said(answer), doubtful=answer.status != 429)
            return None
        return answer


def _arrived(answer: Answer) -> int:
    """By the Range of a 308; none at all means that nothing has."""
    found = _ARRIVED.fullmatch(answer.headers.get("range", ""))
    return int(found.group(1)) + 1 if found else 0
