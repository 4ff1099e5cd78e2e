"""Cloud Storage as an object store: `gs://BUCKET[/PREFIX]`, Application Default Credentials.

Objects are asked after and written through Google's client, listings, downloads and large uploads in requests of our
own on the same session (gcs_reading and gcs_upload say why). Every conditional write carries its condition, so asking
again is safe; when the answer of the first try was lost, the second one meets our own object: that is success.
STORAGE_EMULATOR_HOST is Google's own variable; the credentials stay the default ones wherever some are configured.
"""

from __future__ import annotations

import io
import random
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from supervisor.objectstores.gcs.session import Hands, Patience, Refused, Session, checked, require_client, unavailable
from supervisor.objectstores.gcs.transfer import PIECE_BYTES, Download, ResumableUpload, crc32c, info_of_blob, pages
from supervisor.ports.objectstore import (
    MAX_PAGE,
    ObjectInfo,
    ObjectMissing,
    ObjectStore,
    Page,
    PreconditionFailed,
    StoreUnavailable,
)

_URL = re.compile(r"gs://([a-z0-9][a-z0-9._-]{1,220}[a-z0-9])(?:/(.*))?")
_TYPE = "application/octet-stream"
_TRIES = 100  # of a reader that meets a new generation at each look
BUCKET_FIELDS = (
    "name,projectNumber,location,locationType,storageClass,versioning,softDeletePolicy,iamConfiguration,"
    "customPlacementConfig"
)


@dataclass(frozen=True)
class _Content:
    """What an object is recognised by when the answer to its write was lost."""

    size: int
    crc32c: str
    metadata: Mapping[str, str]


