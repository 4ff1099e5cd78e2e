"""Uploads in pieces, listings and downloads, in requests of our own on the client's session.

The client's upload sends a piece again after a break without asking what has arrived, and when checksums differ it
deletes the object by name, whoever wrote it meanwhile. Here the checksum is told before the first byte, so the store
itself refuses content that is not what was announced, and no object ever appears from it.

The client's listing makes an object of hundreds of fields of every item and hides the answer's Date, which is the only
clock that `updated` may be compared with; its downloads end where a connection breaks. A download here stays with the
generation that it began with, goes on after a break, and is compared with the store's CRC32C when all of it was read.
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
from supervisor.objectstores.gcs.session import Answered, Patience, Refused, Timeout, checked, understood
from supervisor.ports.objectstore import ObjectInfo, Page, StoreUnavailable

# A multiple of 256 KiB, and what a slow line (0.4 MB/s) can send within CONNECT_S, which limits a write as a whole.
PIECE_BYTES = 4 << 20
STUCK = 5  # pieces in a row of which nothing arrived


def crc32c(stream: BinaryIO) -> tuple[str, int]:
    """Checksum as Cloud Storage writes it, and length, of all that the stream still holds."""
    import google_crc32c

    crc, size = google_crc32c.Checksum(), 0
    while block := stream.read(1 << 20):
        crc.update(block)
        size += len(block)
    return base64.b64encode(crc.digest()).decode(), size


@dataclass
class ResumableUpload:
    """`about`: the resource that the object is to have, name and crc32c among it."""

    patience: Patience
    session: Any  # requests.Session
    url: str  # .../upload/storage/v1/b/BUCKET/o
    about: Mapping[str, Any]
    generation: int | None  # the condition

    def send(self, stream: BinaryIO, size: int) -> Mapping[str, Any]:
        """The object's resource. Refused as asking ends; patience begins anew with every piece that arrived."""
        try:
            place = self.patience.ask(self._begin)
        except Refused as refused:  # nothing was sent yet, so nothing can have been written
            raise Refused(refused.status, refused.text, doubtful=False) from refused
        at, unsure = 0, False  # unsure: how much has arrived must be asked first

        def step(timeout: Timeout) -> Any:
            nonlocal unsure
            piece = b""
            if not unsure:
                stream.seek(at)
                piece = stream.read(PIECE_BYTES)
            span = f"{at}-{at + len(piece) - 1}" if piece else "*"
            unsure = True
            headers = {"Content-Range": f"bytes {span}/{size}"}
            response = checked(self.session.put(place, data=piece, headers=headers, timeout=timeout))
            unsure = False
            return response

        stuck = 0
        while stuck < STUCK:
            try:
                response = self.patience.ask(step)
            except Refused as refused:
                if refused.status not in {404, 410}:
                    raise
                raise Refused(None, "the upload's session has ended", refused.doubtful) from refused
            if response.status_code != 308:
                resource: Mapping[str, Any] = json.loads(response.content)
                return resource
            before, at = at, bucket.arrived(response.headers.get("Range", ""))
            stuck = 0 if at > before else stuck + 1
        raise Refused(None, f"of {size} bytes the store takes only {at}; has the file changed?", doubtful=False)

    def _begin(self, timeout: Timeout) -> str:
        query = {"uploadType": "resumable", "name": self.about["name"]}
        if self.generation is not None:
            query["ifGenerationMatch"] = str(self.generation)
        response = checked(self.session.post(self.url, params=query, json=self.about, timeout=timeout))
        try:
            return str(response.headers["Location"])
        except KeyError:
            raise Answered(502, "an upload was begun without an address") from None


FIELDS = f"items({bucket.ITEM_FIELDS}),nextPageToken"
CHUNK_BYTES = 1 << 20
BREAKS = 5  # of one download in a row, without a byte between them
# Names that no other method takes as a key, such as the "folders" that Google's console makes.
_NO_KEY = re.compile(r"//|/$|^/|(?:^|/)\.\.?(?:/|$)|[\r\n\x00]")

Get = Callable[..., Any]  # requests.Session.get


