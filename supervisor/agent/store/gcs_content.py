"""Transfers of object content in both directions, and the meaning of Cloud Storage's responses on the way.

Reading: in pieces, of one generation from the first byte to the last. If the response breaks off, the read continues
from there, in the generation of the first response. Content that was read completely is compared with the md5 that its
bucket keeps; a composite object has none.

Writing a large file: one resumable session, everything in one request. After a break the client queries how much has
arrived. Bytes are hashed as they are sent; going back means hashing the beginning again, which is rare. A session that
has expired (after a week) is started again.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
from typing import Any, BinaryIO, Dict, Iterator, List, Mapping, Optional, Tuple
from urllib.parse import urlsplit

from supervisor.agent.store.googleapi import GoogleApi, Retries, error_text
from supervisor.agent.store.httpclient import Request, Response, ResponseStream, Unreachable
from supervisor.contract.stores import bucket
from supervisor.contract.stores.promise import ObjectInfo, ObjectMissing, StoreUnavailable

FIELDS = bucket.ITEM_FIELDS + ",md5Hash"
PIECE_BYTES = 1 << 20
_TRANSPORT = {"usedforsecurity": False} if sys.version_info >= (3, 9) else {}
_MD5 = re.compile(r"(?:^|,)\s*md5=([^,\s]+)")
_SESSION_GONE = (404, 410)


def read_object(
    api: GoogleApi, path: str, doing: str, offset: int = 0, length: Optional[int] = None
) -> Iterator[bytes]:
    """`path`: of the content, with its query. Raises StoreUnavailable, and ObjectMissing with the Response."""
    reading = _Reading(api, path, doing, offset, length)
    retries = api.retries()
    while not reading.over:
        try:
            for piece in reading.pieces(retries):
                retries.reset()
                yield piece
        except Unreachable as error:
            try:
                retries.wait(str(error))
            except Unreachable:
                raise StoreUnavailable("%s: %s" % (doing, error)) from None
    reading.check()


class _Reading:
    def __init__(self, api: GoogleApi, path: str, doing: str, offset: int, length: Optional[int]) -> None:
        self._api, self._path, self._doing = api, path, doing
        self._at = offset
        self._end = None if length is None else offset + length
        self._is_whole = offset == 0 and length is None
        self._digest = new_md5()
        self._promised: Optional[str] = None  # the md5 that the bucket keeps
        self._pinned = ""  # the generation of the first response, as a query
        self.over = False

    def pieces(self, retries: Retries) -> Iterator[bytes]:
        """The rest, or as much of it as one response brings. Unreachable where it breaks off."""
        with self._api.open(Request("GET", self._path + self._pinned, None, self._range())) as stream:
            if stream.status == (206 if self._range() else 200):
                self._begin(stream)
                yield from self._counted(stream)
                self.over = True
                return
            response = stream.response()
        if bucket.is_passing(response.status):
            retries.wait(error_text(response))
        elif response.status == 416:
            self.over = True  # there is nothing behind the end
        elif response.status == 404 and not self._pinned:
            raise ObjectMissing(response)
        elif response.status == 404:
            raise StoreUnavailable("%s: it was replaced while it was read" % self._doing)
        else:
            raise refusal(response, self._doing)

    def check(self) -> None:
        """StoreUnavailable when the content differs from its checksum."""
        if self._is_whole and self._promised not in (None, as_base64(self._digest)):
            raise StoreUnavailable("%s: its content differs from its checksum" % self._doing)

    def _range(self) -> Dict[str, str]:
        if self._at == 0 and self._end is None:
            return {}
        last = "" if self._end is None else str(max(self._at, self._end - 1))
        return {"Range": "bytes=%d-%s" % (self._at, last)}

    def _begin(self, stream: ResponseStream) -> None:
        generation = stream.headers.get("x-goog-generation")
        if generation and not self._pinned and "generation=" not in self._path:
            self._pinned = "&generation=" + generation
        match = _MD5.search(stream.headers.get("x-goog-hash", ""))
        self._promised = match.group(1) if match else None

    def _counted(self, stream: ResponseStream) -> Iterator[bytes]:
        for received in stream.pieces():
            piece = received if self._end is None else received[: max(0, self._end - self._at)]
            if piece:
                self._at += len(piece)
                self._digest.update(piece)
                yield piece


class Source:
    """The file's content from any offset, hashed as it is read."""

    def __init__(self, file: BinaryIO, size: int) -> None:
        self._file = file
        self.size = size
        self._digest = new_md5()
        self._hashed = 0

    def pieces(self, offset: int) -> Iterator[bytes]:
        """StoreUnavailable when the file has become shorter."""
        if self._hashed != offset:
            self._digest, self._hashed = new_md5(), 0
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
    """The upload of one file. `start`: the address that starts a session, with its query; `about`: the object's
    resource."""

    def __init__(self, api: GoogleApi, start: str, about: bytes, source: Source) -> None:
        self._api = api
        self._start, self._about = start, about
        self._source = source
        self._retries = api.retries()

    @property
    def doubtful(self) -> bool:
        """The response may describe an object that this very upload has made."""
        return self._retries.doubtful

    def run(self) -> Response:
        """The last response: 200 with the object's resource, or a refusal. Unreachable, StoreUnavailable."""
        session, response = self._begin()
        arrived, is_known = 0, True
        while session:
            last = self._send(session, arrived) if is_known else self._query(session)
            if last is None:
                is_known = False
            elif last.status == 308:
                before, arrived = arrived, bucket.arrived(last.headers.get("range", ""))
                if arrived > before:
                    self._retries.reset()
                elif is_known:
                    self._retries.wait("nothing of what was sent has arrived")
                is_known = True
            elif last.status in _SESSION_GONE:
                self._retries.wait(error_text(last))
                session, response = self._begin()
                arrived, is_known = 0, True
            else:
                return last
        return response

    def _begin(self) -> Tuple[str, Response]:
        """(path of the session, response); the path is "" for a refusal."""
        headers = {
            "Content-Type": "application/json; charset=UTF-8",
            "X-Upload-Content-Type": "application/octet-stream",
            "X-Upload-Content-Length": str(self._source.size),
        }
        response = self._api.call(Request("POST", self._start, self._about, headers), self._retries)
        parts = urlsplit(response.headers.get("location", ""))
        if response.status != 200:
            return "", response
        if not parts.query:
            raise StoreUnavailable("the upload session has no address")
        return "%s?%s" % (parts.path, parts.query), response

    def _send(self, session: str, offset: int) -> Optional[Response]:
        size = self._source.size
        headers = {"Content-Length": str(size - offset), "Content-Range": "bytes %d-%d/%d" % (offset, size - 1, size)}
        return self._put(session, headers, self._source.pieces(offset))

    def _query(self, session: str) -> Optional[Response]:
        return self._put(session, {"Content-Length": "0", "Content-Range": "bytes */%d" % self._source.size}, None)

    def _put(self, session: str, headers: Mapping[str, str], body: Optional[Iterator[bytes]]) -> Optional[Response]:
        """None: no clear response, so the next request must query how much has arrived."""
        try:
            response = self._api.once(Request("PUT", session, body, headers))
        except Unreachable as error:
            self._retries.wait(str(error))
            return None
        if bucket.is_passing(response.status) or response.status == 401:
            self._retries.wait(error_text(response), doubtful=bucket.may_have_acted(response.status))
            return None
        return response


