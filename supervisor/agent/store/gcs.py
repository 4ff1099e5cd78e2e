"""Objects in Cloud Storage, over its JSON API with the standard library: what the agent on a rented machine uses.

Writes are conditional by generation, which is what a bucket has anyway. A conditional write whose answer was lost is
tried again; a 412 is then success when what lies there is our own content in a newer generation. Content is checked by
its md5 both ways; a read that breaks off goes on where it was, in the same generation or not at all.
"""

from __future__ import annotations

import json
import os
import uuid
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple
from urllib.parse import quote, urlencode, urlsplit

from supervisor.agent.store import gcs_content as answers
from supervisor.agent.store.gcs_content import Source, Upload, read_object
from supervisor.agent.store.googleapi import GoogleApi, Pace, account_for
from supervisor.agent.store.site import Answer, Site, Unreachable
from supervisor.contract.stores import bucket
from supervisor.contract.stores.promise import (
    MAX_PAGE,
    Generation,
    Metadata,
    ObjectInfo,
    ObjectMissing,
    Page,
    PreconditionFailed,
    StoreUnavailable,
    StrPath,
    check_metadata,
    check_object_name,
    check_page_size,
    check_prefix,
    is_key,
)

ENDPOINT = "https://storage.googleapis.com"
SMALL_BYTES = 8 << 20  # sent in one piece from memory
REMEMBERED_BYTES = 1 << 16
_TRIES = 100  # of a reader that meets a new generation at each look
_PAGE_FIELDS = "nextPageToken,items(%s)" % answers.FIELDS


