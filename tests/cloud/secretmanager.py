"""Secret Manager's one method that a machine needs: `projects/P/secrets/S/versions/V:access`.

Errors as in Google's services: 401 without a token, 403 where the account may not read (or the secret is not
there to be seen), 404 for a version that is not there, 400 for one that is disabled or destroyed.
"""

from __future__ import annotations

import base64
import re
import threading
import time
from collections.abc import Callable, Sequence

import google_crc32c

from tests.cloud.web import Request, Response, Watch, WebServer

_ACCESS = re.compile(r"/v1/projects/([^/]+)/secrets/([^/]+)/versions/([^/]+):access")


class SecretManagerFake:
    """`authorize` says whether an Authorization header is honoured: a MetadataFake's `accepts`; None = any is."""

    def __init__(
        self,
        clock: Callable[[], float] = time.time,
        watch: Watch | None = None,
        authorize: Callable[[str | None], bool] | None = None,
    ) -> None:
        self.authorize = authorize
        self.requests: list[str] = []
        self._clock = clock
        self._lock = threading.Lock()
        self._versions: dict[tuple[str, str], list[bytes | None]] = {}  # None = disabled
        self._denied: set[tuple[str, str]] = set()
        self._faults: list[Response | Exception] = []
        self.server = WebServer(self._answer, watch)

    @property
    def url(self) -> str:
        return self.server.url

    def close(self) -> None:
        self.server.close()

    def __enter__(self) -> SecretManagerFake:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(self, project: str, secret: str, value: str | bytes) -> str:
        """A new version; returns the reference of the run spec, `gcp:projects/…/versions/N`."""
        data = value.encode() if isinstance(value, str) else value
        with self._lock:
            versions = self._versions.setdefault((project, secret), [])
            versions.append(data)
            return f"gcp:projects/{project}/secrets/{secret}/versions/{len(versions)}"

    def disable(self, project: str, secret: str, version: int) -> None:
        with self._lock:
            self._versions[project, secret][version - 1] = None

    def deny(self, project: str, secret: str) -> None:
        """The machine's account may not read it."""
        self._denied.add((project, secret))

    def allow(self, project: str, secret: str) -> None:
        self._denied.discard((project, secret))

    def fail(self, *answers: Response | Exception) -> None:
        """The next requests get these instead: responses, Hang() or Reset()."""
        self._faults += answers

    def _answer(self, request: Request) -> Response:
        self.requests.append(request.path)
        if self._faults:
            fault = self._faults.pop(0)
            if isinstance(fault, Exception):
                raise fault
            return fault
        header = request.headers.get("authorization")
        if not header or (self.authorize is not None and not self.authorize(header)):
            return refusal(401, "UNAUTHENTICATED", "Request had invalid authentication credentials.")
        found = _ACCESS.fullmatch(request.path)
        if found is None or request.method != "GET":
            return Response(404, b"<title>Error 404 (Not Found)!!1</title>", {"Content-Type": "text/html"})
        with self._lock:
            return self._accessed(*found.groups())

    def _accessed(self, project: str, secret: str, version: str) -> Response:
        versions = self._versions.get((project, secret))
        if versions is None or (project, secret) in self._denied:
            name = f"projects/{project}/secrets/{secret}/versions/{version}"
            text = f"Permission 'secretmanager.versions.access' denied for resource '{name}' (or it may not exist)."
            return refusal(403, "PERMISSION_DENIED", text)
        number = _number(version, versions)
        name = f"projects/424242424242/secrets/{secret}/versions/{number}"
        if not 0 < number <= len(versions):
            return refusal(404, "NOT_FOUND", f"Secret Version [{name}] not found.")
        data = versions[number - 1]
        if data is None:
            return refusal(400, "FAILED_PRECONDITION", f"Secret Version [{name}] is in DISABLED state.")
        payload = {"data": base64.b64encode(data).decode(), "dataCrc32c": str(google_crc32c.value(data))}
        return Response(200, {"name": name, "payload": payload})


def _number(version: str, versions: Sequence[bytes | None]) -> int:
    """`latest` is the last one that was made, disabled or not; 0 for a text that is not a version."""
    if version == "latest":
        return len(versions)
    return int(version) if version.isdigit() else 0


def refusal(status: int, word: str, text: str) -> Response:
    return Response(status, {"error": {"code": status, "message": text, "status": word}})
