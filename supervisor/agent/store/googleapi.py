"""Calls to one of Google's services with the machine's own account, again and again where that can help.

Busy and broken (408, 429, 5xx, no answer) is repeated with growing, scattered pauses until `retry_for_s` are over; 401
once with a new token. Everything else is an answer. An answer after tries that may have been carried out is
`doubtful`: what it says may be our own doing.
"""

from __future__ import annotations

import ipaddress
import json
import os
import random
import threading
import time
from dataclasses import dataclass
from typing import Any, Callable, Dict, Mapping, Optional
from urllib.parse import urlsplit

from supervisor.agent.store.metadata import MetadataServer
from supervisor.agent.store.site import Answer, Body, Site, Stream, Unreachable

RETRY_FOR_S = 30.0
FIRST_PAUSE_S, PAUSE_MAX_S = 0.25, 8.0
RENEW_S = 240.0  # before its end; the metadata server makes a new token five minutes before
_BUSY = (408, 429)
_NOTHING: Mapping[str, str] = {}
_scattered = random.SystemRandom().uniform


class Account:
    """The machine's account. Safe to use from every thread."""

    def __init__(self, server: MetadataServer, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._server = server
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._token = ""
        self._until = 0.0

    def token(self) -> str:
        """Unreachable where there is none to be had."""
        with self._lock:
            if not self._token or self._monotonic() >= self._until:
                token, good_for_s = self._server.token()
                self._token, self._until = (
                    token,
                    self._monotonic() + max(good_for_s - RENEW_S, good_for_s / 2),
                )
            return self._token

    def close(self) -> None:
        """Idle connections, that is."""
        self._server.close()

    def refused(self, token: str) -> None:
        """A service would not take this one."""
        with self._lock:
            if token == self._token:
                self._token = ""


def account_for(endpoint: str, monotonic: Callable[[], float] = time.monotonic) -> Optional[Account]:
    """None where nobody asks for an account: a stand-in on this very machine."""
    parts = urlsplit(endpoint)
    if parts.scheme == "http" and is_loopback(parts.hostname) and not os.environ.get("GCE_METADATA_HOST"):
        return None
    return Account(MetadataServer(), monotonic)


def is_loopback(host: Optional[str]) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host or "").is_loopback
    except ValueError:
        return False


@dataclass(frozen=True)
class Pace:
    """How long and how a call is repeated; `pause` sleeps."""

    retry_for_s: float = RETRY_FOR_S
    pause: Callable[[float], None] = time.sleep
    monotonic: Callable[[], float] = time.monotonic


class Effort:
    """The repeating of one call. `again` pauses, or gives up by raising Unreachable."""

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._until = pace.monotonic() + pace.retry_for_s
        self._pause_s = FIRST_PAUSE_S
        self.doubtful = False

    def again(self, why: str, doubtful: bool = True) -> None:
        self.doubtful = self.doubtful or doubtful
        if self._pace.monotonic() >= self._until:
            raise Unreachable(why)
        self._pace.pause(self._pause_s * _scattered(0.5, 1.0))
        self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S)

    def refreshed(self) -> None:
        """It came further: the time for repeating begins anew."""
        self._until = self._pace.monotonic() + self._pace.retry_for_s
        self._pause_s = FIRST_PAUSE_S


class GoogleApi:
    """Safe to use from every thread. Unreachable, with the last reason, from every method."""

    def __init__(self, site: Site, account: Optional[Account], pace: Pace) -> None:
        self._site = site
        self._account = account
        self._pace = pace

    def close(self) -> None:
        """Idle connections, that is."""
        self._site.close()
        if self._account is not None:
            self._account.close()

    def effort(self) -> Effort:
        return Effort(self._pace)

    def call(
        self,
        method: str,
        path: str,
        body: Optional[bytes] = None,
        headers: Mapping[str, str] = _NOTHING,
        effort: Optional[Effort] = None,
    ) -> Answer:
        """Repeated until there is an answer that says something."""
        effort = effort or self.effort()
        while True:
            try:
                answer = self.once(method, path, body, headers)
            except Unreachable as error:
                effort.again(str(error))
                continue
            if not is_busy(answer.status):
                return answer
            effort.again(said(answer), doubtful=answer.status != 429)

    def once(
        self, method: str, path: str, body: Body = None, headers: Mapping[str, str] = _NOTHING
    ) -> Answer:
        """Not repeated, but for a token that was refused."""
        with self.open(method, path, body, headers) as stream:
            return Answer(stream.status, stream.headers, b"".join(stream.pieces()))

    def open(
        self, method: str, path: str, body: Body = None, headers: Mapping[str, str] = _NOTHING
    ) -> Stream:
        for last in (False, True):
            token = None if self._account is None else self._account.token()
            stream = self._site.open(method, path, body, _with(headers, token))
            if stream.status != 401 or token is None or self._account is None:
                return stream
            self._account.refused(token)
            if last or not (body is None or isinstance(body, bytes)):
                return stream
            stream.__exit__()
        raise AssertionError("unreachable")


def is_busy(status: int) -> bool:
    return status in _BUSY or status >= 500


def said(answer: Answer) -> str:
    """HTTP status and Google's message, as one line."""
    return (
        "HTTP %d: %s" % (answer.status, message_of(answer)[:300])
        if answer.body
        else "HTTP %d" % answer.status
    )


def message_of(answer: Answer) -> str:
    """JSON's error.message, else the first of the text."""
    text = answer.body.decode("utf-8", "replace")
    try:
        found: Any = json.loads(text)
        text = str(found["error"]["message"])
    except (ValueError, KeyError, TypeError, RecursionError):
        pass
    return " ".join(text.split())


def _with(headers: Mapping[str, str], token: Optional[str]) -> Dict[str, str]:
    return dict(headers) if token is None else {**headers, "Authorization": "Bearer " + token}
