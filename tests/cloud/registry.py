"""A Docker registry (version 2) on loopback, as far as digests need it: manifests by tag or digest, with HEAD
or GET; tags that move; the Bearer dance of private and public registries.

`challenge`: nothing without a token, which `/token` gives to everybody, or only to those of `accounts` (Basic). A
repository in `hidden` is denied to all.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading

from tests.cloud.web import Request, Response, Watch, WebServer

KIND = "application/vnd.oci.image.index.v1+json"
_MANIFEST = re.compile(r"/v2/(.+)/manifests/([^/]+)")


class RegistryFake:
    """`tells_digest` False: an old registry, which leaves out the header."""

    def __init__(self, watch: Watch | None = None) -> None:
        self.requests: list[tuple[str, str, str]] = []  # method, path, Authorization
        self.challenge = False
        self.accounts: set[str] | None = None  # None: tokens for everybody
        self.hidden: set[str] = set()
        self.tells_digest = True
        self.realm = ""  # "" = our own /token
        self._faults: list[Response | Exception] = []
        self._tags: dict[tuple[str, str], bytes] = {}
        self._tokens: set[str] = set()
        self._lock = threading.Lock()
        self.server = WebServer(self._answer, watch)

    @property
    def url(self) -> str:
        return self.server.url

    @property
    def host(self) -> str:
        """What an image's name begins with."""
        return self.server.host

    def close(self) -> None:
        self.server.close()

    def __enter__(self) -> RegistryFake:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def push(self, repository: str, tag: str, content: str = "one") -> str:
        """The tag names this content from now on; its digest."""
        manifest = json.dumps({"schemaVersion": 2, "mediaType": KIND, "content": content}).encode()
        digest = digest_of(manifest)
        with self._lock:
            self._tags[repository, tag] = self._tags[repository, digest] = manifest
        return digest

    def fail(self, *answers: Response | Exception) -> None:
        """The next requests get these instead: responses, Hang() or Reset()."""
        self._faults += answers

    def _answer(self, request: Request) -> Response:
        header = request.headers.get("authorization", "")
        with self._lock:
            self.requests.append((request.method, request.path, header))
            if self._faults:
                fault = self._faults.pop(0)
                if isinstance(fault, Exception):
                    raise fault
                return fault
            if request.path == "/token":
                return self._token(header)
            return self._manifest(request, header)

    def _token(self, header: str) -> Response:
        if self.accounts is not None:
            given = base64.b64decode(header.removeprefix("Basic ")).decode() if header else ""
            if given not in self.accounts:
                return _refused(401, "UNAUTHORIZED")
        token = f"registry-token-{len(self._tokens) + 1}"
        self._tokens.add(token)
        return Response(200, {"token": token, "expires_in": 300})

    def _manifest(self, request: Request, header: str) -> Response:
        found = _MANIFEST.fullmatch(request.path)
        if found is None or request.method not in ("GET", "HEAD"):
            return _refused(404, "UNSUPPORTED")
        repository, tag = found.groups()
        if self.challenge and header.removeprefix("Bearer ") not in self._tokens:
            realm = self.realm or f"{self.url}/token"
            told = f'Bearer realm="{realm}",service="fake",scope="repository:{repository}:pull"'
            return _refused(401, "UNAUTHORIZED", {"WWW-Authenticate": told})
        if repository in self.hidden:
            return _refused(403, "DENIED")
        manifest = self._tags.get((repository, tag))
        if manifest is None or KIND not in request.headers.get("accept", ""):
            return _refused(404, "MANIFEST_UNKNOWN")
        headers = {"Content-Type": KIND}
        if self.tells_digest:
            headers["Docker-Content-Digest"] = digest_of(manifest)
        return Response(200, manifest, headers)


def digest_of(manifest: bytes) -> str:
    return f"sha256:{hashlib.sha256(manifest).hexdigest()}"


def _refused(status: int, code: str, headers: dict[str, str] | None = None) -> Response:
    return Response(status, {"errors": [{"code": code, "message": code.lower()}]}, headers or {})
