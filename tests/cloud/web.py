"""The one HTTP server under all fakes of this folder: HTTP/1.1 on loopback, kept-alive connections, a thread each.

A fake is a function from Request to Response. Network faults are a Response too: hang until the
client gives up, break off in the middle, or close without a response. `watch` sees every exchange, for the oracle; a
`gate` responds instead of the fake where the caller lacks a permission.
"""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import formatdate
from functools import cached_property
from http.client import responses
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


@dataclass(frozen=True)
class Request:
    """`raw_path` as sent, percent-encoded; `path` decoded, for matching. `query`: name -> values. Header names are
    lower-case."""

    method: str
    raw_path: str
    query: Mapping[str, list[str]]
    headers: Mapping[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return unquote(self.raw_path)

    def one(self, name: str, default: str | None = None) -> str | None:
        """The last value of a query parameter."""
        return self.query[name][-1] if self.query.get(name) else default

    def json(self) -> Any:
        return json.loads(self.body) if self.body else None


@dataclass(frozen=True)
class Response:
    """A `body` other than bytes is sent as JSON; None = empty. `cut_after`: that many bytes of the body, then the
    connection breaks (its length was promised). `date`: epoch seconds of the Date header, None = now."""

    status: int = 200
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    cut_after: int | None = None
    date: float | None = None

    @cached_property
    def encoded(self) -> bytes:
        """For the oracle and for the wire."""
        if self.body is None:
            return b""
        return self.body if isinstance(self.body, bytes) else json.dumps(self.body).encode()


class Hang(Exception):
    """Raised by a fake: no response, until the client or the server closes."""


class Reset(Exception):
    """Raised by a fake: the connection is closed without a response."""


Handler = Callable[[Request], Response]
Watch = Callable[[Request, Response], None]
Gate = Callable[[Request], Response | None]  # None = go on


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _Server

    def setup(self) -> None:
        super().setup()
        self.server.connections.add(self.connection)

    def finish(self) -> None:
        self.server.connections.discard(self.connection)
        with suppress(OSError):  # the rest that was not sent when the client disconnected
            super().finish()

    def handle(self) -> None:
        with suppress(OSError):  # the client disconnected, which is allowed
            super().handle()

    def log_message(self, *_: object) -> None:
        pass

    def parse_request(self) -> bool:
        """As http.server does it, without its parser of e-mails, which takes as long as all the rest of a response."""
        self.command, self.path, self.request_version = str(self.raw_requestline, "latin-1").split()
        self.headers: dict[str, str] = {}
        while line := self.rfile.readline().rstrip(b"\r\n"):
            name, _, value = line.decode("latin-1").partition(":")
            self.headers[name.lower()] = value.strip()
        closes = self.headers.get("connection", "").lower() == "close"
        self.close_connection = closes or self.request_version == "HTTP/1.0"
        return self.headers.get("expect", "").lower() != "100-continue" or self.handle_expect_100()

    def serve(self) -> None:
        request = _request(self)
        try:
            refused = None if self.server.gate is None else self.server.gate(request)
            response = self.server.answer(request) if refused is None else refused
        except Hang:
            self.server.closing.wait()
            self.close_connection = True
        except Reset:
            self.close_connection = True
        else:
            if self.server.watch is not None:
                self.server.watch(request, response)
            _send(self, response)


for _method in ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"):
    setattr(_Handler, "do_" + _method, _Handler.serve)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, answer: Handler, watch: Watch | None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.answer, self.watch = answer, watch
        self.gate: Gate | None = None
        self.closing = threading.Event()
        self.connections: set[socket.socket] = set()


class WebServer:
    """Listens on 127.0.0.1 at a free port from the moment it is made until `close`. `tls`: None = plain HTTP."""

    def __init__(self, answer: Handler, watch: Watch | None = None, tls: ssl.SSLContext | None = None) -> None:
        self._server = _Server(answer, watch)
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._accept, daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        """It does not poll: a cloud has ten servers, and each closes at once."""
        while not self.closing.is_set():
            with suppress(OSError):  # closed, or a client that refuses our certificate
                self._server.process_request(*self._server.get_request())

    def guard(self, gate: Gate) -> None:
        """From now on it is called before each response."""
        self._server.gate = gate

    def watch_nothing(self) -> None:
        """From now on exchanges are not shown to `watch`."""
        self._server.watch = None

    @property
    def closing(self) -> threading.Event:
        """Set when the server closes: what a fake waits on instead of sleeping."""
        return self._server.closing

    @property
    def host(self) -> str:
        """127.0.0.1:PORT"""
        return "%s:%d" % self._server.server_address[:2]

    @property
    def url(self) -> str:
        return "http://" + self.host

    def close(self) -> None:
        self._server.closing.set()
        with suppress(OSError):  # it was closed before
            self._server.socket.shutdown(socket.SHUT_RDWR)  # ends the thread that accepts
        self._thread.join()
        self._server.server_close()
        for connection in list(self._server.connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)


def _request(handler: _Handler) -> Request:
    parts = urlsplit(handler.path)
    query = parse_qs(parts.query, keep_blank_values=True)
    return Request(handler.command, parts.path, query, handler.headers, _body(handler))


def _body(handler: _Handler) -> bytes:
    """Raises ConnectionError where the client is gone before its end: nobody asks for anything then."""
    headers = handler.headers
    if headers.get("transfer-encoding", "").lower() != "chunked":
        return _whole(handler, int(headers.get("content-length") or 0))
    pieces = []
    while size := int(handler.rfile.readline().split(b";")[0] or b"-1", 16):
        pieces.append(_whole(handler, size))
        handler.rfile.readline()
    handler.rfile.readline()
    return b"".join(pieces)


def _whole(handler: _Handler, size: int) -> bytes:
    data = handler.rfile.read(size) if size >= 0 else b""
    if len(data) != size:
        raise ConnectionError("the client is gone")
    return data


def _send(handler: _Handler, response: Response) -> None:
    """In one write: with two, the client often wakes twice."""
    body, status = response.encoded, response.status
    headers = {"Date": formatdate(response.date, usegmt=True), **response.headers}
    if response.body is not None and not isinstance(response.body, bytes):
        headers.setdefault("Content-Type", "application/json; charset=UTF-8")
    if status not in (204, 304):
        headers.setdefault("Content-Length", str(len(body)))
    lines = [f"HTTP/1.1 {status} {responses.get(status, '')}", *(f"{name}: {value}" for name, value in headers.items())]
    head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
    handler.wfile.write(head if handler.command == "HEAD" else head + body[: response.cut_after])
    if response.cut_after is not None:
        handler.close_connection = True
