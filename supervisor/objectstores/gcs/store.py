"""Cloud Storage as an object store: `gs://BUCKET[/PREFIX]`, Application Default Credentials.

Single objects are read and written through Google's client; listings, downloads and large uploads are requests of our
own on the same session (transfer.py says why). Every conditional write contains its condition, so a retry is safe: when
the response of the first try was lost, the retry finds our own object, and that is success. STORAGE_EMULATOR_HOST is
Google's own variable; the default credentials are used wherever some are configured.
"""

from __future__ import annotations

import io
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, BinaryIO
from urllib.parse import quote

from supervisor.contract.stores.bucket import NEVER, condition_of, info_of, is_ours, names_no_object
from supervisor.contract.stores.promise import (
    Generation,
    Metadata,
    StrPath,
    check_metadata,
    check_object_name,
    check_page_size,
    check_prefix,
)
from supervisor.objectstores.gcs.retry import RequestFailed, RetryPolicy, Timeout, checked, failure_of, unavailable
from supervisor.objectstores.gcs.session import Client, LazyClient, require_library
from supervisor.objectstores.gcs.transfer import PIECE_BYTES, Download, ResumableUpload, crc32c, info_of_blob, pages
from supervisor.ports.objectstore import (
    MAX_PAGE,
    IsKnown,
    ObjectInfo,
    ObjectMissing,
    ObjectStore,
    Page,
    PreconditionFailed,
    StoreUnavailable,
)

_URL = re.compile(r"gs://([a-z0-9][a-z0-9._-]{1,220}[a-z0-9])(?:/(.*))?")
_TYPE = "application/octet-stream"
_TRIES = 100  # of a reader that finds a new generation each time
BUCKET_FIELDS = (
    "name,projectNumber,location,locationType,storageClass,versioning,softDeletePolicy,iamConfiguration,"
    "customPlacementConfig"
)


@dataclass(frozen=True)
class _Content:
    """How an object is recognized when the response to its write was lost."""

    size: int
    crc32c: str
    metadata: Mapping[str, str]


