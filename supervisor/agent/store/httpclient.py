"""The agent's HTTP client for one server: kept-alive connections, and a complete response or `Unreachable`.

It uses the standard library's client alone. A connection serves one call at a time; idle connections are kept for a
short while. A call that broke off may have been carried out: a caller that retries must tolerate that.
"""

from __future__ import annotations

import http.client
import ssl
import threading
import time
from contextlib import suppress
from typing import Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple, Union
from urllib.parse import urlsplit

IDLE_S = 30.0  # servers close idle connections after minutes, without a message
TIMEOUT_S = 20.0
PIECE_BYTES = 1 << 18
NO_HEADERS: Mapping[str, str] = {}

Body = Union[bytes, Iterator[bytes], None]


class Unreachable(Exception):
    """No response, or an incomplete one; the text says why."""


class Request(NamedTuple):
    """A `body` that comes in pieces needs its Content-Length among the headers."""

    method: str
    path: str
    body: Body = None
    headers: Mapping[str, str] = NO_HEADERS


class Response(NamedTuple):
    """Names of headers in lower case."""

    status: int
    headers: Mapping[str, str] = NO_HEADERS
    body: bytes = b""


class HttpClient:
    """A client of the server at `url` (scheme, host and port). Safe to use from every thread. ValueError for another
    kind of URL.

    `authorities`: a file of certificates to trust besides those of this Python, which an image may lack.
    """

    def __init__(self, url: str, timeout_s: float = TIMEOUT_S, authorities: Optional[str] = None) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError("not the URL of a web server: %r" % url)
        self.url = "%s://%s" % (parts.scheme, parts.netloc)
        self._host, self._port = parts.hostname, parts.port
        self._timeout_s = timeout_s
        self._context = _context(authorities) if parts.scheme == "https" else None
        self._idle: List[Tuple[float, http.client.HTTPConnection]] = []
        self._lock = threading.Lock()

    def call(self, request: Request, timeout_s: Optional[float] = None) -> Response:
        """One exchange. Unreachable."""
        with self.open(request, timeout_s) as stream:
            return stream.response()

    def open(self, request: Request, timeout_s: Optional[float] = None) -> ResponseStream:
        """The same with the body of the response still unread. Unreachable."""
        connection = self._connection(self._timeout_s if timeout_s is None else timeout_s)
        try:
            return ResponseStream(self, connection, _exchange(connection, request))
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise Unreachable("%s: %s" % (self.url, _error_text(error))) from None
        except BaseException:
            connection.close()
            raise

    def _connection(self, timeout_s: float) -> http.client.HTTPConnection:
        with self._lock:
            oldest = time.monotonic() - IDLE_S
            while self._idle:
                since, connection = self._idle.pop()
                if since >= oldest:
                    connection.sock.settimeout(timeout_s)
                    return connection
                connection.close()
        if self._context is not None:
            return http.client.HTTPSConnection(self._host, self._port, timeout=timeout_s, context=self._context)
        return http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)

    def keep(self, connection: http.client.HTTPConnection) -> None:
        """Keep a connection whose response was read to its end."""
        if connection.sock is not None:
            with self._lock:
                self._idle.append((time.monotonic(), connection))

    def close(self) -> None:
        """Close the idle connections; the client stays usable."""
        with self._lock:
            while self._idle:
                self._idle.pop()[1].close()


class ResponseStream:
    """A response that is being read. Leaving the `with` before its end closes the connection."""

    def __init__(
        self, client: HttpClient, connection: http.client.HTTPConnection, response: http.client.HTTPResponse
    ) -> None:
        self.status = response.status
        self.headers = _joined(response.getheaders())
        self._client, self._connection, self._response = client, connection, response
        self._reusable = False

    def response(self) -> Response:
        """The response with the rest of its body. Unreachable."""
        return Response(self.status, self.headers, b"".join(self.pieces()))

    def pieces(self) -> Iterator[bytes]:
        """Unreachable where the response breaks off."""
        response, missing_bytes = self._response, self._response.length
        try:
            for piece in iter(lambda: response.read(PIECE_BYTES), b""):
                if missing_bytes is not None:
                    missing_bytes -= len(piece)
                yield piece
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable("%s: %s" % (self._client.url, _error_text(error))) from None
        if missing_bytes:
            raise Unreachable("%s: the response broke off" % self._client.url)
        self._reusable = not response.will_close

    def __enter__(self) -> ResponseStream:
        return self

    def __exit__(self, *_: object) -> None:
        if self._reusable:
            self._client.keep(self._connection)
        else:
            self._connection.close()


def _exchange(connection: http.client.HTTPConnection, request: Request) -> http.client.HTTPResponse:
    body, headers = request.body, dict(request.headers)
    if isinstance(body, bytes) and len(body) > PIECE_BYTES:
        # The time limit applies to each send as a whole, so a large body goes in several pieces.
        headers["Content-Length"] = str(len(body))
        body = _cut(body)
    try:
        connection.request(request.method, request.path, body, headers)
    except (BrokenPipeError, ConnectionResetError):
        # The server may have refused the request before it had read all of it; its response says why.
        with suppress(OSError, http.client.HTTPException):
            return connection.getresponse()
        raise
    return connection.getresponse()


def _joined(headers: List[Tuple[str, str]]) -> Dict[str, str]:
    """Names in lower case; the values of a repeated name (x-goog-hash) become one list."""
    joined: Dict[str, str] = {}
    for name, value in headers:
        before = joined.get(name.lower())
        joined[name.lower()] = value if before is None else "%s, %s" % (before, value)
    return joined


def _cut(body: bytes) -> Iterator[bytes]:
    return (body[at : at + PIECE_BYTES] for at in range(0, len(body), PIECE_BYTES))


def _context(authorities: Optional[str]) -> ssl.SSLContext:
    context = ssl.create_default_context()
    if authorities is not None:
        context.load_verify_locations(authorities)
    return context


def _error_text(error: Exception) -> str:
    return "%s: %s" % (type(error).__name__, error) if str(error) else type(error).__name__
