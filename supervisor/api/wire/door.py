"""The outer door, in front of every route: names, origins, sizes, request ids, counts, and the last net for errors.

The API starts commands for whoever it lets in. Beside what a token can keep out there is the user's own browser: a name
that is not this supervisor's (DNS rebinding) and a page of another site are turned away here. Plain ASGI, because
every beat goes through it.
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

from supervisor.api.errors import (
    BodyTooLarge,
    HeadTooLarge,
    HostRefused,
    InvalidHttp,
    OriginRefused,
    problem,
    problem_of,
)
from supervisor.api.wire.connection import HEAD_MAX_BYTES
from supervisor.contract.bundle import MAX_GZIP_BYTES
from supervisor.domain.errors import SpotError
from supervisor.telemetry import logs as telemetry
from supervisor.telemetry import metrics

LOG = logging.getLogger(__name__)
BODY_MAX_BYTES = 1_000_000
LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
VERSIONS = frozenset({"1.0", "1.1"})
# Headers that say who sends a request, from where, and how its body is read.
ONCE = frozenset((b"authorization", b"content-encoding", b"content-type", b"cookie", b"origin", b"sec-fetch-site"))
METHODS = SAFE | {"POST", "PUT", "PATCH", "DELETE"}
_LOOPBACK_NUMBER = re.compile(r"127\.\d{1,3}\.\d{1,3}\.\d{1,3}\Z")  # a number is no name that could be rebound
_BEAT_PATH = re.compile(r"/v1/runs/[^/]+/heartbeat\Z")
_PORT = re.compile(r":\d{0,5}\Z")
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}\Z")


@dataclass(slots=True)
class _Seen:
    """One request: when it came, and what was answered after how long. `status` 0: nothing yet."""

    began: float
    status: int = 0
    took_s: float = 0.0


class Door:
    """`hosts`: names under which this server may be called, without port. `beat_host`: one more, for beats only: they
    carry the nonce of their try, and nothing else that comes from outside does."""

    def __init__(self, app: ASGIApp, hosts: Collection[str] = LOOPBACK, beat_host: str = "") -> None:
        self._app, self._hosts, self._beat_host = app, frozenset(hosts), beat_host

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers: dict[bytes, bytes] = dict(scope["headers"])
        request_id = scope["spot_request_id"] = _request_id(headers)
        seen = _Seen(time.perf_counter())

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                seen.status, seen.took_s = message["status"], time.perf_counter() - seen.began
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", request_id.encode())]
            await send(message)

        begun = telemetry.begin_request(request_id)
        try:
            await self._handle(scope, receive, answer, headers, seen)
        finally:
            _count(scope, seen)
            telemetry.end_request(begun)

    async def _handle(
        self, scope: Scope, receive: Receive, answer: Send, headers: Mapping[bytes, bytes], seen: _Seen
    ) -> None:
        try:
            self._admit(scope, headers)
            await self._app(scope, _bounded(headers, receive, _most_bytes(scope)), answer)
        except ClientDisconnect:
            return  # nobody is left to answer
        except Exception as error:
            # The last net: a bug must become a 500 with an id in the log, not a lost client.
            if seen.status:
                raise
            refusal, request_id = _cause(error), scope["spot_request_id"]
            if refusal is None:
                LOG.exception("A request failed.", extra=_fields(scope, request_id))
                detail = "An unforeseen error; the supervisor's log has it under this request id."
                response = problem("INTERNAL", detail, scope["path"], request_id)
            else:
                response = problem_of(refusal, scope["path"], request_id)
                if isinstance(refusal, InvalidHttp):
                    response.headers["Connection"] = "close"
            await response(scope, receive, answer)

    def _admit(self, scope: Scope, headers: Mapping[bytes, bytes]) -> None:
        _refuse_head(scope, headers)
        host = headers.get(b"host", b"").decode("latin-1").lower()
        name = _PORT.sub("", host)
        known = name in self._hosts or _LOOPBACK_NUMBER.match(name) or self._is_beat(scope, name)
        if not known:
            raise HostRefused("This server answers to its own names only; the setting allowed_hosts has them.")
        if scope["method"] in SAFE:
            return
        if headers.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin"):
            raise OriginRefused("Sent by a page of another site.")
        origin = headers.get(b"origin")
        if origin is not None and origin.decode("latin-1").lower().partition("://")[2] != host:
            raise OriginRefused("Sent by a page of another site.")

    def _is_beat(self, scope: Scope, name: str) -> bool:
        return (
            name == self._beat_host
            and name != ""
            and scope["method"] == "POST"
            and bool(_BEAT_PATH.match(scope["path"]))
        )


def _request_id(headers: Mapping[bytes, bytes]) -> str:
    given = headers.get(b"x-request-id", b"")
    return given.decode() if _REQUEST_ID.match(given) else secrets.token_hex(8)


def _refuse_head(scope: Scope, headers: Mapping[bytes, bytes]) -> None:
    """Raises HeadTooLarge; InvalidHttp for what is not spoken here, and where a proxy in front may have seen the body
    end somewhere else (RFC 9112, section 6.3)."""
    size = len(scope.get("raw_path", b"")) + len(scope["query_string"])
    if size + sum(len(name) + len(value) for name, value in scope["headers"]) > HEAD_MAX_BYTES:
        raise HeadTooLarge(
            f"Address and headers are larger than {HEAD_MAX_BYTES} bytes.", {"max_bytes": HEAD_MAX_BYTES}
        )
    if scope["http_version"] not in VERSIONS:
        raise InvalidHttp("This speaks HTTP/1.1.")
    if b"transfer-encoding" in headers and b"content-length" in headers:
        raise InvalidHttp("The length of the body is told twice.")
    names = [name for name, _ in scope["headers"] if name in ONCE]
    if len(names) > len(set(names)):
        raise InvalidHttp("A header that may be given once is given twice.")


def _most_bytes(scope: Scope) -> int:
    """Of a body. Bundles go to a file, piece by piece; everything else is held in memory."""
    bundle = scope["method"] == "PUT" and scope["path"].startswith("/v1/code/")
    return MAX_GZIP_BYTES if bundle else BODY_MAX_BYTES


def _bounded(headers: Mapping[bytes, bytes], receive: Receive, most_bytes: int) -> Receive:
    """`receive` that raises BodyTooLarge; the announced length is believed only where it refuses."""
    announced = headers.get(b"content-length", b"0")
    if not announced.isdigit() or len(announced) > 12 or int(announced) > most_bytes:
        raise _too_large(most_bytes)
    seen = 0

    async def bounded() -> Message:
        nonlocal seen
        message = await receive()
        seen += len(message.get("body", b""))
        if seen > most_bytes:
            raise _too_large(most_bytes)
        return message

    return bounded


def _too_large(most_bytes: int) -> BodyTooLarge:
    return BodyTooLarge(f"The body is larger than {most_bytes} bytes.", {"max_bytes": most_bytes})


def _cause(error: Exception) -> SpotError | None:
    """A framework may wrap what `receive` raised."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, SpotError):
            return cause
        cause = cause.__cause__ or cause.__context__
    return None


def _count(scope: Scope, seen: _Seen) -> None:
    """By the operation that the address stands for, never by the address. A stream counts when it is over; its seconds
    are those until it began, so that one that stays open for a day looks like what it was."""
    operation = getattr(scope.get("route"), "name", "none")
    method = scope["method"] if scope["method"] in METHODS else "other"
    status = f"{seen.status // 100}xx" if seen.status else "unanswered"
    metrics.REQUESTS.add(operation, method, status)
    if seen.status:
        metrics.REQUEST_S.observe(seen.took_s, operation)
    if LOG.isEnabledFor(logging.DEBUG):
        told = {telemetry.OPERATION: operation, telemetry.STATUS: seen.status, telemetry.METHOD: method}
        LOG.debug("answered", extra={telemetry.ACTION: "request", **told, telemetry.DURATION_S: round(seen.took_s, 6)})


def _fields(scope: Scope, request_id: str) -> dict[str, str]:
    return {
        telemetry.ACTION: "request_failed",
        telemetry.REQUEST_ID: request_id,
        telemetry.METHOD: scope["method"],
        telemetry.PATH: scope["path"],
    }
