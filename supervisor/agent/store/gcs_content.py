"""Content of objects of a bucket on its way in both directions, and what Cloud Storage's answers mean on that way.

Reading: in pieces, of one generation from the first byte to the last. Where the answer breaks off it is asked for again
from there, of the generation that the first answer named. Content that was read whole is compared with the md5 that its
bucket keeps; a composite object has none.

Writing a large file: one resumable session, everything in one request. After a break the session is asked how much has
arrived. Bytes are hashed as they are sent; going back means hashing the beginning again, which is rare. A session that
is gone (they live a week) is begun anew.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
from typing import Any, BinaryIO, Dict, Iterator, List, Mapping, Optional, Tuple
from urllib.parse import urlsplit

from supervisor.agent.store.googleapi import Effort, GoogleApi, said
from supervisor.agent.store.site import Answer, Stream, Unreachable
from supervisor.contract.stores import bucket
from supervisor.contract.stores.promise import ObjectInfo, ObjectMissing, StoreUnavailable

_TRANSPORT = {"usedforsecurity": False} if sys.version_info >= (3, 9) else {}
FIELDS = bucket.ITEM_FIELDS + ",md5Hash"
_MD5 = re.compile(r"(?:^|,)\s*md5=([^,\s]+)")
PIECE_BYTES = 1 << 20
_GONE = (404, 410)


def resource(answer: Answer, doing: str) -> Dict[str, Any]:
    """The JSON object of a successful answer. StoreUnavailable for anything else."""
    if answer.status != 200:
        raise refusal(answer, doing)
    try:
        data = json.loads(answer.body)
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        raise StoreUnavailable("%s: the answer cannot be understood" % doing)
    return data


def listed(listing: Mapping[str, Any], doing: str) -> List[Dict[str, Any]]:
    """The resources of a page. StoreUnavailable for what is none."""
    items = listing.get("items") or []
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise StoreUnavailable("%s: the answer cannot be understood" % doing)
    return items


def info(resource: Mapping[str, Any], prefix: str, doing: str) -> ObjectInfo:
    """StoreUnavailable for a resource that lacks something."""
    try:
        return bucket.info_of(resource, str(resource["name"])[len(prefix) :])
    except (KeyError, TypeError, ValueError) as error:
        raise StoreUnavailable("%s: the answer cannot be understood: %s" % (doing, error)) from None


def refusal(answer: Answer, doing: str) -> StoreUnavailable:
    """For an answer that is neither what was asked for nor a clear "not there"."""
    if answer.status in (401, 403):
        return StoreUnavailable("%s: this machine's account may not (%s)" % (doing, said(answer)))
    if answer.status == 404:
        return StoreUnavailable("%s: there is no such bucket (%s)" % (doing, said(answer)))
    return StoreUnavailable("%s: %s" % (doing, said(answer)))


def date_s(answer: Answer, doing: str) -> float:
    """The store's clock when it answered. StoreUnavailable where it does not tell."""
    try:
        return bucket.server_time(answer.headers.get("date"))
    except ValueError:
        raise StoreUnavailable("%s: the answer has no date" % doing) from None


def md5() -> Any:
    """A hash for transport, where FIPS allows no other use too. Pythons before 3.9 do not know the word for that."""
    return getattr(hashlib, "md5")(**_TRANSPORT)  # noqa: B009 - mypy knows no Python without the word


def as_base64(digest: Any) -> str:
    return base64.b64encode(digest.digest()).decode("ascii")


def md5_of(data: bytes) -> str:
    digest = md5()
    digest.update(data)
    return as_base64(digest)


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
        if bucket.is_passing(answer.status):
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
        match = _MD5.search(stream.headers.get("x-goog-hash", ""))
        self._promised = match.group(1) if match else None

    def _counted(self, stream: Stream) -> Iterator[bytes]:
        for brought in stream.pieces():
            piece = brought if self._end is None else brought[: max(0, self._end - self._at)]
            if piece:
                self._at += len(piece)
                self._digest.update(piece)
                yield piece


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
        arrived, is_known = 0, True
        while session:
            last = self._send(session, arrived) if is_known else self._ask(session)
            if last is None:
                is_known = False
            elif last.status == 308:
                before, arrived = arrived, bucket.arrived(last.headers.get("range", ""))
                if arrived > before:
                    self._effort.refreshed()
                elif is_known:
                    self._effort.again("nothing of what was sent has arrived")
                is_known = True
            elif last.status in _GONE:
                self._effort.again(said(last))
                session, answer = self._begin()
                arrived, is_known = 0, True
            else:
                return last
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
        headers = {"Content-Length": str(size - offset), "Content-Range": "bytes %d-%d/%d" % (offset, size - 1, size)}
        return self._put(session, headers, self._source.pieces(offset))

    def _ask(self, session: str) -> Optional[Answer]:
        headers = {"Content-Length": "0", "Content-Range": "bytes */%d" % self._source.size}
        return self._put(session, headers, None)

    def _put(self, session: str, headers: Mapping[str, str], body: Optional[Iterator[bytes]]) -> Optional[Answer]:
        """None: no clear answer, so what has arrived is to be asked."""
        try:
            answer = self._api.once("PUT", session, body, headers)
        except Unreachable as error:
            self._effort.again(str(error))
            return None
        if bucket.is_passing(answer.status) or answer.status == 401:
            self._effort.again(said(answer), doubtful=bucket.may_have_acted(answer.status))
            return None
        return answer
