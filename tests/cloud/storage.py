"""A Cloud Storage on loopback: the JSON API (storage.v1) as the official client and the agent use it.

Strongly consistent, with generations; every write, read and listing is done under one lock. What goes wrong in a real
store is asked for by name: see `trouble`, `deny`, `expire`, `break_upload` and `write_limit`. Written to the documented
semantics, not to what one client needs.
"""

from __future__ import annotations

import base64
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from tests.cloud import storage_answers as answers
from tests.cloud import storage_requests as asked
from tests.cloud import storage_signed as signed
from tests.cloud.storage_objects import Bucket, Conditions, Refusal, Stored
from tests.cloud.storage_troubles import Troubles
from tests.cloud.storage_uploads import Session, Sessions, Upload
from tests.cloud.web import Request, Response, Watch, WebServer

MAX_PAGE = 1000
_WRITES = {"storage.objects.insert": "create", "storage.objects.delete": "delete", "storage.objects.patch": "update"}
_PERMISSIONS = {name: name for name in ("storage.objects.get", "storage.objects.list", "storage.buckets.get")}
_PERMISSIONS |= {method: f"storage.objects.{what}" for method, what in _WRITES.items()}


class StorageFake(Troubles):
    """`url` is what STORAGE_EMULATOR_HOST is set to. `requests`: all that came, without their bodies; `counts`: how
    often each method of the API was called, by its name in the discovery document (storage.objects.list ...)."""

    def __init__(self, clock: Callable[[], float] = time.time, watch: Watch | None = None) -> None:
        super().__init__()
        self.clock = clock
        self.write_limit = False  # True: 429 for more than one write per second of one object
        self.requests: list[Request] = []
        self.counts: Counter[str] = Counter()
        self._buckets: dict[str, Bucket] = {}
        self._sessions = Sessions()
        self._written: dict[tuple[str, str], float] = {}
        self._lock = threading.RLock()
        self.server = WebServer(self._answer, watch)
        self.url = self.server.url

    def close(self) -> None:
        self.server.close()

    # --- what a test does beside the API --------------------------------------------------------------------------

    def make_bucket(self, name: str) -> None:
        with self._lock:
            self._buckets.setdefault(name, Bucket(name, self.clock()))

    def describe(self, name: str, **facts: Any) -> None:
        """What the bucket says of itself, in the API's words, where it differs from the usual."""
        with self._lock:
            self._buckets[name].facts |= facts

    def drop_bucket(self, name: str) -> None:
        with self._lock:
            del self._buckets[name]

    def put(self, bucket: str, name: str, data: bytes, metadata: dict[str, str] | None = None) -> Stored:
        """An object of another writer; no condition, no limit."""
        with self._lock:
            return self._buckets[bucket].insert(name, data, self.clock(), Conditions(), metadata=metadata or {})

    def fill(self, bucket: str, objects: Iterable[tuple[str, bytes, dict[str, str]]]) -> None:
        """Many at once: (name, data, metadata)."""
        for name, data, metadata in objects:
            self.put(bucket, name, data, metadata)

    def find(self, bucket: str, name: str) -> Stored | None:
        with self._lock:
            found = self._buckets.get(bucket)
            return None if found is None else found.objects.get(name)

    def names(self, bucket: str, prefix: str = "") -> list[str]:
        with self._lock:
            return [name.decode() for name in self._buckets[bucket].names(prefix)]

    def remove(self, bucket: str, name: str) -> None:
        with self._lock:
            self._buckets[bucket].delete(name, Conditions())

    def damage(self, bucket: str, name: str, data: bytes) -> None:
        """The stored bytes change under their checksums."""
        with self._lock:
            objects = self._buckets[bucket].objects
            objects[name] = replace(objects[name], data=data)

    def break_upload(self, after_bytes: int) -> None:
        """Of the next piece of a resumable upload this much arrives (in steps of 256 KiB), then the line breaks."""
        with self._lock:
            self._sessions.break_after = after_bytes

    def forget_uploads(self) -> None:
        """Every session is gone, as after a week."""
        with self._lock:
            self._sessions.open.clear()

    # --- the API --------------------------------------------------------------------------------------------------

    def _answer(self, request: Request) -> Response:
        now = self.clock()
        try:
            with self._lock:
                self.requests.append(replace(request, body=b""))
            if signed.is_signed(request):
                return replace(self._signed(request, now), date=now)
            method, bucket, name = asked.route(request)
            with self._lock:
                self.counts[method] += 1
            trouble = self.trouble_with(request, method)
            self.check_token(request)
            if trouble is not None and not trouble.after:
                return replace(trouble.instead(request, None), date=now)
            with self._lock:
                response = self._do(request, method, bucket, name)
            if trouble is not None:
                response = trouble.instead(request, response)
        except Refusal as refusal:
            response = answers.error(refusal, request)
        return replace(response, date=now)

    def _signed(self, request: Request, now: float) -> Response:
        """The signature stands for an account that may read; its 400 and 403 are those of a download."""
        signed.check(request, now)
        bucket, _, name = request.path.lstrip("/").partition("/")
        with self._lock:
            found = self._bucket(bucket).get(name, asked.number(request, "generation"))
            return answers.media(found, request.headers.get("range"))

    def _do(self, request: Request, method: str, bucket: str, name: str) -> Response:
        if method == "storage.buckets.testIamPermissions":
            return self._test_permissions(request, bucket)
        if method != "storage.objects.insert":  # its name may be in the body: see _store
            self.check_allowed(_PERMISSIONS[method], f"{bucket}/{name}", request.one("prefix"))
        self._bucket(bucket)
        if method in _WRITES and request.method != "POST":
            self._check_pace(bucket, name)
        return {
            "storage.buckets.get": self._get_bucket,
            "storage.objects.list": self._list,
            "storage.objects.get": self._get,
            "storage.objects.insert": self._insert,
            "storage.objects.patch": self._patch,
            "storage.objects.delete": self._delete,
        }[method](request, bucket, name)

    def _bucket(self, name: str) -> Bucket:
        if name not in self._buckets:
            raise Refusal(404, "notFound", "The specified bucket does not exist.")
        return self._buckets[name]

    def _get_bucket(self, request: Request, bucket: str, _: str) -> Response:
        return _json(request, answers.bucket_resource(self._bucket(bucket), self.url))

    def _test_permissions(self, request: Request, bucket: str) -> Response:
        self._bucket(bucket)
        held = [name for name in request.query.get("permissions", []) if self.is_allowed(name)]
        body: dict[str, Any] = {"kind": "storage#testIamPermissionsResponse"}
        return _json(request, body | ({"permissions": held} if held else {}))

    def _get(self, request: Request, bucket: str, name: str) -> Response:
        found = self._bucket(bucket).get(name, asked.number(request, "generation"))
        asked.conditions(request).check_read(found)
        if request.one("alt") == "media":
            return answers.media(found, request.headers.get("range"))
        return self._object(request, found)

    def _patch(self, request: Request, bucket: str, name: str) -> Response:
        body = request.json() or {}
        if "metadata" not in body:
            return self._object(request, self._bucket(bucket).get(name))
        changed = self._bucket(bucket).patch(name, body["metadata"], self.clock(), asked.conditions(request))
        return self._object(request, changed)

    def _delete(self, request: Request, bucket: str, name: str) -> Response:
        self._bucket(bucket).delete(name, asked.conditions(request), asked.number(request, "generation"))
        return Response(204)

    def _list(self, request: Request, bucket: str, _: str) -> Response:
        mask = answers.parse_fields(request.one("fields") or "")
        answers.check_known(mask, answers.LIST_FIELDS)
        answers.check_known(mask.get("items", {}), answers.OBJECT_FIELDS)
        items, prefixes, token = self._page(request, self._bucket(bucket))
        body: dict[str, Any] = {"kind": "storage#objects"}
        if items:
            inner = mask.get("items", {})
            body["items"] = [answers.resource(item, self.url, inner) for item in items]
        if prefixes:
            body["prefixes"] = prefixes
        if token is not None:
            body["nextPageToken"] = base64.urlsafe_b64encode(token).decode()
        return Response(200, {name: body[name] for name in body if not mask or name in mask or "*" in mask})

    def _page(self, request: Request, bucket: Bucket) -> tuple[list[Stored], list[str], bytes | None]:
        """Objects, folders (with a delimiter) and where the next page begins, None at the end."""
        prefix, delimiter = request.one("prefix") or "", request.one("delimiter") or ""
        room = min(asked.number(request, "maxResults") or MAX_PAGE, MAX_PAGE)
        end = (request.one("endOffset") or "").encode()
        items: list[Stored] = []
        folders: list[str] = []
        for raw in bucket.names(prefix, max(asked.token(request), (request.one("startOffset") or "").encode())):
            name = raw.decode()
            if end and raw >= end:
                break
            folder, cut, _ = name[len(prefix) :].partition(delimiter) if delimiter else ("", "", "")
            if cut and prefix + folder + cut in folders:
                continue
            if len(items) + len(folders) == room:
                return items, folders, raw
            if cut:
                folders.append(prefix + folder + cut)
            else:
                items.append(bucket.objects[name])
        return items, folders, None

    def _insert(self, request: Request, bucket: str, _: str) -> Response:
        if request.one("upload_id") is not None:
            return self._resume(request)
        kind = request.one("uploadType")
        about, content_type, data = asked.sent(request, kind)
        name = request.one("name") or about.get("name", "")
        content_type = about.get("contentType") or content_type
        upload = Upload(bucket, name, asked.conditions(request), about, content_type, data)
        if kind != "resumable":
            upload.check_hashes(request.headers.get("x-goog-hash", ""))
            return self._object(request, self._store(upload))
        self._may_write(upload)
        upload.conditions.check(self._bucket(bucket).objects.get(name))
        session = self._sessions.begin(upload, request.headers.get("x-upload-content-length"))
        where = f"{self.url}/upload/storage/v1/b/{bucket}/o?uploadType=resumable&upload_id={session}"
        return Response(200, b"", {"Location": where, "X-GUploader-UploadID": session})

    def _resume(self, request: Request) -> Response:
        session = self._sessions.session(request)
        if request.method == "DELETE":
            del self._sessions.open[request.one("upload_id") or ""]
            return Response(499, b"")
        if session.done is None:
            if (answer := self._sessions.receive(session, request)) is not None:
                return answer
            self._finish(session, request)
        return self._object(request, session.done)

    def _finish(self, session: Session, request: Request) -> None:
        session.upload.data = bytes(session.arrived)
        session.upload.check_hashes(request.headers.get("x-goog-hash", ""))
        session.done = self._store(session.upload)

    def _may_write(self, upload: Upload) -> None:
        """Who replaces an object must be allowed to delete it."""
        where = f"{upload.bucket}/{upload.name}"
        self.check_allowed("storage.objects.create", where, None)
        if upload.name in self._bucket(upload.bucket).objects:
            self.check_allowed("storage.objects.delete", where, None)

    def _store(self, upload: Upload) -> Stored:
        self._may_write(upload)
        self._check_pace(upload.bucket, upload.name)
        return self._bucket(upload.bucket).insert(
            upload.name, upload.data, self.clock(), upload.conditions, upload.content_type,
            upload.about.get("metadata") or {},
        )  # fmt: skip

    def _check_pace(self, bucket: str, name: str) -> None:
        now = self.clock()
        if self.write_limit and now - self._written.get((bucket, name), now - 1.0) < 1.0:
            text = f"The object {bucket}/{name} exceeded the rate limit for object mutation operations."
            raise Refusal(429, "rateLimitExceeded", text, domain="usageLimits")
        self._written[bucket, name] = now

    def _object(self, request: Request, stored: Stored) -> Response:
        return _json(request, answers.resource(stored, self.url))


def _json(request: Request, body: Any) -> Response:
    return Response(200, answers.masked(body, answers.parse_fields(request.one("fields") or "")))
