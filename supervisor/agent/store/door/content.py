"""Content behind the door in both directions, and the meaning of its responses.

Reading: of one generation from the first byte to the last. The door may answer with an address of the bucket, which is
its own permission: the pass is never sent there. A response that breaks off is continued through the door. What a
bucket says about an address that it does not take is no word about the object.
"""

from __future__ import annotations

from typing import Any, Dict, Iterator, Mapping, Optional, Tuple
from urllib.parse import quote, urlsplit

from supervisor.agent.store.door.client import Door, code_of, may_pass, refusal, text_of, wait
from supervisor.agent.store.gcs_content import Source, Upload
from supervisor.agent.store.googleapi import GoogleApi, Retries
from supervisor.agent.store.httpclient import HttpClient, Response, ResponseStream, Unreachable
from supervisor.contract.stores import bucket
from supervisor.contract.stores.promise import ObjectInfo, ObjectMissing, Page, StoreUnavailable

GONE = Response(410)
MOVES = 20  # of an object between its address and its content


def object_path(key: str) -> str:
    return "/objects/" + quote(key, safe="/")


class Replaced(StoreUnavailable):
    """The object has another generation than the one that was asked for."""


class Reading:
    """`generation`: the one to read; "" = that of the first response."""

    def __init__(
        self, door: Door, key: str, doing: str, *, offset: int = 0, length: Optional[int] = None, generation: str = ""
    ) -> None:
        self._door, self._doing, self._key = door, doing, key
        self._at, self._end = offset, None if length is None else offset + length
        self._generation, self._begun, self._over = generation, False, False
        self._moved = 0

    def run(self) -> Iterator[bytes]:
        """Raises ObjectMissing, StoreUnavailable, of which Replaced is one kind."""
        retries = self._door.retries()
        while not self._over:
            try:
                for piece in self._pieces(retries):
                    retries.reset()
                    yield piece
            except Unreachable as error:
                wait(retries, self._doing, str(error))

    def _pieces(self, retries: Retries) -> Iterator[bytes]:
        """The rest, or as much of it as one response brings. Unreachable where it breaks off."""
        headers = self._range()
        with self._door.open("GET", object_path(self._key), headers) as stream:
            if stream.status not in (302, 303, 307):
                yield from self._content(stream, "", retries)
                return
            named = stream.response()
        with self._door.elsewhere(named.headers.get("location", ""), headers) as past:
            yield from self._content(past, named.headers.get("x-spot-generation", ""), retries, past=True)

    def _content(
        self, stream: ResponseStream, generation: str, retries: Retries, past: bool = False
    ) -> Iterator[bytes]:
        if stream.status == (206 if self._range() else 200):
            headers = stream.headers
            self._check(headers.get("x-goog-generation") or headers.get("x-spot-generation") or generation)
            yield from self._counted(stream)
            self._over = True
            return
        response = stream.response()
        if response.status == 416:
            self._over = True  # there is nothing behind the end
        elif past and response.status == 404 and self._generation:
            raise Replaced("%s: it was replaced while it was read" % self._doing)
        elif past and response.status == 404 and self._moved < MOVES:
            self._moved += 1  # replaced since the door named its address
        elif past or may_pass(response.status):
            # The word of a bucket about an address that it does not take is no word about the object.
            wait(retries, self._doing, text_of(response))
        elif is_missing(response):
            if self._begun:
                raise Replaced("%s: it was deleted while it was read" % self._doing)
            raise ObjectMissing(self._key)
        else:
            raise refusal(response, self._doing)

    def _check(self, generation: str) -> None:
        if not generation:
            raise StoreUnavailable("%s: the response does not say of which generation it is" % self._doing)
        if self._generation and generation != self._generation:
            raise Replaced("%s: it was replaced while it was read" % self._doing)
        self._generation, self._begun = generation, True

    def _range(self) -> Dict[str, str]:
        if self._at == 0 and self._end is None:
            return {}
        last = "" if self._end is None else str(max(self._at, self._end - 1))
        return {"Range": "bytes=%d-%s" % (self._at, last)}

    def _counted(self, stream: ResponseStream) -> Iterator[bytes]:
        for received in stream.pieces():
            piece = received if self._end is None else received[: max(0, self._end - self._at)]
            if piece:
                self._at += len(piece)
                yield piece


class PastUpload(Upload):
    """To an address that the door has opened at the bucket. One that is forgotten there ends with 410."""

    def __init__(self, url: str, source: Source, door: Door) -> None:
        super().__init__(GoogleApi(HttpClient(url, authorities=door.authorities), None, door.policy), "", b"", source)
        parts = urlsplit(url)
        self._session = "%s?%s" % (parts.path, parts.query)

    def run_for(self, doing: str) -> Response:
        """StoreUnavailable."""
        try:
            return self.run()
        except Unreachable as error:
            raise StoreUnavailable("%s: %s" % (doing, error)) from None
        finally:
            self._api.close()

    def _begin(self) -> Tuple[str, Response]:
        session, self._session = self._session, ""
        return session, GONE


def is_missing(response: Response) -> bool:
    return response.status == 404 and code_of(response) == "OBJECT_MISSING"


def info_of(data: Mapping[str, Any], doing: str, key: str) -> ObjectInfo:
    """From a listing, from headers, or from a bucket's own resource. StoreUnavailable for an incomplete one."""
    try:
        generation, updated = str(data["generation"]), data["updated"]
        if not generation or data["generation"] is None:
            raise ValueError("no generation")
        at = bucket.epoch_s(updated) if isinstance(updated, str) and updated.endswith("Z") else float(updated)
        metadata = {str(name): str(value) for name, value in dict(data.get("metadata") or {}).items()}
        return ObjectInfo(key, int(data["size"]), generation, at, metadata)
    except (KeyError, TypeError, ValueError) as error:
        raise StoreUnavailable("%s: the response cannot be parsed: %s" % (doing, error)) from None


def page_of(data: Mapping[str, Any], doing: str, prefix: str, after: str) -> Page:
    """StoreUnavailable for a page that is not one, or is not the one that was asked for."""
    rows, time_s = data.get("objects"), data.get("server_time")
    if not isinstance(rows, list) or isinstance(time_s, bool) or not isinstance(time_s, (int, float)):
        raise StoreUnavailable("%s: the response cannot be parsed" % doing)
    infos = tuple(info_of(row, doing, str(row["key"])) for row in rows if isinstance(row, dict) and "key" in row)
    keys = [after.encode()] + [info.key.encode("utf-8", "replace") for info in infos]
    ordered = all(first < second for first, second in zip(keys, keys[1:]))
    if len(infos) != len(rows) or not ordered or not all(info.key.startswith(prefix) for info in infos):
        raise StoreUnavailable("%s: the response is not the page that was asked for" % doing)
    return Page(infos, float(time_s))
