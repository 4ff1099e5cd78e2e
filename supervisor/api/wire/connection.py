"""One connection of a client: how long it is waited for, and what is answered to bytes that are no HTTP.

uvicorn bounds only how long a connection may idle between two requests. Whoever sends a head or a body drop by drop,
or takes nothing of an answer, would keep a connection for as long as he likes, and the connections of a process are
few. So each wait for a client has an end here, and of those that have not sent the head of a request the longest
waiting one goes where there are too many: a client that means it sends its head at once.

A client that still sends its body when it has its answer (413, 401, …) is read from for a while before the connection
is closed. Closing at once would reset it, and most clients then never see the answer (nginx's lingering_close).

Timers are set where a request comes in pieces only: one that lies in one packet costs a look at a state.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from supervisor.api.errors import InvalidHttp, problem_of

HEAD_MAX_BYTES = 16 * 1024
# What h11 reads and another server in the way may read differently: a header that goes on in the next line, and the
# length of the body given twice, on two lines or in a list (RFC 9112, sections 5.2 and 6.3).
_AMBIGUOUS = re.compile(
    rb"\n[ \t]|\ncontent-length:[^\n]*,|\ncontent-length:.*\ncontent-length:", re.IGNORECASE | re.DOTALL
)
_HEAD_END = re.compile(rb"\n\r?\n")


@dataclass(frozen=True, slots=True)
class Patience:
    """`head_s`: for the head of a request. `body_s`: within so long at least `body_bytes` of a body must come, or its
    end. `rest_s`: for the rest of a body when its request is answered already, `rest_bytes` of it at most where the
    connection ends with that answer. `taking_s`: for a client that takes nothing of its answer. `waiting_most`:
    connections that may be without a head at once."""

    head_s: float = 10.0
    body_s: float = 10.0
    body_bytes: int = 10_000
    rest_s: float = 10.0
    rest_bytes: int = 256_000_000
    taking_s: float = 60.0
    waiting_most: int = 200


def protocol(patience: Patience) -> type[H11Protocol]:
    """For one server: the class of its connections, which know of each other who waits."""
    waiting: dict[_Connection, None] = {}  # the longest waiting first
    name = {"patience": patience, "waiting": waiting}
    return type("Connection", (_Connection,), name)


class _Transport:
    """The connection's transport, whose `close` lets the connection read on for a while."""

    def __init__(self, real: asyncio.Transport, close: Callable[[], None]) -> None:
        self._real, self.close = real, close

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class _Connection(H11Protocol):
    patience: Patience
    waiting: dict[_Connection, None]
    _awaited = ""  # what is waited for: head, body, rest; "" = nothing, or it idles between two requests
    _timer: asyncio.TimerHandle | None = None
    _taking: asyncio.TimerHandle | None = None
    _came = 0  # bytes since the timer was set
    _lingers = False  # answered and closed on our side; the rest of the body is read and dropped

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
        self._came += len(data)
        if self._lingers:
            if self._came > self.patience.rest_bytes:
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
        """Close; a client in the middle of its body gets its answer first."""
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
        """Of bytes that are no HTTP, and of a head without end."""
        answer = problem_of(InvalidHttp("This is no HTTP that can be read."), "", "")
        kept = [header for header in answer.raw_headers if header[0] != b"connection"]
        event = h11.Response(status_code=400, headers=[*kept, (b"connection", b"close")], reason=b"Bad Request")
        for part in (event, h11.Data(data=bytes(answer.body)), h11.EndOfMessage()):
            self.transport.write(self.conn.send(part) or b"")
        self._real.close()

    def _await(self, what: str, longest_s: float = 0.0) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if what != "head":
            self.waiting.pop(self, None)
        self._awaited, self._came = what, 0
        if what:
            self._timer = self.loop.call_later(longest_s, self._late)

    def _late(self) -> None:
        """What was waited for has not come. A body may be long: it must only go on, and may be waiting for us."""
        self._timer = None
        our_turn = self.flow.read_paused or self.conn.they_are_waiting_for_100_continue
        if self._awaited == "body" and (our_turn or self._came >= self.patience.body_bytes):
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
    """`data` begins with the head of a request, or with a part of it."""
    end = _HEAD_END.search(data)
    return bool(_AMBIGUOUS.search(data, 0, end.start() if end else len(data)))
