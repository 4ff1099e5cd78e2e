"""One POST to an address that was judged: within a time for all of it, without redirects, proxies or cookies, and with
little of the answer read. The certificate is compared with the name, whatever address the connection goes to.

A deadline for all of an HTTP request. httpx bounds each wait by itself, so who sends a byte now and then, or an
endless row of headers, would hold a thread for ever. When time is up the connection is shut, which wakes the reader.
"""

from __future__ import annotations

import logging
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from types import TracebackType
from typing import Any

from supervisor.notifiers.guard import Way

_OPENED = ("connection.connect_tcp.complete", "connection.start_tls.complete")


class Deadline:
    """`passed`: the time was up, and what the request raised comes from that. Looking up a name is not bounded."""

    def __init__(self, within_s: float) -> None:
        self.within_s = within_s
        self.passed = False
        self._guard = threading.Lock()
        self._socket: socket.socket | None = None
        self._timer = threading.Timer(within_s, self._cut)
        self._timer.daemon = True

    def __enter__(self) -> Deadline:
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._timer.cancel()

    def trace(self, event: str, info: Mapping[str, Any]) -> None:
        """httpx's `trace` extension of the request."""
        if event not in _OPENED:
            return
        with self._guard:
            self._socket = info["return_value"].get_extra_info("socket")
            if self.passed:
                self._shut()

    def _cut(self) -> None:
        with self._guard:
            self.passed = True
            self._shut()

    def _shut(self) -> None:
        with suppress(OSError):  # it is closed already
            if self._socket is not None:
                socket.socket.shutdown(
                    self._socket, socket.SHUT_RDWR
                )  # not TLS's own, which a reader would miss


CONNECT_S = 5.0
ANSWER_BYTES = 4096  # more of an answer is never read
ADDRESSES = 3  # of one host that are tried, where a connection cannot be made


class NoAnswer(Exception):
    """The text says why and names no address."""


@dataclass(frozen=True, slots=True)
class Answered:
    status: int
    headers: Mapping[str, str]  # names in lower case
    said: bytes  # its beginning


@cache
def _certificates() -> ssl.SSLContext:
    """Reading them takes longer than a whole delivery."""
    import httpx

    return httpx.create_ssl_context(trust_env=False)


def post(
    way: Way,
    body: str,
    headers: Mapping[str, str],
    within_s: float,
    certificates: ssl.SSLContext | None = None,
) -> Answered:
    """Raises NoAnswer."""
    import httpx  # a quarter of a second of a start that may never need it

    for noisy in ("httpx", "httpcore"):  # they would log the whole address
        logging.getLogger(noisy).setLevel(logging.WARNING)
    deadline = Deadline(within_s)
    timeout = httpx.Timeout(within_s, connect=min(CONNECT_S, within_s))
    verify = certificates if certificates is not None else _certificates()
    with (
        deadline,
        httpx.Client(timeout=timeout, trust_env=False, follow_redirects=False, verify=verify) as client,
    ):
        try:
            return _first_that_connects(client, way, body, {**headers, "host": way.netloc}, deadline)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            late = deadline.passed or isinstance(error, httpx.TimeoutException)
            raise NoAnswer(f"no answer within {within_s:g} s" if late else _why(error)) from None


def _first_that_connects(
    client: Any, way: Way, body: str, headers: Mapping[str, str], deadline: Deadline
) -> Answered:
    """Raises what httpx raises; what it raises for one address leads to the next only while nothing was sent."""
    import httpx

    addresses = way.addresses[:ADDRESSES]
    extensions = {"trace": deadline.trace, "sni_hostname": way.host}
    for address in addresses:
        url = httpx.URL(way.url).copy_with(host=address)
        try:
            with client.stream("POST", url, content=body, headers=headers, extensions=extensions) as got:
                return Answered(got.status_code, dict(got.headers), _beginning(got, deadline.within_s))
        except (httpx.ConnectError, httpx.ConnectTimeout):
            if address == addresses[-1] or deadline.passed:
                raise
    raise NoAnswer("no such host")


def _beginning(response: Any, within_s: float) -> bytes:
    """A body that breaks off or takes too long changes nothing: its status is known."""
    import httpx

    until, found = time.monotonic() + within_s, b""
    with suppress(httpx.HTTPError):
        for piece in response.iter_raw():
            found += piece
            if len(found) >= ANSWER_BYTES or time.monotonic() > until:
                break
    return found[:ANSWER_BYTES]


def _why(error: Exception) -> str:
    """Never the error's own text, which may hold the address."""
    causes: list[BaseException] = [error]
    while (below := causes[-1].__cause__ or causes[-1].__context__) is not None:
        causes.append(below)
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return "no such host"
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
        return "connection refused"
    if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes):
        return "its certificate is not valid for this name"
    return f"no answer: {type(error).__name__}"
