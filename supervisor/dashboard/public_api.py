"""The public API, called in this process with the token of the user who looks at a page.

A call passes everything that a request from outside passes: middleware, token, scope, owner, rate limit. Nothing here
decides who may do what. A call carries the id of the page's request, so its log lines and events have the same id.

Scripts reach parts of the API itself below /ui/v1 (streams of events, files, logs, series), by GET only. The path is
the one below /v1, the token is the session's, and only the headers in PASSED are passed on. Responses contain texts
from outside and have the origin of our pages: so nothing in them may run, whatever its name is.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from supervisor.dashboard import session

Json = dict[str, Any]
Query = Sequence[tuple[str, str]]

PASSED = ("accept", "if-none-match", "if-range", "last-event-id", "range")
CAGE = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; sandbox",
    "X-Content-Type-Options": "nosniff",
}
SHOWN = ("application/json", "application/problem+json", "text/event-stream", "text/plain")  # other types are saved
_TRICKS = re.compile(r"%2[ef]|%00|//|/\.{1,2}(/|\Z)", re.IGNORECASE)  # in an address as received


class SignInNeeded(Exception):
    """There is no token, or it is not valid."""


class Refused(Exception):
    """The API refused. `problem`: its problem document (RFC 9457)."""

    def __init__(self, status: int, problem: Json) -> None:
        super().__init__(problem.get("detail", ""))
        self.status, self.problem = status, problem

    @property
    def code(self) -> str:
        return str(self.problem.get("code", ""))


@dataclass(slots=True)
class Answer:
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    def json(self) -> Any:
        return json.loads(self.body)


class Api:
    """For one request to the dashboard. `app`: the whole application with its middleware. `token` None = the token of
    the session."""

    def __init__(self, app: ASGIApp, request: Request, token: str | None = None) -> None:
        self.app, self._request = app, request
        self._token = session.token_of(request) if token is None else token

    async def get(self, path: str, query: Query = ()) -> Any:
        """The JSON of a 200. Raises SignInNeeded, Refused."""
        return (await self.call("GET", path, query)).json()

    async def post(self, path: str, body: object = None, query: Query = ()) -> Any:
        """The JSON of the response. Raises SignInNeeded, Refused."""
        return (await self.call("POST", path, query, body)).json()

    async def get_or_refusal(self, path: str, query: Query, codes: Sequence[str]) -> tuple[Any, Refused | None]:
        """(the JSON, None), or (None, the refusal) where its code is one of these: then there is nothing, or it cannot
        be read now. Raises SignInNeeded, Refused for any other code."""
        try:
            return await self.get(path, query), None
        except Refused as refusal:
            if refusal.code not in codes:
                raise
            return None, refusal

    async def of_run(self, *parts: str) -> list[Any]:
        """The JSON of each of these parts of the run in the page's address; "" = the run itself. Raises SignInNeeded,
        Refused."""
        path = f"/v1/runs/{self._request.path_params['run_id']}"
        return await self.together(*(self.get(path + part) for part in parts))

    async def together(self, *calls: Any) -> list[Any]:
        """The results of concurrent calls; the first error is raised when all have ended."""
        answers = await asyncio.gather(*calls, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return answers

    async def call(
        self, method: str, path: str, query: Query = (), body: object = None, headers: Mapping[str, str] | None = None
    ) -> Answer:
        """`body`: sent as JSON, None = nothing. Raises SignInNeeded, Refused for every status from 400 on."""
        content = b"" if body is None else json.dumps(body).encode()
        given = dict(headers or {})
        if body is not None:
            given["content-type"] = "application/json"
        answer = Answer()
        pieces: list[bytes] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": content, "more_body": False}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                answer.status = message["status"]
                answer.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            else:
                pieces.append(message.get("body", b""))

        scope = self.scope(method, path, query, {**given, "content-length": str(len(content))})
        await self.app(scope, receive, send)
        answer.body = b"".join(pieces)
        if answer.status == 401:
            raise SignInNeeded
        if answer.status >= 400:
            raise Refused(answer.status, answer.json())
        return answer

    def scope(self, method: str, path: str, query: Query | bytes, headers: Mapping[str, str]) -> Scope:
        """The request that the API receives: from the same peer, to the same name, with the session's token. `query` as
        bytes is passed on unchanged."""
        outer = self._request.scope
        sent = {"host": self._request.headers.get("host", ""), **headers}
        if self._token:
            sent["authorization"] = f"Bearer {self._token}"
        if request_id := outer.get("spot_request_id"):
            sent["x-request-id"] = request_id
        return {
            "type": "http",
            "asgi": outer["asgi"],
            "http_version": outer["http_version"],
            "method": method,
            "scheme": outer["scheme"],
            "path": path,
            "raw_path": quote(path).encode(),
            "query_string": query if isinstance(query, bytes) else urlencode(query).encode(),
            "root_path": "",
            # A form may contain any character: one that a header cannot hold makes a value that matches nothing.
            "headers": [(name.encode(), value.encode("latin-1", "replace")) for name, value in sent.items()],
            "client": outer.get("client"),
            "server": outer.get("server"),
            "state": {},
        }


async def relay(request: Request, api: Api) -> Response:
    """Raises Refused for a request from another site; HTTPException 404 for an ambiguous address."""
    refuse_others(request)
    path = request.url.path.removeprefix("/ui")
    raw = request.scope.get("raw_path", b"").partition(b"?")[0].decode("latin-1")
    if not raw.startswith("/ui/v1/") or _TRICKS.search(raw):
        raise HTTPException(404)
    passed = {name: request.headers[name] for name in PASSED if name in request.headers}
    return Relayed(api, path, request.scope["query_string"], passed)


def refuse_others(request: Request) -> None:
    """Links do not lead to the addresses of scripts either: a page on another port of this computer could occupy all
    streams of a token. Raises Refused."""
    if request.headers.get("sec-fetch-site", "none") not in session.OWN_SITES:
        raise Refused(403, {"code": "ORIGIN_REFUSED", "detail": "This was requested by a page of another site."})


class Relayed(Response):
    """The API's response to a GET, piece by piece as it arrives, of any size; a stream ends when the client
    disconnects. `passed`: the headers of the request; `ours`: headers of the response that replace the API's."""

    def __init__(
        self, api: Api, path: str, query: Query | bytes, passed: Mapping[str, str], ours: Mapping[str, str] = CAGE
    ) -> None:
        super().__init__(None, 200, ours)
        del self.headers["content-length"]
        self.api, self._inner = api, api.scope("GET", path, query, passed)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = self._and_ours(message["headers"])
            await send(message)

        await self.api.app(self._inner, receive, answer)

    def _and_ours(self, given: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """The request id is set by the outer middleware."""
        ours = {*self.headers.keys(), "x-request-id", "set-cookie"}
        headers = MutableHeaders(raw=[header for header in given if header[0].decode("latin-1").lower() not in ours])
        headers.update(self.headers)
        headers.setdefault("Cache-Control", "no-store")
        if headers.get("content-type", SHOWN[0]).partition(";")[0].strip() not in SHOWN:
            headers.setdefault("Content-Disposition", "attachment")
        return headers.raw