def resource_of(response: Response, doing: str) -> Dict[str, Any]:
    """The JSON object of a successful response. StoreUnavailable for anything else."""
    if response.status != 200:
        raise refusal(response, doing)
    try:
        data = json.loads(response.body)
    except (ValueError, RecursionError):
        data = None
    if not isinstance(data, dict):
        raise StoreUnavailable("%s: the response cannot be parsed" % doing)
    return data


def items_of(listing: Mapping[str, Any], doing: str) -> List[Dict[str, Any]]:
    """The resources of a page. StoreUnavailable for anything else."""
    items = listing.get("items") or []
    if not isinstance(items, list) or not all(isinstance(item, dict) for item in items):
        raise StoreUnavailable("%s: the response cannot be parsed" % doing)
    return items


def info_of(resource: Mapping[str, Any], prefix: str, doing: str) -> ObjectInfo:
    """StoreUnavailable for an incomplete resource."""
    try:
        return bucket.info_of(resource, str(resource["name"])[len(prefix) :])
    except (KeyError, TypeError, ValueError) as error:
        raise StoreUnavailable("%s: the response cannot be parsed: %s" % (doing, error)) from None


def refusal(response: Response, doing: str) -> StoreUnavailable:
    """The error for a response that is neither a success nor a clear "not there"."""
    reasons = {404: "there is no such bucket (%s)", **dict.fromkeys((401, 403), "this machine's account may not (%s)")}
    return StoreUnavailable("%s: %s" % (doing, reasons.get(response.status, "%s") % error_text(response)))


def server_time_s(response: Response, doing: str) -> float:
    """The store's clock at the response. StoreUnavailable without a date."""
    try:
        return bucket.server_time(response.headers.get("date"))
    except ValueError:
        raise StoreUnavailable("%s: the response has no date" % doing) from None


def new_md5() -> Any:
    """A checksum for transport, marked as such, because FIPS allows no other use. Pythons before 3.9 lack the
    option."""
    return getattr(hashlib, "md5")(**_TRANSPORT)  # noqa: B009 - mypy does not know the option


def as_base64(digest: Any) -> str:
    return base64.b64encode(digest.digest()).decode("ascii")


def md5_of(data: bytes) -> str:
    digest = new_md5()
    digest.update(data)
    return as_base64(digest)
