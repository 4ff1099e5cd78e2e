"""One listener to the history: the events that wait for it, why its stream ends, and the bytes on the wire.

The bytes of an event (HTML standard, section Server-sent events) are the same for every listener: the id of its row,
its kind as its name, and the same JSON as in a list as its data. Pings and the opening have an id too, without data: a
client that has received no event yet still says its position when it reconnects. Used on the event loop only.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from fastapi.sse import format_sse_event

from supervisor.domain.callers import Caller
from supervisor.ports.history import EventFilter, StoredEvent
from supervisor.services.reading.history import event_json
from supervisor.services.views.formats import dumps

RETRY_MIN_MS, RETRY_SPREAD_MS = 1000, 3000
WAITING_MAX = 1000  # events that may wait for a listener
WAITING_BYTES = 4 * 2**20

Framed = Sequence[tuple[StoredEvent, bytes]]


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes that are sent together, and the number of events in them."""

    data: bytes
    events: int


NOTHING = Piece(b"", 0)


def framed(events: Sequence[StoredEvent]) -> Framed:
    return [(stored, _frame(stored)) for stored in events]


def _frame(stored: StoredEvent) -> bytes:
    return format_sse_event(data_str=dumps(event_json(stored)), event=str(stored.event.kind), id=str(stored.id))


def piece_of(where: EventFilter, events: Framed) -> Piece:
    """The events of this filter."""
    frames = [frame for stored, frame in events if where.matches(stored)]
    return Piece(b"".join(frames), len(frames)) if frames else NOTHING


def opening(number: int) -> bytes:
    """How long to wait before a reconnect: different for each listener, so that they do not reconnect all at once."""
    return format_sse_event(comment="connected", retry=RETRY_MIN_MS + number * 37 % RETRY_SPREAD_MS)


def here(event_id: int) -> bytes:
    """Every event up to this id was sent."""
    return format_sse_event(id=str(event_id))


def ping(event_id: int) -> Piece:
    return Piece(format_sse_event(comment="ping", id=str(event_id)), 0)


def reset(reason: str, event_id: int) -> bytes:
    """The missed events cannot be sent; the stream goes on after `event_id`."""
    return format_sse_event(data_str=dumps({"reason": reason, "newest": event_id}), event="reset", id=str(event_id))


def ending(why: str) -> bytes:
    return format_sse_event(comment=why)


class Stream:
    """`authorization`: the header that admitted the listener. `client`: its address, None where there is none. `over`:
    why the stream ends, "" = it goes on. `sending_since`: on the loop's clock, None = nothing is being sent."""

    def __init__(self, where: EventFilter, caller: Caller, authorization: str, client: tuple[str, int] | None) -> None:
        self.where, self.caller, self.authorization, self.client = where, caller, authorization, client
        self.over = ""
        self.sending_since: float | None = None
        self.last_put = 0.0
        self._pieces: deque[bytes] = deque()
        self._events = self._bytes = 0  # in the pieces
        self._sleeper: asyncio.Future[None] | None = None

    def put(self, piece: Piece, now: float) -> bool:
        """False: the listener does not keep up. The caller calls `wake` afterwards."""
        events, size = self._events + piece.events, self._bytes + len(piece.data)
        if self._events and (events > WAITING_MAX or size > WAITING_BYTES):
            return False
        self._pieces.append(piece.data)
        self._events, self._bytes = events, size
        self.last_put = now
        return True

    def wake(self) -> None:
        if self._sleeper is not None and not self._sleeper.done():
            self._sleeper.set_result(None)

    def end(self, why: str) -> None:
        """The pieces that wait are dropped."""
        self.over = self.over or why
        self._pieces.clear()
        self.wake()

    async def take(self) -> bytes | None:
        """Everything that waits, as soon as there is something; None = the stream is over."""
        while not self._pieces and not self.over:
            self._sleeper = asyncio.get_running_loop().create_future()
            await self._sleeper
        if self.over:
            return None
        data = b"".join(self._pieces)
        self._pieces.clear()
        self._events = self._bytes = 0
        return data
