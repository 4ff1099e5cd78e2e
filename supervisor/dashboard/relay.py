"""What a browser needs of the API as it is, below /ui/v1: streams of events, files, logs, series. By GET alone.

The address is that below /v1, the token that of the session, and what else is passed on is named here. Answers hold
what strangers wrote, and come from the origin of our pages: so nothing in them may run, whatever its name is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from supervisor.dashboard import session
from supervisor.dashboard.public_api import Api, Refused

PASSED = ("accept", "if-none-match", "if-range", "last-event-id", "range")
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'; sandbox",
    "X-Content-Type-Options": "nosniff",
}
SHOWN = (
    "application/json",
    "application/problem+json",
    "text/event-stream",
    "text/plain",
)  # others are saved
_TRICKS = re.compile(r"%2[ef]|%00|//|/\.{1,2}(/|\Z)", re.IGNORECASE)  # in an address as it came


async def show(request: Request, api: Api) -> Response:
    """Raises Refused for a request of another page; HTTPException 404 for an address that can be read in two ways."""
    refuse_others(request)
    path = request.url.path.removeprefix("/ui")
    raw = request.scope.get("raw_path", b"").partition(b"?")[0].decode("latin-1")
    if not raw.startswith("/ui/v1/") or _TRICKS.search(raw):
        raise HTTPException(404)
    return Relayed(api, path, request)


def refuse_others(request: Request) -> None:
    """What scripts ask for is not led to by links, either: a page on another port of this computer could hold all the
    streams that a token may have. Raises Refused."""
    if request.headers.get("sec-fetch-site", "none") not in session.OWN_SITES:
        raise Refused(403, {"code": "ORIGIN_REFUSED", "detail": "This was asked by a page of another site."})


class Relayed(Response):
    """The API's answer, piece by piece as it comes; its stream ends when the client goes."""

    def __init__(self, api: Api, path: str, request: Request) -> None:
        super().__init__(None, 200, HEADERS)
        del self.headers["content-length"]
        self._api, self._path, self._query = api, path, request.scope["query_string"]
        self._passed = {name: request.headers[name] for name in PASSED if name in request.headers}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = self._and_ours(message["headers"])
            await send(message)

        await self._api.relay(self._path, self._query, self._passed, receive, answer)

    def _and_ours(self, told: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
        """The outer door names the request itself."""
        ours = {*self.headers.keys(), "x-request-id", "set-cookie"}
        headers = MutableHeaders(raw=[one for one in told if one[0].decode("latin-1").lower() not in ours])
        headers.update(self.headers)
        headers.setdefault("Cache-Control", "no-store")
        if headers.get("content-type", SHOWN[0]).partition(";")[0].strip() not in SHOWN:
            headers.setdefault("Content-Disposition", "attachment")
        return headers.raw
