"""One web server as the agent talks to it: kept-alive connections, and an answer or `Unreachable`, nothing between.

The standard library's client alone. A connection serves one call at a time; idle ones are kept for a short while. A
call that broke off may have been carried out all the same: who repeats it must be able to bear that.
"""

from __future__ import annotations

import http.client
import ssl
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Dict, Iterator, List, Mapping, Optional, Tuple, Union
from urllib.parse import urlsplit

IDLE_S = 30.0  # servers close idle connections after minutes, and nobody tells us
TIMEOUT_S = 20.0
PIECE_BYTES = 1 << 18
_NOTHING: Mapping[str, str] = {}

Body = Union[bytes, Iterator[bytes], None]


class Unreachable(Exception):
    """No answer, or a torn one; the text says why."""


@dataclass(frozen=True)
class Answer:
    """Names of headers in lower case."""

    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""


class Site:
    """The server at `url` (scheme, host and port). Safe to use from every thread. ValueError for what is no such URL.

    `authorities`: a file of certificates that are trusted besides those of this Python, which an image may lack.
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

    def call(
        self,
        method: str,
        path: str,
        body: Body = None,
        headers: Mapping[str, str] = _NOTHING,
        timeout_s: Optional[float] = None,
    ) -> Answer:
        """One exchange. A `body` that comes in pieces needs its Content-Length among the headers. Unreachable."""
        with self.open(method, path, body, headers, timeout_s) as stream:
            return Answer(stream.status, stream.headers, b"".join(stream.pieces()))

    def open(
        self,
        method: str,
        path: str,
        body: Body = None,
        headers: Mapping[str, str] = _NOTHING,
        timeout_s: Optional[float] = None,
    ) -> Stream:
        """The same with the answer's body still to be read. Unreachable."""
        connection = self._take(self._timeout_s if timeout_s is None else timeout_s)
        try:
            return Stream(self, connection, _exchange(connection, method, path, body, headers))
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise Unreachable("%s: %s" % (self.url, _told(error))) from None
        except BaseException:
            connection.close()
            raise

    def _take(self, timeout_s: float) -> http.client.HTTPConnection:
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

    def give_back(self, connection: http.client.HTTPConnection) -> None:
        """A connection whose answer was read to its end."""
        if connection.sock is not None:
            with self._lock:
                self._idle.append((time.monotonic(), connection))

    def close(self) -> None:
        """Idle connections, that is; it can go on being used."""
        with self._lock:
            while self._idle:
                self._idle.pop()[1].close()


class Stream:
    """An answer that is being read. Leaving the `with` before its end closes the connection."""

    def __init__(self, site: Site, connection: http.client.HTTPConnection, response: http.client.HTTPResponse) -> None:
        self.status = response.status
        self.headers = _joined(response.getheaders())
        self._site, self._connection, self._response = site, connection, response
        self._whole = False

    def pieces(self) -> Iterator[bytes]:
        """Unreachable where it breaks off."""
        response, promised = self._response, self._response.length
        try:
            while True:
                piece = response.read(PIECE_BYTES)
                if not piece:
                    break
                if promised is not None:
                    promised -= len(piece)
                yield piece
        except (OSError, http.client.HTTPException) as error:
            raise Unreachable("%s: %s" % (self._site.url, _told(error))) from None
        if promised:
            raise Unreachable("%s: the answer broke off" % self._site.url)
        self._whole = not response.will_close

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        if self._whole:
            self._site.give_back(self._connection)
        else:
            self._connection.close()


def _exchange(
    connection: http.client.HTTPConnection, method: str, path: str, body: Body, headers: Mapping[str, str]
) -> http.client.HTTPResponse:
    all_headers = dict(headers)
    if isinstance(body, bytes) and len(body) > PIECE_BYTES:
        # The time limit counts for each send as a whole, so a large body goes in several.
        all_headers["Content-Length"] = str(len(body))
        body = _cut(body)
    try:
        connection.request(method, path, body, all_headers)
    except (BrokenPipeError, ConnectionResetError):
        # The server may have answered before it had all: with what it does not like about it.
        with suppress(OSError, http.client.HTTPException):
            return connection.getresponse()
        raise
    return connection.getresponse()


def _joined(headers: List[Tuple[str, str]]) -> Dict[str, str]:
    """Names in lower case; of one that comes several times (x-goog-hash does) all values, as one list."""
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


def _told(error: Exception) -> str:
    return "%s: %s" % (type(error).__name__, error) if str(error) else type(error).__name__