def pages(patience: Patience, get: Get, url: str, prefix: str, cut: int, page_size: int) -> Iterator[Page]:
    """The objects whose names begin with `prefix`, their keys without the first `cut` characters. Refused."""
    query = {"prefix": prefix, "maxResults": str(page_size), "fields": FIELDS}
    newest = 0.0
    while True:
        objects, token, date = patience.ask(partial(_page, get, url, dict(query), cut))
        # The header has whole seconds, `updated` has milliseconds: no object is younger than the listing it is in.
        newest = max([newest, date, *(info.updated for info in objects)])
        yield Page(objects, newest)
        if token is None:
            return
        query["pageToken"] = token


def _page(
    get: Get, url: str, query: Mapping[str, str], cut: int, timeout: Timeout
) -> tuple[tuple[ObjectInfo, ...], str | None, float]:
    """Objects, where the next page begins (None: nowhere), and the store's time."""
    response = checked(get(url, params=query, timeout=timeout))
    try:
        body = json.loads(response.content)
        items = [item for item in body.get("items", ()) if not _NO_KEY.search(item["name"])]
        date = bucket.server_time(response.headers.get("Date"))
        return (tuple(bucket.info_of(item, item["name"][cut:]) for item in items), body.get("nextPageToken"), date)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Answered(502, f"the listing cannot be read: {error!r}") from error


def info_of_blob(blob: Any, key: str) -> ObjectInfo:
    """The same of what Google's client has read of an object."""
    metadata = dict(blob.metadata or {})
    return ObjectInfo(key, blob.size, str(blob.generation), blob.updated.timestamp(), metadata)


class Download:
    """Bytes [begin, end) of one object; `generation` None until the first answer says which one it is.

    `get` asks for a response whose body is not read yet. Refused as asking ends; StoreUnavailable when the bytes are
    not those that were stored, or the connection breaks again and again.
    """

    def __init__(self, patience: Patience, get: Get, url: str, generation: str | None) -> None:
        self._patience, self._get, self._url, self.generation = patience, get, url, generation

    def read(self, begin: int, end: int | None) -> Iterator[bytes]:
        import google_crc32c

        at, breaks = begin, 0
        whole = begin == 0 and end is None
        crc = google_crc32c.Checksum()
        while True:
            started_at = at
            response = self._patience.ask(partial(self._open, at, end))
            try:
                with closing(response):
                    for piece in response.raw.stream(CHUNK_BYTES, decode_content=False):
                        at += len(piece)
                        if whole:
                            crc.update(piece)
                        yield piece
            except Exception as error:
                if understood(error) is None:
                    raise
                breaks = breaks + 1 if at == started_at else 1
                if breaks > BREAKS:
                    raise StoreUnavailable(f"{self._url}: the download broke off {breaks} times") from error
                continue
            if whole and _crc32c(response) not in {None, base64.b64encode(crc.digest()).decode()}:
                raise StoreUnavailable(f"{self._url}: what was read is not what was stored (CRC32C)")
            return

    def _open(self, at: int, end: int | None, timeout: Timeout) -> Any:
        # Stored bytes as they are: without this, Cloud Storage unpacks what was stored as gzip.
        headers = {"Accept-Encoding": "gzip"}
        if at or end is not None:
            headers["Range"] = f"bytes={at}-" if end is None else f"bytes={at}-{end - 1}"
        query = {"alt": "media"} | ({"generation": self.generation} if self.generation else {})
        response = self._get(self._url, params=query, headers=headers, timeout=timeout, stream=True)
        try:
            checked(response)
            if "Range" in headers and response.status_code != 206:
                raise Answered(502, "a part was asked for, the whole was answered")
            generation = response.headers.get("X-Goog-Generation")
            if generation is None and self.generation is None:
                raise Answered(502, "the answer does not say which generation of the object it is")
            self.generation = generation or self.generation
        except BaseException:
            response.close()
            raise
        return response


def _crc32c(response: Any) -> str | None:
    """The checksum of the whole object, None where the store told none."""
    match = re.search(r"crc32c=([\w+/=]+)", response.headers.get("X-Goog-Hash", ""))
    return match[1] if match else None