class GcsStore(ObjectStore):
    """`patience_s`: how long a passing trouble is waited for, at each request. Threads may share one store."""

    def __init__(
        self,
        url: str,
        *,
        patience_s: float = 15.0,
        clock: Callable[[], float] = time.monotonic,
        pause: Callable[[float], None] = time.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """Touches nothing. ValueError for any URL but gs://BUCKET[/PREFIX]."""
        match = _URL.fullmatch(url)
        if match is None:
            raise ValueError(f"an object store in Google Cloud is gs://BUCKET or gs://BUCKET/PREFIX, not {url!r}")
        folder = (match[2] or "").strip("/")
        if folder:
            check_object_name(folder)
        self.bucket_name = match[1]
        self._prefix = folder + "/" if folder else ""
        self.url = f"gs://{match[1]}" + (f"/{folder}" if folder else "")
        self._patience = Patience(patience_s, clock, pause, chance)
        self._session = Session(self.url, self.bucket_name, clock)

    @classmethod
    def at(cls, url: str, patience_s: float = 15.0) -> GcsStore:
        """The store that the URL names. ImportError where Google's client is not installed."""
        require_client(url)
        return cls(url, patience_s=patience_s)

    def warm(self) -> None:
        """Load Google's client and find the credentials now (0.3 s), not at the first request. StoreUnavailable."""
        self._hands()

    def close(self) -> None:
        self._session.close()

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
            except Refused as refused:
                if refused.status != 404:
                    raise unavailable(self.url, "read", key, refused) from refused
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
        except Refused as refused:
            if refused.status == 404 and download.generation is not None:
                raise StoreUnavailable(f"{self.url}: {key!r} was replaced while it was read") from None
            if refused.status == 404:
                self._require_bucket(key, refused)
                raise ObjectMissing(key) from None
            if refused.status != 416:  # nothing lies there, past the end
                raise unavailable(self.url, "read", key, refused) from refused

    def stat(self, key: str) -> ObjectInfo:
        check_object_name(key)
        return info_of_blob(self._look(key), key)

    def pages(self, prefix: str, page_size: int = MAX_PAGE) -> Iterator[Page]:
        check_prefix(prefix)
        check_page_size(page_size)
        hands = self._hands()
        url = f"{hands.endpoint}/storage/v1/b/{self.bucket_name}/o"
        try:
            yield from pages(
                self._patience, hands.session.get, url, self._prefix + prefix, len(self._prefix), page_size
            )
        except Refused as refused:
            raise unavailable(self.url, "list", prefix, refused) from refused

    def delete(self, key: str, if_generation: Generation = None) -> bool:
        check_object_name(key)
        condition = condition_of(if_generation)
        if condition == NEVER:
            return self._differs_or_is_gone(key, False)
        blob = self._blob(key)
        try:
            self._patience.ask(lambda timeout: blob.delete(if_generation_match=condition, timeout=timeout, retry=None))
        except Refused as refused:
            if refused.status == 412:
                return self._differs_or_is_gone(key, refused.doubtful)
            if refused.status != 404:
                raise unavailable(self.url, "delete", key, refused) from refused
            self._require_bucket(key, refused)
            return refused.doubtful  # gone by an earlier try, whose answer was lost
        return True

    # --- the bucket -----------------------------------------------------------------------------------------------

    def bucket(self) -> dict[str, Any]:
        """The bucket's facts as storage.v1 names them (BUCKET_FIELDS). StoreUnavailable."""
        return self._ask_bucket("", {"fields": BUCKET_FIELDS})

    def permissions(self, names: Sequence[str]) -> frozenset[str]:
        """Which of these permissions the account holds on the bucket. StoreUnavailable."""
        answer = self._ask_bucket("/iam/testPermissions", {"permissions": list(names)})
        return frozenset(answer.get("permissions", ()))

    def _ask_bucket(self, path: str, query: Mapping[str, Any]) -> dict[str, Any]:
        hands = self._hands()
        url = f"{hands.endpoint}/storage/v1/b/{self.bucket_name}{path}"
        try:
            answer: dict[str, Any] = self._patience.ask(
                lambda timeout: checked(hands.session.get(url, params=query, timeout=timeout)).json()
            )
        except Refused as refused:
            raise unavailable(self.url, "look at", "", refused) from refused
        return answer

    # --- inside ---------------------------------------------------------------------------------------------------

    def _hands(self) -> Hands:
        return self._session.hands()

    def _blob(self, key: str) -> Any:
        return self._hands().bucket.blob(self._prefix + key)

    def _download(self, key: str, generation: str | None) -> Download:
        hands = self._hands()
        url = f"{hands.endpoint}/download/storage/v1/b/{self.bucket_name}/o/{quote(self._prefix + key, safe='')}"
        return Download(self._patience, hands.session.get, url, generation)

    def _look(self, key: str) -> Any:
        """The object as Google's client knows it. ObjectMissing, StoreUnavailable."""
        blob = self._blob(key)
        try:
            self._patience.ask(lambda timeout: blob.reload(timeout=timeout, retry=None))
        except Refused as refused:
            if refused.status != 404:
                raise unavailable(self.url, "read", key, refused) from refused
            self._require_bucket(key, refused)
            raise ObjectMissing(key) from None
        return blob

    def _require_bucket(self, key: str, refused: Refused) -> None:
        """Of a 404: return when it is the object that is not there, StoreUnavailable when it is the bucket."""
        if names_no_object(refused.text):
            return
        next(self.pages(key, 1))  # in other words than those we know: a listing tells the two apart

    def _differs_or_is_gone(self, key: str, doubtful: bool) -> bool:
        """The end of a delete whose condition did not hold: where there is no object to meet it, whether an earlier
        try of ours, whose answer was lost, may have deleted it. PreconditionFailed."""
        try:
            self._look(key)
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
        except Refused as refused:
            if refused.status != 412:
                raise unavailable(self.url, "write", key, refused) from refused
            if refused.doubtful and (ours := self._ours(key, content, if_generation)) is not None:
                return ours
            raise PreconditionFailed(key) from None

    def _send(self, key: str, data: bytes, content: _Content, condition: int | None) -> ObjectInfo:
        def attempt(timeout: tuple[float, float]) -> Any:
            blob = self._blob(key)
            if content.metadata:
                blob.metadata = dict(content.metadata)
            blob.crc32c = content.crc32c  # the store refuses anything else
            blob.upload_from_string(
                data, _TYPE, if_generation_match=condition, timeout=timeout, checksum=None, retry=None
            )
            return blob

        return info_of_blob(self._patience.ask(attempt), key)

    def _send_in_pieces(self, key: str, stream: BinaryIO, content: _Content, condition: int | None) -> ObjectInfo:
        hands = self._hands()
        url = f"{hands.endpoint}/upload/storage/v1/b/{self.bucket_name}/o"
        about = {"name": self._prefix + key, "contentType": _TYPE, "crc32c": content.crc32c}
        upload = ResumableUpload(self._patience, hands.session, url, about, condition)
        return info_of(upload.send(stream, content.size), key)

    def _ours(self, key: str, content: _Content, if_generation: str | None) -> ObjectInfo | None:
        """After a write whose answer was lost met a condition that does not hold any more: the object, if that write
        made it. Its content and metadata are ours, and it is newer than what we had seen."""
        try:
            blob = self._look(key)
        except ObjectMissing:
            return None
        info = info_of_blob(blob, key)
        same = (info.size, blob.crc32c) == (content.size, content.crc32c)
        return info if same and is_ours(info, content.metadata, if_generation) else None
