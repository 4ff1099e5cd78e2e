"""What every request passes before its route: host names, origins, sizes, request ids, counts, unexpected errors; HEAD.

The API starts commands for its callers. A token does not protect against the user's own browser: a host name that is
not this supervisor's (DNS rebinding) and a page of another site are refused here. Plain ASGI, because every beat passes
it.

HEAD works wherever GET does: the same headers, and no body (RFC 9110, section 9.3.2). The framework knows HEAD only
where a route names it. Here such a request is routed as its GET, and everything after its headers is dropped; a
response without an end, such as a stream of events, sees its client disconnect.
"""

from __future__ import annotations

import logging
import re
import secrets
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from supervisor.api.errors import BodyTooLarge, HeadTooLarge, HostRefused, InvalidHttp, OriginRefused, problem
from supervisor.api.wire.connection import HEAD_MAX_BYTES
from supervisor.contract.bundle import MAX_GZIP_BYTES
from supervisor.domain.errors import SpotError
from supervisor.telemetry import logs as telemetry
from supervisor.telemetry import metrics

LOG = logging.getLogger(__name__)
BODY_MAX_BYTES = 1_000_000
OBJECT_MAX_BYTES = 999_999_999_999  # the longest length that is read
CLAIMS, CLAIM_MAX_BYTES = "/v1/claims", 16 * 1024
LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
VERSIONS = frozenset({"1.0", "1.1"})
# Headers that say who sends a request, from where, and how its body is read.
SINGLE = frozenset((b"authorization", b"content-encoding", b"content-type", b"cookie", b"origin", b"sec-fetch-site"))
METHODS = SAFE | {"POST", "PUT", "PATCH", "DELETE"}
_LOOPBACK_NUMBER = re.compile(r"127\.\d{1,3}\.\d{1,3}\.\d{1,3}\Z")  # a number cannot be rebound
_BUNDLE_PATH = re.compile(r"/v1/(runs/[^/]+/)?code/")
# What machines send from outside, beside nothing else: beats, claims, and whatever carries a pass.
_MACHINE_PATH = re.compile(r"/v1/runs/[^/]+/heartbeat\Z|/v1/claims\Z|/v1/door/")
_OBJECT_PATH = re.compile(r"/v1/door/[^/]+/objects/")
_PORT = re.compile(r":\d{0,5}\Z")
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}\Z")


Paths = Collection[tuple[re.Pattern[str], Collection[str]]]  # of each route: its path and its methods


@dataclass(slots=True)
class _Exchange:
    """One request and its response. `status` 0: no response yet."""

    began: float
    status: int = 0
    took_s: float = 0.0


class Admission:
    """`hosts`: names of this server, without port. `beat_host`: one more name, for machines only: of all requests from
    outside only theirs carry a nonce, a ticket or a pass of their launch."""

    def __init__(self, app: ASGIApp, hosts: Collection[str] = LOOPBACK, beat_host: str = "") -> None:
        self._app, self._hosts, self._beat_host = app, frozenset(hosts), beat_host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers: dict[bytes, bytes] = dict(scope["headers"])
        request_id = scope["spot_request_id"] = _request_id(headers)
        exchange = _Exchange(time.perf_counter())

        async def respond(message: Message) -> None:
            if message["type"] == "http.response.start":
                exchange.status, exchange.took_s = message["status"], time.perf_counter() - exchange.began
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id.encode())]
            await send(message)

        begun = telemetry.begin_request(request_id)
        try:
            await self._handle(scope, receive, respond, headers, exchange)
        finally:
            _count(scope, exchange)
            telemetry.end_request(begun)

    async def _handle(
        self, scope: Scope, receive: Receive, send: Send, headers: Mapping[bytes, bytes], exchange: _Exchange
    ) -> None:
        try:
            self._admit(scope, headers)
            await self._app(scope, _bounded(headers, receive, _max_bytes(scope)), send)
        except ClientDisconnect:
            return  # no client is left
        except Exception as error:
            # A bug must become a 500 with an id in the log, not a lost connection.
            if exchange.status:
                raise
            refusal, request_id = _cause(error), scope["spot_request_id"]
            if refusal is None:
                LOG.exception("A request failed.", extra=_fields(scope, request_id))
                refusal = SpotError("An unexpected error. The supervisor's log has it under this request id.")
            response = problem(refusal, scope["path"], request_id)
            if isinstance(refusal, InvalidHttp):
                response.headers["Connection"] = "close"
            await response(scope, receive, send)

    def _admit(self, scope: Scope, headers: Mapping[bytes, bytes]) -> None:
        _refuse_head(scope, headers)
        host = headers.get(b"host", b"").decode("latin-1").lower()
        name = _PORT.sub("", host)
        if not (name in self._hosts or _LOOPBACK_NUMBER.match(name) or self._is_machine(scope, name)):
            raise HostRefused("This server responds to its own names only. The setting allowed_hosts has them.")
        if scope["method"] in SAFE:
            return
        if headers.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin"):
            raise OriginRefused("Sent by a page of another site.")
        origin = headers.get(b"origin")
        if origin is not None and origin.decode("latin-1").lower().partition("://")[2] != host:
            raise OriginRefused("Sent by a page of another site.")

    def _is_machine(self, scope: Scope, name: str) -> bool:
        path = scope["path"]
        is_sent = scope["method"] == "POST" or path.startswith("/v1/door/")
        return name == self._beat_host and name != "" and is_sent and bool(_MACHINE_PATH.match(path))


