"""Uploads in pieces, listings and downloads, as requests of our own on the session of Google's client.

After a broken connection the client's upload sends a piece again without checking what arrived, and when checksums
differ it deletes the object by name, even if another writer made it. Here the store gets the checksum before the first
byte: it refuses other content itself, and no object appears from it.

The client's listing makes an object with hundreds of fields from every item and hides the Date of the response, which
is the only clock that `updated` can be compared with. Its downloads end when a connection breaks. A download here keeps
its first generation, continues after a break, and is compared with the store's CRC32C when it is complete.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, BinaryIO

from supervisor.contract.stores import bucket
from supervisor.objectstores.gcs.retry import BadStatus, RequestFailed, RetryPolicy, Timeout, checked, failure_of
from supervisor.ports.objectstore import ObjectInfo, Page, StoreUnavailable

# A multiple of 256 KiB that a slow connection (0.4 MB/s) can send within CONNECT_S, which limits a whole write.
PIECE_BYTES = 4 << 20
STUCK = 5  # pieces in a row of which nothing arrived
FIELDS = f"items({bucket.ITEM_FIELDS}),nextPageToken"
CHUNK_BYTES = 1 << 20
BREAKS = 5  # of one download in a row, without a byte between them
# Names that no other method accepts as a key, such as the "folders" that Google's console makes.
_NO_KEY = re.compile(r"//|/$|^/|(?:^|/)\.\.?(?:/|$)|[\r\n\x00]")

Get = Callable[..., Any]  # requests.Session.get


def crc32c(stream: BinaryIO) -> tuple[str, int]:
    """(checksum in the form of Cloud Storage, length) of the rest of the stream."""
    import google_crc32c

    crc, size = google_crc32c.Checksum(), 0
    while block := stream.read(1 << 20):
        crc.update(block)
        size += len(block)
    return base64.b64encode(crc.digest()).decode(), size


@dataclass
class ResumableUpload:
    """`resource`: of the new object, with name and crc32c. `generation`: the condition."""

    policy: RetryPolicy
    session: Any  # requests.Session
    url: str  # .../upload/storage/v1/b/BUCKET/o
    resource: Mapping[str, Any]
    generation: int | None

    def send(self, stream: BinaryIO, size: int) -> Mapping[str, Any]:
        """The object's resource. RequestFailed; the patience starts again with every piece that arrived."""
        try:
            address = self.policy.call(self._begin)
        except RequestFailed as failed:  # nothing was sent yet, so nothing can have been written
            raise RequestFailed(failed.status, failed.text, doubtful=False) from failed
        at, unsure = 0, False  # unsure: the store must say first how much has arrived

        def step(timeout: Timeout) -> Any:
            nonlocal unsure
            piece = b""
            if not unsure:
                stream.seek(at)
                piece = stream.read(PIECE_BYTES)
            span = f"{at}-{at + len(piece) - 1}" if piece else "*"
            unsure = True
            headers = {"Content-Range": f"bytes {span}/{size}"}
            response = checked(self.session.put(address, data=piece, headers=headers, timeout=timeout))
            unsure = False
            return response

        stuck = 0
        while stuck < STUCK:
            try:
                response = self.policy.call(step)
            except RequestFailed as failed:
                if failed.status not in {404, 410}:
                    raise
                raise RequestFailed(None, "the upload's session has ended", failed.doubtful) from failed
            if response.status_code != 308:
                resource: Mapping[str, Any] = json.loads(response.content)
                return resource
            before, at = at, bucket.arrived(response.headers.get("Range", ""))
            stuck = 0 if at > before else stuck + 1
        text = f"the store accepts only {at} of {size} bytes; has the file changed?"
        raise RequestFailed(None, text, doubtful=False)

    def begin(self, size: int) -> str:
        """The address of a new session, for somebody else who sends `size` bytes there. RequestFailed."""
        return self.policy.call(partial(self._begin, headers={"X-Upload-Content-Length": str(size)}))

    def _begin(self, timeout: Timeout, headers: Mapping[str, str] | None = None) -> str:
        query = {"uploadType": "resumable", "name": self.resource["name"]}
        if self.generation is not None:
            query["ifGenerationMatch"] = str(self.generation)
        more: dict[str, Any] = {"json": self.resource, "headers": headers, "timeout": timeout}
        response = checked(self.session.post(self.url, params=query, **more))
        try:
            return str(response.headers["Location"])
        except KeyError:
            raise BadStatus(502, "an upload started without an address") from None


