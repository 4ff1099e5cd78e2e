"""See the methods of contract/stores/promise.ObjectStore: here each of them is one or two requests to the door
(docs/designs/0027).

Many bytes go past the supervisor, to an address that the door has opened for one object. A write whose response was
lost is repeated; a 412 then means success if the object has our content.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
from typing import BinaryIO, Dict, Iterator, Mapping, Optional, Tuple
from urllib.parse import urlencode

from supervisor.agent.store.door.client import Door, DoorPass, is_safe, object_of, parsed, refusal, wait
from supervisor.agent.store.door.content import (
    GONE,
    PastUpload,
    Reading,
    Replaced,
    info_of,
    is_missing,
    object_path,
    page_of,
)
from supervisor.agent.store.gcs_content import Source
from supervisor.agent.store.googleapi import RetryPolicy
from supervisor.agent.store.httpclient import Response
from supervisor.contract.stores.promise import (
    MAX_PAGE,
    Generation,
    IsKnown,
    Metadata,
    ObjectInfo,
    ObjectMissing,
    Page,
    PreconditionFailed,
    StoreUnavailable,
    StrPath,
    check_key,
    check_metadata,
    check_page_size,
    check_prefix,
)

SCHEME = "door:"
SMALL_BYTES = 8 << 20  # the most that the door takes for a bucket
REMEMBERED_BYTES = 1 << 16
_TRIES = 100  # of a reader that finds a new generation each time
_GENERATION = re.compile(r"[!-~]{1,100}\Z")
_LOOKS = 3  # at an object that appears between two requests


class DoorStore:
    def __init__(self, url: str, door: Door) -> None:
        self.url, self.door_pass = url, door.door_pass
        self._door = door
        # Key, generation and content of the last `get`: the baton is read with each beat and seldom changes.
        self._last = ("", "", b"")

    @classmethod
    def at(
        cls, url: str, pass_file: str, authorities: Optional[str] = None, *, policy: Optional[RetryPolicy] = None
    ) -> DoorStore:
        """The store of door:SUPERVISOR/v1/door/RUN_ID. ValueError. Touches nothing but the file of the pass."""
        if not url.startswith(SCHEME):
            raise ValueError("not the URL of a door: %r" % url)
        return cls(url, Door(url[len(SCHEME) :], DoorPass(pass_file), policy or RetryPolicy(), authorities))

    def close(self) -> None:
        """Close the idle connections."""
        self._door.close()

    # --- writing --------------------------------------------------------------------------------------------------

    def put(self, key: str, data: bytes, if_generation: Generation = None, metadata: Metadata = None) -> ObjectInfo:
        check_metadata(metadata or {})
        return self._write(key, io.BytesIO(data), len(data), if_generation, metadata or {})

    def put_file(self, key: str, path: StrPath, if_generation: Generation = None) -> ObjectInfo:
        """OSError when the file at `path` cannot be opened: that is the caller's file, not the store's."""
        check_key(key)
        with open(path, "rb", buffering=0) as file:
            return self._write(key, file, os.fstat(file.fileno()).st_size, if_generation, {})

    def _write(
        self, key: str, file: BinaryIO, size: int, if_generation: Generation, metadata: Mapping[str, str]
    ) -> ObjectInfo:
        doing, retries = self._doing("write", key), self._door.retries()
        about = {"key": key, "size": size, "if_generation": if_generation, "metadata": dict(metadata)}
        headers = {
            "Content-Length": str(size),
            "X-Spot-Metadata": json.dumps(dict(metadata)),
            **_condition(if_generation),
        }
        while True:
            past, source = None if size <= SMALL_BYTES else self._begin_upload(doing, about), Source(file, size)
            if past is None:
                response = self._door.call(
                    doing, "PUT", object_path(key), headers=headers, body=source, retries=retries
                )
                break
            upload = PastUpload(past, source, self._door)
            response = upload.run_for(doing)
            retries.doubtful = retries.doubtful or upload.doubtful
            if response.status != GONE.status:
                break
            wait(retries, doing, "the upload was forgotten")
        if response.status == 412:
            mine = self._mine(key, file, size, if_generation, metadata) if retries.doubtful else None
            if mine is None:
                raise _not_met(key, if_generation)
            return mine
        if response.status not in (200, 201):
            raise refusal(response, doing)
        return info_of(object_of(response, doing), doing, key)

    def _begin_upload(self, doing: str, about: Mapping[str, object]) -> Optional[str]:
        """The address of an upload past the supervisor; None: the door takes it."""
        headers = {"Content-Type": "application/json"}
        response = self._door.call(doing, "POST", "/uploads", headers=headers, body=json.dumps(about).encode())
        if response.status == 412:
            raise _not_met(str(about["key"]), str(about["if_generation"]))
        if response.status not in (200, 201):
            raise refusal(response, doing)
        url = object_of(response, doing).get("url")
        if url is not None and not is_safe(url):
            raise StoreUnavailable("%s: the door named no address for it" % doing)
        return url if isinstance(url, str) else None

    def _mine(
        self, key: str, file: BinaryIO, size: int, if_generation: Generation, metadata: Mapping[str, str]
    ) -> Optional[ObjectInfo]:
        """The object, if an earlier try of ours wrote it; None: another writer was faster."""
        try:
            info = self.stat(key)
            if info.size != size or dict(info.metadata) != dict(metadata) or info.generation == if_generation:
                return None
            theirs = hashlib.sha256()
            for piece in Reading(self._door, key, self._doing("read", key), generation=info.generation).run():
                theirs.update(piece)
        except ObjectMissing:
            return None
        ours = hashlib.sha256()
        file.seek(0)
        for piece in iter(lambda: file.read(1 << 20), b""):
            ours.update(piece)
        return info if ours.digest() == theirs.digest() else None

    def delete(self, key: str, if_generation: Generation = None) -> bool:
        doing, retries = self._doing("delete", key), self._door.retries()
        response = self._door.call(
            doing, "DELETE", object_path(key), headers=_condition(if_generation), retries=retries
        )
        if response.status in (200, 204):
            return True
        if is_missing(response):
            return retries.doubtful  # an earlier try may have deleted it
        if response.status != 412:
            raise refusal(response, doing)
        try:
            self.stat(key)
        except ObjectMissing:
            return retries.doubtful
        raise _not_met(key, if_generation)

    # --- reading --------------------------------------------------------------------------------------------------

    def get(self, key: str) -> Tuple[bytes, ObjectInfo]:
        for _ in range(_TRIES):
            info = self.stat(key)
            if self._last[:2] == (key, info.generation):
                return self._last[2], info
            try:
                data = b"".join(Reading(self._door, key, self._doing("read", key), generation=info.generation).run())
            except (ObjectMissing, Replaced):
                continue  # since
            if len(data) <= REMEMBERED_BYTES:
                self._last = (key, info.generation, data)
            return data, info
        raise StoreUnavailable("%s: it changes faster than it can be read" % self._doing("read", key))

    def read(self, key: str, offset: int = 0, length: Optional[int] = None) -> Iterator[bytes]:
        """Errors come with the first bytes."""
        if offset < 0 or (length is not None and length < 0):
            raise ValueError("offset and length are not negative")
        yield from Reading(self._door, key, self._doing("read", key), offset=offset, length=length).run()

    def stat(self, key: str) -> ObjectInfo:
        doing = self._doing("read", key)
        for _ in range(_LOOKS):
            response = self._door.call(doing, "HEAD", object_path(key))
            if response.status == 200:
                return _described(response, doing, key)
            if response.status != 404:
                break
            # A 404 without a body may be a proxy's word for anything, so the door has to name its reason.
            response = self._door.call(doing, "GET", object_path(key), headers={"Range": "bytes=0-0"})
            if is_missing(response):
                raise ObjectMissing(key)
            if response.status == 404:
                break
        raise refusal(response, doing)

    def pages(self, prefix: str, page_size: int = MAX_PAGE, is_known: IsKnown = None) -> Iterator[Page]:
        """`is_known` saves nothing here: a listing has the metadata of all objects."""
        check_prefix(prefix)
        check_page_size(page_size)
        doing, after = self._doing("list", prefix), ""
        query = {"prefix": prefix, "limit": str(page_size)}
        while True:
            page_query = {**query, "after": after} if after else query
            response = self._door.call(doing, "GET", "/objects?" + urlencode(page_query))
            if response.status != 200:
                raise refusal(response, doing)
            page = page_of(object_of(response, doing), doing, prefix, after)
            if page.objects or not after:
                yield page
            if len(page.objects) < page_size:
                return
            after = page.objects[-1].key

    def _doing(self, verb: str, key: str) -> str:
        """The action, for error texts. ValueError for a key that no object can have."""
        if verb != "list":
            check_key(key)
        return "object store %s: cannot %s %r" % (self.url, verb, key)


def _condition(if_generation: Generation) -> Dict[str, str]:
    """PreconditionFailed for a text that no generation is."""
    if if_generation is None:
        return {}
    if _GENERATION.match(if_generation) is None:
        raise PreconditionFailed("%r is no generation" % if_generation)
    return {"X-Spot-If-Generation": if_generation}


def _not_met(key: str, if_generation: Generation) -> PreconditionFailed:
    return PreconditionFailed("%r does not have generation %s" % (key, if_generation))


def _described(response: Response, doing: str, key: str) -> ObjectInfo:
    """By the headers of a response."""
    headers = response.headers
    values = {
        "size": headers.get("content-length"),
        "generation": headers.get("x-spot-generation"),
        "updated": headers.get("x-spot-updated"),
        "metadata": parsed(headers.get("x-spot-metadata") or "{}"),
    }
    return info_of(values, doing, key)
