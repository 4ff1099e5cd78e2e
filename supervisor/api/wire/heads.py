"""HEAD wherever GET is: the same headers, and no body (RFC 9110, section 9.3.2).

The framework knows HEAD only where a route names it. Here such a request is routed as its GET, and what it would send
after its headers is dropped; an answer without an end, such as a stream of events, is told that its client has left.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from starlette.types import ASGIApp, Message, Receive, Scope, Send

Paths = Collection[tuple[re.Pattern[str], Collection[str]]]  # of each route: its path and its methods


class HeadAsGet:
    """`paths`: of all routes."""

    def __init__(self, app: ASGIApp, paths: Paths) -> None:
        self._app, self._paths = app, paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (
            scope["type"] != "http"
            or scope["method"] != "HEAD"
            or "HEAD" in allowed(self._paths, scope["path"])
        ):
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
                scope["route"] = as_get["route"]  # by which requests are counted


def allowed(paths: Paths, path: str) -> set[str]:
    """The methods that routes name for this path."""
    return {name for regex, names in paths if regex.match(path) for name in names}


def shown(names: Collection[str]) -> str:
    """For the header Allow."""
    return ", ".join(sorted({*names, *(("HEAD",) if "GET" in names else ())}))
