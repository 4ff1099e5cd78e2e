"""Objects in Cloud Storage, over its JSON API with the standard library: the store of an agent on a rented machine.

Writes are conditional by generation, which a bucket has anyway. A conditional write whose response was lost is retried;
a 412 then means success if the object holds our own content in a newer generation. Content is checked by its md5 in
both directions. A read that breaks off continues where it was, in the same generation, or fails.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from typing import Any, Dict, Iterator, List, Mapping, Optional, Tuple
from urllib.parse import quote, urlencode, urlsplit

from supervisor.agent.store import gcs_content
from supervisor.agent.store.gcs_content import Source, Upload, read_object, resource_of
from supervisor.agent.store.googleapi import GoogleApi, Retries, RetryPolicy, account_for
from supervisor.agent.store.httpclient import HttpClient, Request, Response, Unreachable
from supervisor.contract.stores import bucket
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
    check_metadata,
    check_object_name,
    check_page_size,
    check_prefix,
    is_key,
)

ENDPOINT = "https://storage.googleapis.com"
SMALL_BYTES = 8 << 20  # sent in one piece from memory
REMEMBERED_BYTES = 1 << 16
_TRIES = 100  # of a reader that finds a new generation each time
_PAGE_FIELDS = "nextPageToken,items(%s)" % gcs_content.FIELDS


class GcsStore:
    """See ports/objectstore.ObjectStore for each method's promise; the errors are in contract/stores/promise.py."""

    def __init__(self, bucket: str, prefix: str, api: GoogleApi) -> None:
        """`prefix`: "" or ends with a slash."""
        self.url = "gs://%s" % (bucket + "/" + prefix).rstrip("/")
        self._bucket, self._prefix, self._api = bucket, prefix, api
        self._objects = "/storage/v1/b/%s/o" % quote(bucket, safe="")
        # Key, generation and content of the last `get`: the baton is read with each beat and seldom changes.
        self._last = ("", "", b"")

    @classmethod
    def at(
        cls,
        url: str,
        endpoint: Optional[str] = None,
        authorities: Optional[str] = None,
        *,
        policy: Optional[RetryPolicy] = None,
        shares_computer: bool = False,
    ) -> GcsStore:
        """The store of `gs://BUCKET[/PREFIX]`. `endpoint` None: the one in Google's own variable for a stand-in, which
        a machine on the supervisor's computer inherits, else Google's. `shares_computer`: see `account_for`.
        ValueError. Touches nothing."""
        parts = urlsplit(url)
        prefix = parts.path.strip("/")
        if parts.scheme != "gs" or not parts.netloc or parts.query or parts.fragment:
            raise ValueError("not the URL of a bucket: %r" % url)
        if prefix:
            check_object_name(prefix)
        endpoint = endpoint or _stand_in() or ENDPOINT
        policy = policy or RetryPolicy()
        account = account_for(endpoint, policy.monotonic, shares_computer)
        api = GoogleApi(HttpClient(endpoint, authorities=authorities), account, policy)
        return cls(parts.netloc, prefix + "/" if prefix else "", api)

    def close(self) -> None:
        """Close the idle connections."""
        self._api.close()

    # --- writing --------------------------------------------------------------------------------------------------

    def put(self, key: str, data: bytes, if_generation: Generation = None, metadata: Metadata = None) -> ObjectInfo:
        doing, query = self._doing("write", key), _condition(key, if_generation)
        md5 = gcs_content.md5_of(data)
        own_metadata = dict(metadata or {})
        check_metadata(own_metadata)
        about = {"name": self._prefix + key, "md5Hash": md5, "metadata": own_metadata}
        body, content_type = _multipart(json.dumps(about).encode(), data)
        retries = self._api.retries()
        request = Request("POST", self._upload("multipart", query), body, {"Content-Type": content_type})
        response = self._call(doing, request, retries)
        return self._written(key, response, (md5, own_metadata), if_generation, doubtful=retries.doubtful)

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
                response = upload.run()
            except Unreachable as error:
                raise StoreUnavailable("%s: %s" % (doing, error)) from None
            return self._written(key, response, (source.md5, {}), if_generation, doubtful=upload.doubtful)

    def _written(
        self,
        key: str,
        response: Response,
        content: Tuple[str, Mapping[str, str]],
        if_generation: Optional[str],
        *,
        doubtful: bool,
    ) -> ObjectInfo:
        """`content`: md5 and metadata of the data that was sent."""
        doing = self._doing("write", key)
        if response.status == 412:
            if doubtful:
                with suppress(ObjectMissing):
                    resource, info = self._look(key)
                    has_content = resource.get("md5Hash") == content[0]
                    if has_content and bucket.is_ours(info, content[1], if_generation):
                        return info  # an earlier try of ours wrote it
            raise PreconditionFailed("%r does not have generation %s" % (key, if_generation))
        resource = resource_of(response, doing)
        info = gcs_content.info_of(resource, self._prefix, doing)
        if resource.get("md5Hash") not in (None, content[0]):
            self.delete(key, info.generation)
            raise StoreUnavailable("%s: the stored content differs from the sent content" % doing)
        return info

    def delete(self, key: str, if_generation: Generation = None) -> bool:
        doing, query = self._doing("delete", key), _condition(key, if_generation)
        retries = self._api.retries()
        response = self._call(doing, Request("DELETE", self._object(key, query)), retries)
        if response.status in (200, 204):
            return True
        if response.status == 404:
            self._missing(response, doing)
            return retries.doubtful  # an earlier try may have deleted it
        if response.status != 412:
            raise gcs_content.refusal(response, doing)
        try:
            self.stat(key)
        except ObjectMissing:
            return retries.doubtful
        raise PreconditionFailed("%r does not have generation %s" % (key, if_generation))

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
        """Errors come with the first bytes."""
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

    def pages(self, prefix: str, page_size: int = MAX_PAGE, is_known: IsKnown = None) -> Iterator[Page]:
        """`is_known` saves nothing here: a listing has the metadata of all objects."""
        check_prefix(prefix)
        check_page_size(page_size)
        doing = self._doing("list", prefix)
        query = {"prefix": self._prefix + prefix, "maxResults": str(page_size), "fields": _PAGE_FIELDS}
        any_page = False
        while True:
            response = self._call(doing, Request("GET", "%s?%s" % (self._objects, urlencode(query))))
            listing = resource_of(response, doing)
            items: List[Dict[str, Any]] = gcs_content.items_of(listing, doing)
            token = listing.get("nextPageToken")
            if items or not (token or any_page):
                objects = (gcs_content.info_of(item, self._prefix, doing) for item in items)
                yield Page(
                    tuple(info for info in objects if is_key(info.key)), gcs_content.server_time_s(response, doing)
                )
                any_page = True
            if not token:
                return
            query["pageToken"] = str(token)

    def _look(self, key: str) -> Tuple[Dict[str, Any], ObjectInfo]:
        doing = self._doing("read", key)
        response = self._call(doing, Request("GET", self._object(key, {"fields": gcs_content.FIELDS})))
        if response.status == 404:
            self._missing(response, doing)
            raise ObjectMissing(key)
        resource = resource_of(response, doing)
        return resource, gcs_content.info_of(resource, self._prefix, doing)

    def _missing(self, response: Response, doing: str) -> None:
        """Returns when this 404 is about the object; StoreUnavailable when it is about the bucket."""
        if not bucket.names_no_object(bucket.message_of(response.body)):
            query = urlencode({"maxResults": "1", "fields": "nextPageToken"})
            resource_of(self._call(doing, Request("GET", "%s?%s" % (self._objects, query))), doing)

    # --- addresses ------------------------------------------------------------------------------------------------

    def _object(self, key: str, query: Mapping[str, str]) -> str:
        name = quote(self._prefix + key, safe="")
        return "%s/%s%s" % (self._objects, name, "?" + urlencode(query) if query else "")

    def _media(self, key: str, generation: Optional[str]) -> str:
        pinned = {} if generation is None else {"generation": generation}
        return self._object(key, {"alt": "media", **pinned})

    def _upload(self, kind: str, query: Mapping[str, str]) -> str:
        return "/upload%s?%s" % (self._objects, urlencode({"uploadType": kind, "fields": gcs_content.FIELDS, **query}))

    def _doing(self, verb: str, key: str) -> str:
        """The action, for error texts. ValueError for a key that no object can have."""
        if verb != "list":
            check_object_name(key)
        return "object store %s: cannot %s %r" % (self.url, verb, key)

    def _call(self, doing: str, request: Request, retries: Optional[Retries] = None) -> Response:
        try:
            return self._api.call(request, retries)
        except Unreachable as error:
            raise StoreUnavailable("%s: %s" % (doing, error)) from None


def _stand_in() -> str:
    host = os.environ.get("STORAGE_EMULATOR_HOST", "")
    return host if not host or "://" in host else "http://" + host


def _condition(key: str, if_generation: Optional[str]) -> Dict[str, str]:
    generation = bucket.condition_of(if_generation)
    if generation == bucket.NEVER:
        raise PreconditionFailed("%r does not have generation %s" % (key, if_generation))
    return {} if generation is None else {"ifGenerationMatch": str(generation)}


def _multipart(about: bytes, data: bytes) -> Tuple[bytes, str]:
    """(body, its content type)."""
    edge = os.urandom(16).hex().encode()
    parts = (
        b"--", edge, b"\r\nContent-Type: application/json; charset=UTF-8\r\n\r\n", about,
        b"\r\n--", edge, b"\r\nContent-Type: application/octet-stream\r\n\r\n", data,
        b"\r\n--", edge, b"--\r\n",
    )  # fmt: skip
    return b"".join(parts), "multipart/related; boundary=%s" % edge.decode()


def _all_of(file: Any) -> bytes:
    return b"".join(iter(lambda: file.read(SMALL_BYTES), b""))
