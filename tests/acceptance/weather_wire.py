"""The wire between Google's clients and the tests' cloud, without sockets: a third of the time, and no real timeouts.

Requests of the `requests` package to the fakes are answered in the caller's thread, everything above it is as it is:
Google's clients, their retries and the oracle. That the same exchanges work over HTTP is the fault tests' to show.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from email.utils import formatdate
from typing import Any
from unittest.mock import patch
from urllib.parse import parse_qs, urlsplit

import requests
from requests.adapters import HTTPAdapter
from urllib3 import HTTPResponse

from tests.cloud.web import Hang, Request, Reset, Response, WebServer

HANGS_S = 10.0


class Requests(list[Request]):
    """Of Compute Engine; `asked` hears of each before it is answered, in a thread of the fake's."""

    def __init__(self, asked: Any) -> None:
        super().__init__()
        self._asked = asked

    def append(self, request: Request) -> None:
        super().append(request)
        self._asked(request)


def wired(servers: Mapping[str, WebServer], pause: Callable[[float], None]) -> Any:
    """A patch to be started. `servers`: by their host; `pause` lets the time of a call pass that hangs."""
    through = HTTPAdapter.send

    def send(self: HTTPAdapter, asked: requests.PreparedRequest, *args: Any, **kwargs: Any) -> Any:
        server = servers.get(urlsplit(asked.url).netloc)
        if server is None:
            return through(self, asked, *args, **kwargs)
        request = _request(asked)
        try:
            response = server._server.answer(request)
        except Hang:
            pause(HANGS_S)
            raise requests.exceptions.ReadTimeout("no answer", request=asked) from None
        except Reset:
            raise requests.exceptions.ConnectionError("the connection was closed", request=asked) from None
        if server._server.watch is not None:
            server._server.watch(request, response)
        return self.build_response(asked, _answer(response))

    return patch.object(HTTPAdapter, "send", send)


def _request(asked: requests.PreparedRequest) -> Request:
    parts = urlsplit(str(asked.url))
    body = asked.body or b""
    if not isinstance(body, str | bytes):
        body = body.read()
    return Request(
        str(asked.method),
        parts.path,
        parse_qs(parts.query, keep_blank_values=True),
        {name.lower(): value if isinstance(value, str) else value.decode() for name, value in asked.headers.items()},
        body.encode() if isinstance(body, str) else body,
    )


def _answer(response: Response) -> HTTPResponse:
    body = response.encoded
    headers = {"Date": formatdate(response.date, usegmt=True), "Content-Length": str(len(body)), **response.headers}
    if response.body is not None and not isinstance(response.body, bytes):
        headers.setdefault("Content-Type", "application/json; charset=UTF-8")
    return HTTPResponse(
        body=io.BytesIO(body), headers=headers, status=response.status, preload_content=False, version=11
    )
