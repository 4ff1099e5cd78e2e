"""The door of a supervisor on loopback, by the wire table of docs/designs/0027: claims, beats with passes, objects.

It stands in front of any object store. `bucket`: a Cloud Storage past which all content goes (`past` names how to reach
one of its objects); None: the door carries all bytes itself.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

from supervisor.contract import heartbeat
from supervisor.contract.heartbeat import Beat
from supervisor.contract.stores import promise
from tests.cloud.web import Request, Response, WebServer

RUN = "digits-7"
BUCKET_BYTES = 8 << 20  # the most that the door takes where there is a bucket
CODES = {
    "OBJECT_MISSING": 404, "PRECONDITION_FAILED": 412, "PASS_REFUSED": 403, "PASS_EXPIRED": 401, "STORE_FULL": 507,
    "STORE_UNAVAILABLE": 503, "TICKET_USED": 409, "TICKET_EXPIRED": 410, "LAUNCH_OVER": 409, "TICKET_REFUSED": 403,
    "NOT_FOUND": 404, "INVALID_REQUEST": 422, "BODY_TOO_LARGE": 413,
}  # fmt: skip


class Problem(Exception):
    def __init__(self, code: str) -> None:
        super().__init__(code)
        self.code = code


class Past:
    """Content of a bucket goes past the door: objects below `prefix` of one Cloud Storage."""

    def __init__(self, storage_url: str, bucket: str, prefix: str) -> None:
        self._url, self._bucket, self._prefix = storage_url, bucket, prefix

    def link(self, info: promise.ObjectInfo) -> str:
        name = quote(self._prefix + info.key, safe="")
        address = f"{self._url}/storage/v1/b/{self._bucket}/o/{name}?alt=media&generation={info.generation}"
        return address + "&proof=signed"

    def session(self, about: Mapping[str, Any]) -> str:
        """Begin an upload, as the supervisor's own account does."""
        from supervisor.agent.store.httpclient import HttpClient
        from supervisor.agent.store.httpclient import Request as Sent

        generation = about["if_generation"]
        condition = "" if generation is None else f"&ifGenerationMatch={generation}"
        path = f"/upload/storage/v1/b/{self._bucket}/o?uploadType=resumable{condition}"
        named = json.dumps({"name": self._prefix + about["key"], "metadata": about["metadata"]}).encode()
        headers = {"Content-Type": "application/json", "X-Upload-Content-Length": str(about["size"])}
        client = HttpClient(self._url)
        answer = client.call(Sent("POST", path, named, headers))
        client.close()
        if answer.status == 412:
            raise Problem("PRECONDITION_FAILED")
        return answer.headers["location"]


