"""Requests to the door with a pass, and its renewal.

The pass lies in a file of this machine, lives for an hour, and is renewed with a beat: asked for when less than half of
its life is left, and at once when the door has refused it. Until a beat came through, the store is unavailable, which
says nothing about any object.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import contextmanager, suppress
from email.utils import parsedate_to_datetime
from typing import Any, Callable, Dict, Iterator, Mapping, Optional
from urllib.parse import urljoin, urlsplit

from supervisor.agent.store.gcs_content import Source
from supervisor.agent.store.googleapi import Retries, RetryPolicy, is_loopback
from supervisor.agent.store.httpclient import (
    NO_HEADERS,
    Body,
    HttpClient,
    Request,
    Response,
    ResponseStream,
    Unreachable,
)
from supervisor.contract.stores import bucket
from supervisor.contract.stores.promise import StoreForbidden, StoreFull, StoreUnavailable

TIMEOUT_S = 60.0
LOST, FULL = 401, 507


class DoorPass:
    """The pass in the file at `path`: {"text", "expires_at", "renew_at_boottime_s"}. This computer's clock may be
    wrong, so its life is counted from the moment when it came. Safe to use from every thread."""

    def __init__(
        self, path: str, boottime: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME)
    ) -> None:
        self._path, self._boottime = path, boottime
        self._text, self._renew_at = "", float("-inf")
        self.on_refused: Callable[[], None] = lambda: None  # must not block
        try:
            with open(path, encoding="utf-8") as source:
                data = json.load(source)
            self._text, self._renew_at = str(data["text"]), float(data.get("renew_at_boottime_s", "-inf"))
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            pass  # the first beat brings one

    @property
    def text(self) -> str:
        """What to show; "" = there is none."""
        return self._text

    def due(self) -> bool:
        """The next beat asks for a new one."""
        return not self._text or self._boottime() >= self._renew_at

    def refused(self, text: str) -> None:
        """The door has refused this one."""
        if text == self._text:
            self._renew_at = float("-inf")
            self.on_refused()

    def take(self, given: Any, date: Optional[str]) -> None:
        """A new one, {"text", "expires_at"}, in the file too. `date`: the supervisor's clock, as its response has it;
        anything else than a pass is left. A full disk only costs another start of this agent one more beat."""
        try:
            text, expires_at = given["text"], float(given["expires_at"])
        except (TypeError, KeyError, ValueError):
            return
        if not isinstance(text, str) or not text.isascii() or not text.isprintable():
            return
        try:
            now = parsedate_to_datetime(date or "").timestamp()
        except (TypeError, ValueError, IndexError):
            now = time.time()
        self._renew_at = self._boottime() + max(0.0, expires_at - now) / 2
        self._text = text
        data = {"text": text, "expires_at": expires_at, "renew_at_boottime_s": self._renew_at}
        with suppress(OSError):
            draft = "%s.%d" % (self._path, os.getpid())
            with open(draft, "w", encoding="utf-8", opener=_own) as target:
                json.dump(data, target)
            os.rename(draft, self._path)


class Door:
    """`address`: SUPERVISOR/v1/door/RUN_ID. Safe to use from every thread. ValueError for an address without
    encryption."""

    def __init__(
        self, address: str, door_pass: DoorPass, policy: RetryPolicy, authorities: Optional[str] = None
    ) -> None:
        if not is_safe(address):
            raise ValueError("neither https nor on this machine: %r" % address)
        self.address, self.path = address, urlsplit(address).path.rstrip("/")
        self.door_pass, self.policy, self.authorities = door_pass, policy, authorities
        self._client = HttpClient(address, TIMEOUT_S, authorities)

    def close(self) -> None:
        self._client.close()

    def retries(self) -> Retries:
        return Retries(self.policy)

    def call(
        self,
        doing: str,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] = NO_HEADERS,
        body: Any = None,
        retries: Optional[Retries] = None,
    ) -> Response:
        """The first final response. `path`: below the address. `body`: bytes, or a Source. StoreUnavailable."""
        retries = retries or self.retries()
        while True:
            try:
                with self.open(method, path, headers, body.pieces(0) if isinstance(body, Source) else body) as stream:
                    response = stream.response()
            except Unreachable as error:
                wait(retries, doing, str(error))
                continue
            if not may_pass(response.status):
                return response
            wait(retries, doing, text_of(response), doubtful=bucket.may_have_acted(response.status))

    def open(self, method: str, path: str, headers: Mapping[str, str], body: Body = None) -> ResponseStream:
        """Once, with the pass. Unreachable."""
        text = self.door_pass.text
        request = Request(method, self.path + path, body, {**headers, "Authorization": "Bearer " + text})
        stream = self._client.open(request)
        if stream.status == LOST:
            self.door_pass.refused(text)
        return stream

    @contextmanager
    def elsewhere(self, location: str, headers: Mapping[str, str]) -> Iterator[ResponseStream]:
        """What is at this address, without the pass. Unreachable."""
        url = urljoin(self.address, location)
        if not is_safe(url):
            raise Unreachable("%s sent us to an address that is not encrypted" % self._client.url)
        parts = urlsplit(url)
        client = HttpClient(url, TIMEOUT_S, self.authorities)
        try:
            with client.open(Request("GET", "%s?%s" % (parts.path, parts.query), None, headers)) as stream:
                yield stream
        finally:
            client.close()


def _own(path: str, flags: int) -> int:
    """An opener for a file of this user only."""
    return os.open(path, flags | os.O_NOFOLLOW, 0o600)


def wait(retries: Retries, doing: str, why: str, doubtful: bool = True) -> None:
    """Until the next try. StoreUnavailable when the time for tries is over."""
    try:
        retries.wait(why, doubtful)
    except Unreachable as error:
        raise StoreUnavailable("%s: %s" % (doing, error)) from None


def is_safe(url: Any) -> bool:
    """An address that a pass or a signature may be sent to: encrypted, or on this very machine."""
    if not isinstance(url, str):
        return False
    parts = urlsplit(url)
    return bool(parts.hostname) and (
        parts.scheme == "https" or (parts.scheme == "http" and is_loopback(parts.hostname))
    )


def code_of(response: Response) -> str:
    """The stable word of a refusal of the supervisor (docs/errors.md); "" = it has none."""
    data = parsed(response.body)
    return str(data.get("code") or "") if isinstance(data, dict) else ""


def may_pass(status: int) -> bool:
    """A retry may help; a pass that is refused is renewed with the next beat."""
    return status == LOST or (status != FULL and bucket.is_passing(status))


def text_of(response: Response) -> str:
    data = parsed(response.body)
    detail = data.get("detail") or data.get("title") if isinstance(data, dict) else None
    words = " ".join(filter(None, (code_of(response), str(detail or bucket.message_of(response.body))[:300])))
    return "HTTP %d%s" % (response.status, ": " + words if words else "")


def refusal(response: Response, doing: str) -> StoreUnavailable:
    """The error for a response that is neither a success nor a clear "not there"."""
    kind = {403: StoreForbidden, FULL: StoreFull}.get(response.status, StoreUnavailable)
    return kind("%s: %s" % (doing, text_of(response)))


def parsed(text: Any) -> Any:
    """None for anything but JSON."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def object_of(response: Response, doing: str) -> Dict[str, Any]:
    data = parsed(response.body)
    if not isinstance(data, dict):
        raise StoreUnavailable("%s: the response cannot be parsed" % doing)
    return data
