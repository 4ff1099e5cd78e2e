"""One connection of a client: the time limits of each wait, and the response to bytes that are not HTTP.

uvicorn limits only the idle time between two requests. A client that sends a head or a body byte by byte, or reads
nothing of a response, would keep its connection for any time, and a process has few connections. So each wait for a
client has a limit here. Where too many connections have not sent the head of a request, the one that has waited longest
is closed: an honest client sends its head at once.

A client that still sends its body when it gets its response (413, 401, ...) is read from for a while before the
connection is closed. An immediate close would reset the connection, and most clients would never see the response
(nginx's lingering_close).

Timers are set only where a request arrives in pieces; a request in one packet costs one comparison of states.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from supervisor.api.errors import InvalidHttp, problem

HEAD_MAX_BYTES = 16 * 1024
# h11 accepts these, and a proxy may read them differently: a header that continues on the next line, and the length of
# the body given twice, on two lines or in a list (RFC 9112, sections 5.2 and 6.3).
_AMBIGUOUS = re.compile(
    rb"\n[ \t]|\ncontent-length:[^\n]*,|\ncontent-length:.*\ncontent-length:", re.IGNORECASE | re.DOTALL
)
_HEAD_END = re.compile(rb"\n\r?\n")


@dataclass(frozen=True, slots=True)
class Patience:
    """`head_s`: for the head of a request. `body_s`: in this time at least `body_bytes` of a body must arrive, or its
    end. `rest_s`: for the rest of a body after the response, `rest_bytes` of it at most where the connection ends with
    that response. `taking_s`: for a client that reads nothing of its response. `waiting_most`: connections without a
    head at the same time."""

    head_s: float = 10.0
    body_s: float = 10.0
    body_bytes: int = 10_000
    rest_s: float = 10.0
    rest_bytes: int = 256_000_000
    taking_s: float = 60.0
    waiting_most: int = 200


def protocol(patience: Patience) -> type[H11Protocol]:
    """The class of the connections of one server."""
    waiting: dict[_Connection, None] = {}  # shared by all of them; the one that has waited longest comes first
    return type("Connection", (_Connection,), {"patience": patience, "waiting": waiting})


class _Transport:
    """The connection's transport, whose `close` lets the connection read on for a while."""

    def __init__(self, real: asyncio.Transport, close: Callable[[], None]) -> None:
        self._real, self.close = real, close

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class _Connection(H11Protocol):
    patience: Patience
    waiting: dict[_Connection, None]
    _awaited = ""  # head, body or rest; "" = nothing, or the connection is idle between two requests
    _timer: asyncio.TimerHandle | None = None
    _taking: asyncio.TimerHandle | None = None
    _received = 0  # bytes since the timer was set
    _lingers = False  # the response is sent and our side closed; the rest of the body is read and dropped

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._real = transport
        self.transport = _Transport(transport, self._close)  # type: ignore[assignment]
        self._await("head", self.patience.head_s)
        self.waiting[self] = None
        if len(self.waiting) > self.patience.waiting_most:
            next(iter(self.waiting))._give_up()

    def connection_lost(self, exc: Exception | None) -> None:
        self._await("")
        self._taken()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        if self._lingers:
            if self._received > self.patience.rest_bytes:
                self._give_up()
            return
        super().data_received(data)
        if self.conn.their_state is h11.SEND_BODY:
            if self._awaited not in ("body", "rest"):
                self._await("body", self.patience.body_s)
        elif self.conn.their_state is h11.IDLE:
            if self._awaited != "head":
                self._await("head", self.patience.head_s)
        elif self._awaited:
            self._await("")

    def handle_events(self) -> None:
        if self.conn.their_state is h11.IDLE and _is_ambiguous(self.conn.trailing_data[0]):
            self.send_400_response("")
            return
        super().handle_events()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.conn.their_state is h11.SEND_BODY and not self.transport.is_closing() and not self._lingers:
            self._await("rest", self.patience.rest_s)

    def _close(self) -> None:
        """A client in the middle of its body gets its response first."""
        sending = self.conn.their_state is h11.SEND_BODY and not self.conn.they_are_waiting_for_100_continue
        if self._lingers or not sending or not self._real.can_write_eof():
            self._real.close()
            return
        self._lingers = True
        self._real.write_eof()
        self.flow.resume_reading()
        self._await("rest", self.patience.rest_s)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._taking = self.loop.call_later(self.patience.taking_s, self._give_up)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._taken()

    def send_400_response(self, msg: str) -> None:
        """For bytes that are not HTTP, and for a head without end."""
        refusal = problem(InvalidHttp("This is not HTTP that this server can read."), "", "")
        headers = [header for header in refusal.raw_headers if header[0] != b"connection"]
        event = h11.Response(status_code=400, headers=[*headers, (b"connection", b"close")], reason=b"Bad Request")
        for part in (event, h11.Data(data=bytes(refusal.body)), h11.EndOfMessage()):
            self.transport.write(self.conn.send(part) or b"")
        self._real.close()

    def _await(self, what: str, longest_s: float = 0.0) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if what != "head":
            self.waiting.pop(self, None)
        self._awaited, self._received = what, 0
        if what:
            self._timer = self.loop.call_later(longest_s, self._late)

    def _late(self) -> None:
        """The time is over. A long body is fine as long as it goes on, and while it waits for this server."""
        self._timer = None
        our_turn = self.flow.read_paused or self.conn.they_are_waiting_for_100_continue
        if self._awaited == "body" and (our_turn or self._received >= self.patience.body_bytes):
            self._await("body", self.patience.body_s)
        else:
            self._give_up()

    def _taken(self) -> None:
        if self._taking is not None:
            self._taking.cancel()
            self._taking = None

    def _give_up(self) -> None:
        self._await("")
        self.transport.abort()


def _is_ambiguous(data: bytes) -> bool:
    """`data` starts with the head of a request, or with a part of it."""
    end = _HEAD_END.search(data)
    return bool(_AMBIGUOUS.search(data, 0, end.start() if end else len(data)))