class DoorFake:
    """`url`: of the supervisor. `tickets`: ticket -> the claimant that has used it, "" = nobody. `job`, `secrets`: what
    a claim gives. `archive`: the agent's. `everything`: other keys than those of the run too."""

    def __init__(
        self, store: promise.ObjectStore, run_id: str = RUN, *, past: Past | None = None, everything: bool = False
    ) -> None:
        self.store, self.run_id, self.past, self.everything = store, run_id, past, everything
        self.archive = b""
        self.job: dict[str, Any] = {}
        self.secrets: dict[str, str] = {}
        self.tickets: dict[str, str] = {"ticket-1": ""}
        self.expired: set[str] = set()  # tickets
        self.over = False  # the launch
        self.pass_life_s = 3600.0
        self.beat_status = 200
        self.answer: dict[str, object] = {"next_s": 0.1, "stop": False, "follow_logs": False}
        self.beats: list[Beat] = []
        self.claims: list[dict[str, Any]] = []
        self.requests: list[Request] = []  # without their bodies
        self.trouble: Callable[[Request], Response | None] = lambda request: None  # instead of an answer
        self.denied: str | None = None  # a prefix that cannot be read
        self.passes: set[str] = set()
        self._lock = threading.Lock()
        self._server = WebServer(self._respond)
        self.url = self._server.url

    @property
    def store_url(self) -> str:
        return f"door:{self.url}/v1/door/{self.run_id}"

    def close(self) -> None:
        self._server.close()

    def new_pass(self) -> dict[str, Any]:
        text = "pass-" + secrets.token_hex(8)
        with self._lock:
            self.passes.add(text)
        return {"text": text, "expires_at": time.time() + self.pass_life_s}

    def expire_passes(self) -> None:
        with self._lock:
            self.passes.clear()

    def asked(self, method: str, ending: str = "") -> list[Request]:
        return [each for each in self.requests if each.method == method and each.raw_path.endswith(ending)]

    # --- responses ------------------------------------------------------------------------------------------------

    def _respond(self, request: Request) -> Response:
        self.requests.append(request)
        instead = self.trouble(request)
        if instead is not None:
            return instead
        try:
            return self._routed(request)
        except Problem as problem:
            return self._problem(problem.code)
        except promise.ObjectMissing:
            return self._problem("OBJECT_MISSING")
        except promise.PreconditionFailed:
            return self._problem("PRECONDITION_FAILED")
        except promise.StoreFull:
            return self._problem("STORE_FULL")
        except promise.StoreUnavailable:
            return self._problem("STORE_UNAVAILABLE")
        except ValueError:
            return self._problem("INVALID_REQUEST")

    def _problem(self, code: str) -> Response:
        body = {"type": f"urn:spot-supervisor:problem:{code}", "title": code.lower(), "status": CODES[code]}
        headers = {"Content-Type": "application/problem+json"}
        return Response(CODES[code], {**body, "detail": f"the door says {code}", "code": code}, headers)

    def _routed(self, request: Request) -> Response:
        path = request.path.removeprefix("/v1/")
        if path == "door/agent.pyz":
            return Response(200, self.archive)
        if path == "claims":
            return self._claim(request.json())
        if path == f"runs/{self.run_id}/heartbeat":
            return self._beat(request)
        base = f"door/{self.run_id}/"
        if not path.startswith("door/"):
            raise Problem("NOT_FOUND")
        self._check_pass(request)
        if not path.startswith(base):
            raise Problem("PASS_REFUSED")
        if path == base + "objects":
            return self._list(request)
        if path == base + "uploads":
            about = request.json()
            self._check_key(about["key"], writes=True)
            return Response(200, {"url": None if self.past is None else self.past.session(about)})
        return self._object(request, path.removeprefix(base + "objects/"))

    def _check_pass(self, request: Request) -> None:
        text = request.headers.get("authorization", "").removeprefix("Bearer ")
        if not text.startswith("pass-"):
            raise Problem("PASS_REFUSED")
        if text not in self.passes:
            raise Problem("PASS_EXPIRED")

    def _check_key(self, key: str, writes: bool = False) -> None:
        if self.denied is not None and key.startswith(self.denied):
            raise Problem("STORE_UNAVAILABLE")
        own = (f"runs/{self.run_id}/", f"beats/{self.run_id}", *(() if writes else ("code/",)))
        if not self.everything and not key.startswith(own):
            raise Problem("PASS_REFUSED")

    def _claim(self, asked: dict[str, Any]) -> Response:
        ticket, claimant = asked["ticket"], asked["claimant"]
        with self._lock:
            self.claims.append(asked)
            if ticket not in self.tickets:
                raise Problem("TICKET_REFUSED")
            if self.tickets[ticket] not in ("", claimant):
                raise Problem("TICKET_USED")
            if ticket in self.expired and not self.tickets[ticket]:
                raise Problem("TICKET_EXPIRED")
            if self.over:
                raise Problem("LAUNCH_OVER")
            self.tickets[ticket] = claimant
        job = {**self.job, "store_url": self.store_url, "server_url": self.url}
        answer = {"run_id": self.run_id, "launch_id": job.get("launch_id"), "job": job, "secrets": self.secrets}
        return Response(200, {**answer, "pass": self.new_pass(), "door": f"{self.url}/v1/door"})

    def _beat(self, request: Request) -> Response:
        if self.beat_status != 200:
            return Response(self.beat_status, {})
        self.beats.append(heartbeat.parse(request.body))
        more = {"pass": self.new_pass()} if request.one("pass") == "1" else {}
        return Response(200, {**self.answer, **more}, {"Connection": "close"})  # as a real server confirms it

    def _list(self, request: Request) -> Response:
        prefix, after = request.one("prefix") or "", request.one("after") or ""
        limit = int(request.one("limit") or promise.MAX_PAGE)
        self._check_key(prefix)
        promise.check_page_size(limit)
        infos: list[promise.ObjectInfo] = []
        server_time = time.time()
        for page in self.store.pages(prefix):
            infos += [info for info in page.objects if info.key.encode() > after.encode()]
            server_time = page.server_time
            if len(infos) >= limit:
                break
        return Response(200, {"objects": [info._asdict() for info in infos[:limit]], "server_time": server_time})

    def _object(self, request: Request, key: str) -> Response:
        self._check_key(key, writes=request.method not in ("GET", "HEAD"))
        condition = request.headers.get("x-spot-if-generation")
        if request.method == "PUT":
            if self.past is not None and len(request.body) > BUCKET_BYTES:
                raise Problem("BODY_TOO_LARGE")
            metadata = json.loads(request.headers.get("x-spot-metadata") or "{}")
            return Response(200, self.store.put(key, request.body, condition, metadata)._asdict())
        if request.method == "DELETE":
            if not self.store.delete(key, condition):
                raise Problem("OBJECT_MISSING")
            return Response(204)
        if request.method == "HEAD":
            return self._described(self.store.stat(key), Response())
        if self.past is not None:
            info = self.store.stat(key)
            return Response(307, b"", {"Location": self.past.link(info), "X-Spot-Generation": info.generation})
        content, info = self.store.get(key)
        return self._described(info, _part(content, request.headers.get("range")))

    def _described(self, info: promise.ObjectInfo, response: Response) -> Response:
        headers = {
            "X-Spot-Generation": info.generation,
            "X-Spot-Updated": repr(info.updated),
            "X-Spot-Metadata": json.dumps(dict(info.metadata)),
        }
        if response.body is None:
            headers["Content-Length"] = str(info.size)
        return Response(response.status, response.body, {**headers, **response.headers})


def _part(content: bytes, asked: str | None) -> Response:
    if asked is None:
        return Response(200, content)
    first, _, last = asked.removeprefix("bytes=").partition("-")
    start, end = int(first), min(int(last) + 1 if last else len(content), len(content))
    if start >= len(content):
        return Response(416, b"", {"Content-Range": f"bytes */{len(content)}"})
    return Response(206, content[start:end], {"Content-Range": f"bytes {start}-{end - 1}/{len(content)}"})


def sha256(archive: bytes) -> str:
    return hashlib.sha256(archive).hexdigest()