def _request_id(headers: Mapping[bytes, bytes]) -> str:
    given = headers.get(b"x-request-id", b"")
    return given.decode() if _REQUEST_ID.match(given) else secrets.token_hex(8)


def _refuse_head(scope: Scope, headers: Mapping[bytes, bytes]) -> None:
    """Raises HeadTooLarge; InvalidHttp for another protocol, and where a proxy may have read another end of the body
    (RFC 9112, section 6.3)."""
    size = len(scope.get("raw_path", b"")) + len(scope["query_string"])
    if size + sum(len(name) + len(value) for name, value in scope["headers"]) > HEAD_MAX_BYTES:
        raise HeadTooLarge(
            f"Address and headers are larger than {HEAD_MAX_BYTES} bytes.", {"max_bytes": HEAD_MAX_BYTES}
        )
    if scope["http_version"] not in VERSIONS:
        raise InvalidHttp("This server understands HTTP/1.1.")
    if b"transfer-encoding" in headers and b"content-length" in headers:
        raise InvalidHttp("The length of the body is given twice.")
    names = [name for name, _ in scope["headers"] if name in SINGLE]
    if len(names) > len(set(names)):
        raise InvalidHttp("A header that may appear once is given twice.")


def _max_bytes(scope: Scope) -> int:
    """Of a body. Bundles and objects go to a file, piece by piece; every other body is held in memory."""
    path, puts = scope["path"], scope["method"] == "PUT"
    if puts and _OBJECT_PATH.match(path):
        return OBJECT_MAX_BYTES
    if puts and _BUNDLE_PATH.match(path):
        return MAX_GZIP_BYTES
    return CLAIM_MAX_BYTES if path == CLAIMS else BODY_MAX_BYTES


def _bounded(headers: Mapping[bytes, bytes], receive: Receive, max_bytes: int) -> Receive:
    """`receive` that raises BodyTooLarge. The announced length can only refuse a body."""
    announced = headers.get(b"content-length", b"0")
    if not announced.isdigit() or len(announced) > 12 or int(announced) > max_bytes:
        raise _too_large(max_bytes)
    size = 0

    async def bounded() -> Message:
        nonlocal size
        message = await receive()
        size += len(message.get("body", b""))
        if size > max_bytes:
            raise _too_large(max_bytes)
        return message

    return bounded


def _too_large(max_bytes: int) -> BodyTooLarge:
    return BodyTooLarge(f"The body is larger than {max_bytes} bytes.", {"max_bytes": max_bytes})


def _cause(error: Exception) -> SpotError | None:
    """The framework may wrap an error of `receive`."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, SpotError):
            return cause
        cause = cause.__cause__ or cause.__context__
    return None


def _count(scope: Scope, exchange: _Exchange) -> None:
    """By operation, never by address. A stream counts when it is over, with the seconds until its first byte, so that a
    stream of a day does not look like a slow response."""
    operation = getattr(scope.get("route"), "name", "none")
    method = scope["method"] if scope["method"] in METHODS else "other"
    status = f"{exchange.status // 100}xx" if exchange.status else "unanswered"
    metrics.REQUESTS.add(operation, method, status)
    if exchange.status:
        metrics.REQUEST_S.observe(exchange.took_s, operation)
    if LOG.isEnabledFor(logging.DEBUG):
        fields = {telemetry.OPERATION: operation, telemetry.STATUS: exchange.status, telemetry.METHOD: method}
        duration = {telemetry.DURATION_S: round(exchange.took_s, 6)}
        LOG.debug("answered", extra={telemetry.ACTION: "request", **fields, **duration})


def _fields(scope: Scope, request_id: str) -> dict[str, str]:
    return {
        telemetry.ACTION: "request_failed",
        telemetry.REQUEST_ID: request_id,
        telemetry.METHOD: scope["method"],
        telemetry.PATH: scope["path"],
    }


class HeadAsGet:
    """`paths`: of all routes."""

    def __init__(self, app: ASGIApp, paths: Paths) -> None:
        self._app, self._paths = app, paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD" or "HEAD" in methods_of(self._paths, scope["path"]):
            await self._app(scope, receive, send)
            return
        started = False

        async def without_body(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                await send(message)
                await send({"type": "http.response.body", "body": b""})

        async def until_started() -> Message:
            return {"type": "http.disconnect"} if started else await receive()

        as_get = {**scope, "method": "GET"}
        try:
            await self._app(as_get, until_started, without_body)
        finally:
            if "route" in as_get:
                scope["route"] = as_get["route"]  # requests are counted by it


def methods_of(paths: Paths, path: str) -> set[str]:
    """The methods that routes name for this path."""
    return {name for regex, names in paths if regex.match(path) for name in names}


def allow_header(names: Collection[str]) -> str:
    return ", ".join(sorted({*names, *(("HEAD",) if "GET" in names else ())}))