class GcsStore:
    """See ports/objectstore.ObjectStore for each method's promise; errors are those of contract/stores/promise.py."""

    def __init__(self, bucket: str, prefix: str, api: GoogleApi) -> None:
        """`prefix`: "" or ends with a slash."""
        self.url = "gs://%s" % (bucket + "/" + prefix).rstrip("/")
        self._bucket, self._prefix, self._api = bucket, prefix, api
        self._objects = "/storage/v1/b/%s/o" % quote(bucket, safe="")
        # Key, generation and content of what `get` read last: the baton, looked at with each beat, seldom changes.
        self._last = ("", "", b"")

    @classmethod
    def at(
        cls,
        url: str,
        endpoint: Optional[str] = None,
        authorities: Optional[str] = None,
        pace: Optional[Pace] = None,
        shares_computer: bool = False,
    ) -> GcsStore:
        """The store that `gs://BUCKET[/PREFIX]` names; `endpoint`: None = that of Google's own variable for a stand-in,
        which a machine on the supervisor's computer inherits, else Google's. `shares_computer`: see `account_for`.
        ValueError. Touches nothing."""
        parts = urlsplit(url)
        prefix = parts.path.strip("/")
        if parts.scheme != "gs" or not parts.netloc or parts.query or parts.fragment:
            raise ValueError("not the URL of a bucket: %r" % url)
        if prefix:
            check_object_name(prefix)
        endpoint = endpoint or _stand_in() or ENDPOINT
        pace = pace or Pace()
        account = account_for(endpoint, pace.monotonic, shares_computer)
        api = GoogleApi(Site(endpoint, authorities=authorities), account, pace)
        return cls(parts.netloc, prefix + "/" if prefix else "", api)

    def close(self) -> None:
        """Idle connections, that is."""
        self._api.close()

    # --- writing --------------------------------------------------------------------------------------------------

    def put(self, key: str, data: bytes, if_generation: Generation = None, metadata: Metadata = None) -> ObjectInfo:
        doing, query = self._doing("write", key), _condition(key, if_generation)
        md5 = answers.md5_of(data)
        own_metadata = dict(metadata or {})
        check_metadata(own_metadata)
        about = {"name": self._prefix + key, "md5Hash": md5, "metadata": own_metadata}
        body, kind = _multipart(json.dumps(about).encode(), data)
        effort = self._api.effort()
        path = self._upload("multipart", query)
        answer = self._call(doing, "POST", path, body, {"Content-Type": kind}, effort)
        return self._written(key, answer, (md5, own_metadata), if_generation, effort.doubtful)

    def put_file(self, key: str, path: StrPath, if_generation: Generation = None) -> ObjectInfo:
        """OSError when the file at `path` cannot be opened: that is the caller's file, not the store's."""
        doing, query = self._doing("write", key), _condition(key, if_generation)
        with open(path, "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            if size <= SMALL_BYTES:
                return self.put(key, _all_of(file), if_generation)
            about = json.dumps({"name": self._prefix + key}).encode()
            source = Source(file, size)
            upload = Upload(self._api, self._upload("resumable", query), about, source)
            try:
                answer = upload.run()
            except Unreachable as error:
                raise StoreUnavailable("%s: %s" % (doing, error)) from None
            return self._written(key, answer, (source.md5, {}), if_generation, upload.doubtful)

    def _written(
        self,
        key: str,
        answer: Answer,
        content: Tuple[str, Mapping[str, str]],
        if_generation: Optional[str],
        doubtful: bool,
    ) -> ObjectInfo:
        """`content`: md5 and metadata of what was sent."""
        doing = self._doing("write", key)
        if answer.status == 412:
            own = self._own(key, content, if_generation) if doubtful else None
            if own is None:
                raise PreconditionFailed("%r is not of generation %s" % (key, if_generation))
            return own
        resource = answers.resource(answer, doing)
        info = answers.info(resource, self._prefix, doing)
        if resource.get("md5Hash") not in (None, content[0]):
            self.delete(key, info.generation)
            raise StoreUnavailable("%s: what arrived differs from what was sent" % doing)
        return info

    def _own(
        self, key: str, content: Tuple[str, Mapping[str, str]], if_generation: Optional[str]
    ) -> Optional[ObjectInfo]:
        """The object, when it is what we have sent; None when it is another's."""
        try:
            resource, info = self._look(key)
        except ObjectMissing:
            return None
        same = resource.get("md5Hash") == content[0]
        return info if same and bucket.is_ours(info, content[1], if_generation) else None

    def delete(self, key: str, if_generation: Generation = None) -> bool:
        doing, query = self._doing("delete", key), _condition(key, if_generation)
        effort = self._api.effort()
        answer = self._call(doing, "DELETE", self._object(key, query), None, {}, effort)
        if answer.status in (200, 204):
            return True
        if answer.status == 404:
            self._missing(answer, doing)
            return effort.doubtful  # the deed may have been ours
        if answer.status != 412:
            raise answers.refusal(answer, doing)
        try:
            self.stat(key)
        except ObjectMissing:
            return effort.doubtful
        raise PreconditionFailed("%r is not of generation %s" % (key, if_generation))

    # --- reading --------------------------------------------------------------------------------------------------

    def get(self, key: str) -> Tuple[bytes, ObjectInfo]:
        for _ in range(_TRIES):
            info = self.stat(key)
            last = self._last
            if last[:2] == (key, info.generation):
                return last[2], info
            try:
                pieces = read_object(self._api, self._media(key, info.generation), self._doing("read", key))
                data = b"".join(pieces)
                if len(data) <= REMEMBERED_BYTES:
                    self._last = (key, info.generation, data)
                return data, info
            except ObjectMissing:  # replaced or deleted since
                continue
        raise StoreUnavailable("%s: it changes faster than it can be read" % self._doing("read", key))

    def read(self, key: str, offset: int = 0, length: Optional[int] = None) -> Iterator[bytes]:
        """Errors come with the first bytes asked for."""
        doing = self._doing("read", key)
        if offset < 0 or (length is not None and length < 0):
            raise ValueError("offset and length are not negative")
        try:
            yield from read_object(self._api, self._media(key, None), doing, offset, length)
        except ObjectMissing as missing:
            if missing.args:  # a 404 that may be about the bucket
                self._missing(missing.args[0], doing)
            raise ObjectMissing(key) from None

    def stat(self, key: str) -> ObjectInfo:
        return self._look(key)[1]

    def pages(self, prefix: str, page_size: int = MAX_PAGE) -> Iterator[Page]:
        check_prefix(prefix)
        check_page_size(page_size)
        doing = self._doing("list", prefix)
        query = {"prefix": self._prefix + prefix, "maxResults": str(page_size), "fields": _PAGE_FIELDS}
        any_page = False
        while True:
            answer = self._call(doing, "GET", "%s?%s" % (self._objects, urlencode(query)))
            listing = answers.resource(answer, doing)
            items: List[Dict[str, Any]] = answers.listed(listing, doing)
            token = listing.get("nextPageToken")
            if items or not (token or any_page):
                objects = (answers.info(item, self._prefix, doing) for item in items)
                yield Page(tuple(info for info in objects if is_key(info.key)), answers.date_s(answer, doing))
                any_page = True
            if not token:
                return
            query["pageToken"] = str(token)

    def _look(self, key: str) -> Tuple[Dict[str, Any], ObjectInfo]:
        doing = self._doing("read", key)
        answer = self._call(doing, "GET", self._object(key, {"fields": answers.FIELDS}))
        if answer.status == 404:
            self._missing(answer, doing)
            raise ObjectMissing(key)
        resource = answers.resource(answer, doing)
        return resource, answers.info(resource, self._prefix, doing)

    def _missing(self, answer: Answer, doing: str) -> None:
        """Returns when this 404 is about the object; StoreUnavailable when it is about the bucket."""
        if not bucket.names_no_object(bucket.message_of(answer.body)):
            query = urlencode({"maxResults": "1", "fields": "nextPageToken"})
            answers.resource(self._call(doing, "GET", "%s?%s" % (self._objects, query)), doing)

    # --- addresses ------------------------------------------------------------------------------------------------

    def _object(self, key: str, query: Mapping[str, str]) -> str:
        name = quote(self._prefix + key, safe="")
        return "%s/%s%s" % (self._objects, name, "?" + urlencode(query) if query else "")

    def _media(self, key: str, generation: Optional[str]) -> str:
        pinned = {} if generation is None else {"generation": generation}
        return self._object(key, {"alt": "media", **pinned})

    def _upload(self, kind: str, query: Mapping[str, str]) -> str:
        more = urlencode({"uploadType": kind, "fields": answers.FIELDS, **query})
        return "/upload%s?%s" % (self._objects, more)

    def _doing(self, verb: str, key: str) -> str:
        """What is being done, for errors. ValueError for a key that no object can have."""
        if verb != "list":
            check_object_name(key)
        return "object store %s: cannot %s %r" % (self.url, verb, key)

    def _call(self, doing: str, *call: Any) -> Answer:
        try:
            return self._api.call(*call)
        except Unreachable as error:
            raise StoreUnavailable("%s: %s" % (doing, error)) from None


def _stand_in() -> str:
    host = os.environ.get("STORAGE_EMULATOR_HOST", "")
    return host if not host or "://" in host else "http://" + host


def _condition(key: str, if_generation: Optional[str]) -> Dict[str, str]:
    generation = bucket.condition_of(if_generation)
    if generation == bucket.NEVER:
        raise PreconditionFailed("%r is not of generation %s" % (key, if_generation))
    return {} if generation is None else {"ifGenerationMatch": str(generation)}


def _multipart(about: bytes, data: bytes) -> Tuple[bytes, str]:
    """(body, its content type)."""
    edge = uuid.uuid4().hex.encode()
    parts = (
        b"--", edge, b"\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n", about,
        b"\r\n--", edge, b"\r\nContent-Type: application/octet-stream\r\n\r\n", data,
        b"\r\n--", edge, b"--\r\n",
    )  # fmt: skip
    return b"".join(parts), "multipart/related; boundary=%s" % edge.decode()


def _all_of(file: Any) -> bytes:
    return b"".join(iter(lambda: file.read(SMALL_BYTES), b""))
