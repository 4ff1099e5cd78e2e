"""Around the outer door, for what lies below /ui: the headers of every answer, and refusals as pages.

Whatever says no (a page, the API behind it, the outer door, its net for bugs) says it as a problem, RFC 9457. A person
gets a page of that, with the same status, code and request id. What goes to scripts (/ui/v1) is left as it is.
"""

from __future__ import annotations

import json
import logging
from typing import Any

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from supervisor.dashboard import relay, rendering

LOG = logging.getLogger(__name__)
PROBLEM = "application/problem+json"
HEADERS = rendering.HEADERS
CAGED = {**HEADERS, **relay.HEADERS}
KEPT = ("allow", "connection", "retry-after", "x-request-id")


class Outside:
    """The outermost of all: nothing of the dashboard is answered but through it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope.get("path", "")
        if scope["type"] != "http" or not (path in ("/", "/ui") or path.startswith("/ui/")):
            await self._app(scope, receive, send)
            return
        told: list[Message] = []
        of_scripts = path.startswith("/ui/v1/")

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=list(message["headers"]))
                for name, value in (CAGED if of_scripts else HEADERS).items():
                    headers.setdefault(name, value)
                message["headers"] = headers.raw
                if headers.get("content-type") == PROBLEM and not of_scripts:
                    if scope["method"] != "HEAD":
                        told.append(message)
                        return
                    headers["content-type"], headers["cache-control"] = rendering.HTML, "no-store"
                    del headers["content-length"]
            if not told:
                await send(message)
                return
            told.append(message)
            if not message.get("more_body"):
                await (await _page(scope, told))(scope, receive, send)

        await self._app(scope, receive, answer)


def problem(
    request: Request, status: int, code: str, detail: str, told: dict[str, Any] | None = None
) -> Response:
    """A refusal in words of ours (`told`: the API's), which `Outside` makes a page of."""
    problem = {**(told or {}), "status": status, "code": code, "detail": detail}
    problem["request_id"] = request.scope.get("spot_request_id", "")
    headers = {}
    if status == 429:
        headers["Retry-After"] = str(dict(problem.get("meta") or {}).get("retry_after_s", 2))
    return JSONResponse(problem, status, headers, PROBLEM)


async def _page(scope: Scope, told: list[Message]) -> Response:
    """Of the answer that these messages are. One that cannot be rendered is told as it is."""
    start, body = told[0], b"".join(message.get("body", b"") for message in told[1:])
    given = MutableHeaders(raw=start["headers"])
    try:
        page = await _rendered(Request(scope), start["status"], json.loads(body))
    except Exception:
        LOG.exception("The page of a refusal cannot be shown.")
        page = Response(body, start["status"], media_type=PROBLEM)
    for name in (*KEPT, *HEADERS):
        if name in given:
            page.headers[name] = given[name]
    return page


async def _rendered(request: Request, status: int, told: dict[str, Any]) -> Response:
    shown = {name: told.get(name, "") for name in ("code", "detail")}
    values = {**shown, "status": status, "errors": told.get("errors", [])}
    return await rendering.page(
        request, "problem.html", status, problem=values, request_id=told.get("request_id", "")
    )