class GcsStore(ObjectStore):
    """`patience_s`: how long a transient error is retried, for each request. Threads may share one store."""

    def __init__(
        self,
        url: str,
        *,
        patience_s: float = 15.0,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """Sends no request. ValueError for any URL but gs://BUCKET[/PREFIX]."""
        match = _URL.fullmatch(url)
        if match is None:
            raise ValueError(f"an object store in Google Cloud is gs://BUCKET or gs://BUCKET/PREFIX, not {url!r}")
        folder = (match[2] or "").strip("/")
        if folder:
            check_object_name(folder)
        self.bucket_name = match[1]
        self._prefix = folder + "/" if folder else ""
        self.url = f"gs://{match[1]}" + (f"/{folder}" if folder else "")
        self._policy = RetryPolicy(patience_s, clock, pause, chance)
        self._lazy_client = LazyClient(self.url, self.bucket_name, clock)

    @classmethod
    def at(cls, url: str, patience_s: float = 15.0) -> GcsStore:
        """The store at this URL. ImportError where Google's library is not installed."""
        require_library(url)
        return cls(url, patience_s=patience_s)

    def warm(self) -> None:
        """Load Google's client and find the credentials now (0.3 s), not at the first request. StoreUnavailable."""
        self._client()

    def close(self) -> None:
        self._lazy_client.close()

    # --- one object -----------------------------------------------------------------------------------------------

    def put(self, key: str, data: bytes, if_generation: Generation = None, metadata: Metadata = None) -> ObjectInfo:
        check_object_name(key)
        check_metadata(metadata or {})
        return self._put(key, io.BytesIO(data), if_generation, dict(metadata or {}))

    def put_file(self, key: str, path: StrPath, if_generation: Generation = None) -> ObjectInfo:
        check_object_name(key)
        with open(path, "rb") as file:
            return self._put(key, file, if_generation, {})

    def get(self, key: str) -> tuple[bytes, ObjectInfo]:
        for _ in range(_TRIES):
            info = self.stat(key)
            try:
                return b"".join(self._download(key, info.generation).read(0, None)), info
            except RequestFailed as failed:
                if failed.status != 404:
                    raise unavailable(self.url, "read", key, failed) from failed
        raise StoreUnavailable(f"{self.url}: {key!r} is replaced faster than it can be read")

    def read(self, key: str, offset: int = 0, length: int | None = None) -> Iterator[bytes]:
        if offset < 0 or (length is not None and length < 0):
            raise ValueError("offset and length are not negative")
        if length == 0:
            self.stat(key)
            return
        check_object_name(key)
        download = self._download(key, None)
        try:
            yield from download.read(offset, None if length is None else offset + length)
        except RequestFailed as failed:
            if failed.status == 404 and download.generation is not None:
                raise StoreUnavailable(f"{self.url}: {key!r} was replaced while it was read") from None
            if failed.status == 404:
                self._require_bucket(key, failed)
                raise ObjectMissing(key) from None
            if failed.status != 416:  # nothing lies there, past the end
                raise unavailable(self.url, "read", key, failed) from failed

    def stat(self, key: str) -> ObjectInfo:
        check_object_name(key)
        return info_of_blob(self._read_blob(key), key)

    def pages(self, prefix: str, page_size: int = MAX_PAGE, is_known: IsKnown = None) -> Iterator[Page]:
        """`is_known` saves nothing here: a listing has the metadata of all objects."""
        check_prefix(prefix)
        check_page_size(page_size)
        client, cut = self._client(), len(self._prefix)
        url = f"{client.endpoint}/storage/v1/b/{self.bucket_name}/o"
        try:
            yield from pages(self._policy, client.session.get, url, self._prefix + prefix, cut=cut, page_size=page_size)
        except RequestFailed as failed:
            raise unavailable(self.url, "list", prefix, failed) from failed

    def delete(self, key: str, if_generation: Generation = None) -> bool:
        check_object_name(key)
        condition = condition_of(if_generation)
        if condition == NEVER:
            return self._differs_or_is_gone(key, False)
        blob = self._blob(key)
        try:
            self._policy.call(lambda timeout: blob.delete(if_generation_match=condition, timeout=timeout, retry=None))
        except RequestFailed as failed:
            if failed.status == 412:
                return self._differs_or_is_gone(key, failed.doubtful)
            if failed.status != 404:
                raise unavailable(self.url, "delete", key, failed) from failed
            self._require_bucket(key, failed)
            return failed.doubtful  # deleted by an earlier try, whose response was lost
        return True

    # --- for others, who have no account (ReachableStore) -----------------------------------------------------------

    def begin_upload(self, key: str, size: int, if_generation: str | None, metadata: Mapping[str, str]) -> str:
        check_object_name(key)
        check_metadata(metadata)
        condition = condition_of(if_generation)
        if condition == NEVER:
            raise PreconditionFailed(key)
        try:
            return self._upload(key, {"metadata": dict(metadata)} if metadata else {}, condition).begin(size)
        except RequestFailed as failed:
            if failed.status != 412:
                raise unavailable(self.url, "write", key, failed) from failed
            raise PreconditionFailed(key) from None

    def address_to_read(self, info: ObjectInfo, for_s: float) -> str | None:
        from google.auth.credentials import Signing

        client, blob = self._client(), self._blob(info.key)
        credentials = client.session.credentials
        if not isinstance(credentials, Signing):
            return None
        try:
            address: str = blob.generate_signed_url(
                version="v4",
                expiration=timedelta(seconds=for_s),
                generation=info.generation,
                api_access_endpoint=client.endpoint,
                credentials=credentials,
            )
        except Exception as error:
            if failure_of(error) is None:
                raise
            return None  # such as an account in whose name another one may not sign
        return address

    # --- the bucket -----------------------------------------------------------------------------------------------

    def bucket(self) -> dict[str, Any]:
        """The bucket's description in the names of storage.v1 (BUCKET_FIELDS). StoreUnavailable."""
        return self._read_bucket("", {"fields": BUCKET_FIELDS})

    def permissions(self, names: Sequence[str]) -> frozenset[str]:
        """The permissions among these that the account has on the bucket. StoreUnavailable."""
        held = self._read_bucket("/iam/testPermissions", {"permissions": list(names)})
        return frozenset(held.get("permissions", ()))

    def _read_bucket(self, path: str, query: Mapping[str, Any]) -> dict[str, Any]:
        client = self._client()
        url = f"{client.endpoint}/storage/v1/b/{self.bucket_name}{path}"

        def attempt(timeout: Timeout) -> dict[str, Any]:
            description: dict[str, Any] = checked(client.session.get(url, params=query, timeout=timeout)).json()
            return description

        try:
            return self._policy.call(attempt)
        except RequestFailed as failed:
            raise unavailable(self.url, "look at", "", failed) from failed

    # --- inside ---------------------------------------------------------------------------------------------------

    def _client(self) -> Client:
        return self._lazy_client.get()

    def _blob(self, key: str) -> Any:
        return self._client().bucket.blob(self._prefix + key)

    def _download(self, key: str, generation: str | None) -> Download:
        client = self._client()
        url = f"{client.endpoint}/download/storage/v1/b/{self.bucket_name}/o/{quote(self._prefix + key, safe='')}"
        return Download(self._policy, client.session.get, url, generation)

    def _read_blob(self, key: str) -> Any:
        """The object's resource as Google's client has it. ObjectMissing, StoreUnavailable."""
        blob = self._blob(key)
        try:
            self._policy.call(lambda timeout: blob.reload(timeout=timeout, retry=None))
        except RequestFailed as failed:
            if failed.status != 404:
                raise unavailable(self.url, "read", key, failed) from failed
            self._require_bucket(key, failed)
            raise ObjectMissing(key) from None
        return blob

    def _require_bucket(self, key: str, failed: RequestFailed) -> None:
        """After a 404: return if the object is missing, StoreUnavailable if the bucket is missing."""
        if names_no_object(failed.text):
            return
        next(self.pages(key, 1))  # an unknown message: a listing distinguishes the two

    def _differs_or_is_gone(self, key: str, doubtful: bool) -> bool:
        """The end of a delete whose condition did not hold. PreconditionFailed where an object exists; otherwise
        whether an earlier try of ours, whose response was lost, may have deleted it."""
        try:
            self._read_blob(key)
        except ObjectMissing:
            return doubtful
        raise PreconditionFailed(key)

    def _put(self, key: str, stream: BinaryIO, if_generation: str | None, metadata: Mapping[str, str]) -> ObjectInfo:
        condition = condition_of(if_generation)
        if condition == NEVER:
            raise PreconditionFailed(key)
        checksum, size = crc32c(stream)
        content = _Content(size, checksum, metadata)
        stream.seek(0)
        try:
            if size > PIECE_BYTES:
                return self._send_in_pieces(key, stream, content, condition)
            return self._send(key, stream.read(), content, condition)
        except RequestFailed as failed:
            if failed.status != 412:
                raise unavailable(self.url, "write", key, failed) from failed
            if failed.doubtful and (ours := self._ours(key, content, if_generation)) is not None:
                return ours
            raise PreconditionFailed(key) from None

    def _send(self, key: str, data: bytes, content: _Content, condition: int | None) -> ObjectInfo:
        def attempt(timeout: Timeout) -> Any:
            blob = self._blob(key)
            if content.metadata:
                blob.metadata = dict(content.metadata)
            blob.crc32c = content.crc32c  # the store refuses other content
            blob.upload_from_string(
                data, _TYPE, if_generation_match=condition, timeout=timeout, checksum=None, retry=None
            )
            return blob

        return info_of_blob(self._policy.call(attempt), key)

    def _send_in_pieces(self, key: str, stream: BinaryIO, content: _Content, condition: int | None) -> ObjectInfo:
        upload = self._upload(key, {"crc32c": content.crc32c}, condition)
        return info_of(upload.send(stream, content.size), key)

    def _upload(self, key: str, more: Mapping[str, Any], condition: int | None) -> ResumableUpload:
        client = self._client()
        url = f"{client.endpoint}/upload/storage/v1/b/{self.bucket_name}/o"
        resource = {"name": self._prefix + key, "contentType": _TYPE, **more}
        return ResumableUpload(self._policy, client.session, url, resource, condition)

    def _ours(self, key: str, content: _Content, if_generation: str | None) -> ObjectInfo | None:
        """The object, if a write of ours made it whose response was lost, so that the condition of the retry does not
        hold any more: its content and metadata are ours, and it is newer than the generation that we knew."""
        try:
            blob = self._read_blob(key)
        except ObjectMissing:
            return None
        info = info_of_blob(blob, key)
        same = (info.size, blob.crc32c) == (content.size, content.crc32c)
        return info if same and is_ours(info, content.metadata, if_generation) else None
