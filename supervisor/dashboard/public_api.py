"""The public API, called in this process on behalf of whoever looks at a page.

A call goes the whole way of a request from outside: outer door, token, scope, owner, rate. Nothing here decides who may
do what. Calls carry the id of the page's request, so that its log lines and events are found under one id.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from supervisor.dashboard import session

Json = dict[str, Any]
Query = Sequence[tuple[str, str]]


class SignInNeeded(Exception):
    """No token, or one that is not valid (any more)."""


class Refused(Exception):
    """The API said no. `problem`: its answer, RFC 9457."""

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
    """Of one request to the dashboard. `app` is the whole application, its outer door included. `token`: asked with;
    None = that of the session."""

    def __init__(self, app: ASGIApp, request: Request, token: str | None = None) -> None:
        self.app, self._request = app, request
        self._token = session.token_of(request) if token is None else token

    async def get(self, path: str, query: Query = ()) -> Any:
        """The JSON of a 200. Raises SignInNeeded, Refused."""
        return (await self.call("GET", path, query)).json()

    async def get_or_none(self, path: str, query: Query, codes: Sequence[str]) -> Any:
        """None where the API refuses with one of these codes, which say that there is nothing. Raises SignInNeeded;
        Refused for any other: what could not be read is not absent."""
        try:
            return await self.get(path, query)
        except Refused as refusal:
            if refusal.code not in codes:
                raise
            return None

    async def together(self, *calls: Any) -> list[Any]:
        """The answers of calls that are made side by side; the first error is raised when all have ended."""
        answers = await asyncio.gather(*calls, return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException):
                raise answer
        return answers

    async def call(
        self,
        method: str,
        path: str,
        query: Query = (),
        body: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """`body`: sent as JSON, None = nothing. Raises SignInNeeded, Refused for every answer from 400 on."""
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

    async def relay(
        self, path: str, query: Query | bytes, headers: Mapping[str, str], receive: Receive, send: Send
    ) -> None:
        """A GET whose answer goes to `send` as it comes: a stream, or a file of any size."""
        await self.app(self.scope("GET", path, query, headers), receive, send)

    def scope(self, method: str, path: str, query: Query | bytes, headers: Mapping[str, str]) -> Scope:
        """The request that the API sees: from the same peer, to the same name, with the token of the session. `query`
        as bytes goes on as it came."""
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
            # What a form brought may hold any letter: one that no header can hold makes a value that matches nothing.
            "headers": [(name.encode(), value.encode("latin-1", "replace")) for name, value in sent.items()],
            "client": outer.get("client"),
            "server": outer.get("server"),
            "state": {},
        }
