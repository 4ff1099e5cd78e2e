"""Listings and downloads from Cloud Storage, in requests of our own on the client's session.

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
from datetime import datetime
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Any

from supervisor.objectstores.gcs.asking import Answered, Patience, Timeout, checked, understood
from supervisor.ports.objectstore import ObjectInfo, Page, StoreUnavailable

FIELDS = "items(name,size,generation,updated,metadata),nextPageToken"
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
        newest = max([newest, date, *(found.updated for found in objects)])
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
        date = parsedate_to_datetime(response.headers["Date"]).timestamp()
        return tuple(info(item, item["name"][cut:]) for item in items), body.get("nextPageToken"), date
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise Answered(502, f"the listing cannot be read: {error!r}") from error


def info(resource: Mapping[str, Any], key: str) -> ObjectInfo:
    """An Object of storage.v1 in our words."""
    return ObjectInfo(
        key,
        int(resource["size"]),
        resource["generation"],
        datetime.fromisoformat(resource["updated"]).timestamp(),
        resource.get("metadata", {}),
    )


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
            found = response.headers.get("X-Goog-Generation")
            if found is None and self.generation is None:
                raise Answered(502, "the answer does not say which generation of the object it is")
            self.generation = found or self.generation
        except BaseException:
            response.close()
            raise
        return response


def _crc32c(response: Any) -> str | None:
    """The checksum of the whole object, None where the store told none."""
    found = re.search(r"crc32c=([\w+/=]+)", response.headers.get("X-Goog-Hash", ""))
    return found[1] if found else None