def pages(policy: RetryPolicy, get: Get, url: str, prefix: str, *, cut: int, page_size: int) -> Iterator[Page]:
    """The objects whose names begin with `prefix`; `cut`: characters to remove from each name. RequestFailed."""
    query = {"prefix": prefix, "maxResults": str(page_size), "fields": FIELDS}
    newest = 0.0
    while True:
        objects, token, date = policy.call(partial(_page, get, url, dict(query), cut))
        # The header has whole seconds, `updated` has milliseconds: no object is newer than its listing.
        newest = max([newest, date, *(info.updated for info in objects)])
        yield Page(objects, newest)
        if token is None:
            return
        query["pageToken"] = token


def _page(
    get: Get, url: str, query: Mapping[str, str], cut: int, timeout: Timeout
) -> tuple[tuple[ObjectInfo, ...], str | None, float]:
    """(objects, token of the next page or None, the store's time)."""
    response = checked(get(url, params=query, timeout=timeout))
    try:
        body = json.loads(response.content)
        items = [item for item in body.get("items", ()) if not _NO_KEY.search(item["name"])]
        date = bucket.server_time(response.headers.get("Date"))
        return (tuple(bucket.info_of(item, item["name"][cut:]) for item in items), body.get("nextPageToken"), date)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise BadStatus(502, f"the listing cannot be read: {error!r}") from error


def info_of_blob(blob: Any, key: str) -> ObjectInfo:
    """Of an object as Google's client has read it."""
    metadata = dict(blob.metadata or {})
    return ObjectInfo(key, blob.size, str(blob.generation), blob.updated.timestamp(), metadata)


class Download:
    """Bytes [begin, end) of one object; `generation` None until the first response contains it.

    RequestFailed; StoreUnavailable when the bytes differ from the stored ones, or the connection breaks repeatedly.
    """

    def __init__(self, policy: RetryPolicy, get: Get, url: str, generation: str | None) -> None:
        self._policy, self._get, self._url, self.generation = policy, get, url, generation

    def read(self, begin: int, end: int | None) -> Iterator[bytes]:
        import google_crc32c

        at, breaks = begin, 0
        whole = begin == 0 and end is None
        crc = google_crc32c.Checksum()
        while True:
            started_at = at
            response = self._policy.call(partial(self._open, at, end))
            try:
                with closing(response):
                    for piece in response.raw.stream(CHUNK_BYTES, decode_content=False):
                        at += len(piece)
                        if whole:
                            crc.update(piece)
                        yield piece
            except Exception as error:
                if failure_of(error) is None:
                    raise
                breaks = breaks + 1 if at == started_at else 1
                if breaks > BREAKS:
                    raise StoreUnavailable(f"{self._url}: the connection broke {breaks} times") from error
                continue
            if whole and _crc32c(response) not in {None, base64.b64encode(crc.digest()).decode()}:
                raise StoreUnavailable(f"{self._url}: the read bytes differ from the stored ones (CRC32C)")
            return

    def _open(self, at: int, end: int | None, timeout: Timeout) -> Any:
        # Stored bytes unchanged: without this header Cloud Storage unpacks objects that were stored as gzip.
        headers = {"Accept-Encoding": "gzip"}
        if at or end is not None:
            headers["Range"] = f"bytes={at}-" if end is None else f"bytes={at}-{end - 1}"
        query = {"alt": "media"} | ({"generation": self.generation} if self.generation else {})
        response = self._get(self._url, params=query, headers=headers, timeout=timeout, stream=True)
        try:
            checked(response)
            if "Range" in headers and response.status_code != 206:
                raise BadStatus(502, "the response has the whole object instead of the requested part")
            generation = response.headers.get("X-Goog-Generation")
            if generation is None and self.generation is None:
                raise BadStatus(502, "the response does not contain the generation of the object")
            self.generation = generation or self.generation
        except BaseException:
            response.close()
            raise
        return response


def _crc32c(response: Any) -> str | None:
    """The checksum of the whole object; None where the response has none."""
    match = re.search(r"crc32c=([\w+/=]+)", response.headers.get("X-Goog-Hash", ""))
    return match[1] if match else None
