"""One listener to the history: what waits to be sent to it, why it ends, and what goes over the wire.

The bytes of an event (HTML standard, section Server-sent events) are the same for everybody: the id of its row, its
kind as its name, and the JSON of the list as its data. Pings and the opening carry an id too, without data: a client
that never saw an event it asked for still says where it was when it comes back. Used on the event loop only.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from fastapi.sse import format_sse_event

from supervisor.domain.callers import Caller
from supervisor.ports.history import EventFilter, StoredEvent
from supervisor.services.reading.queries import event_json
from supervisor.services.views.run_view import dumps

Framed = Sequence[tuple[StoredEvent, bytes]]
RETRY_MIN_MS, RETRY_SPREAD_MS = 1000, 3000


@dataclass(frozen=True, slots=True)
class Piece:
    """Bytes to be sent in one go, and how many events they hold."""

    data: bytes
    events: int


NOTHING = Piece(b"", 0)


def framed(found: Sequence[StoredEvent]) -> Framed:
    return [(stored, _frame(stored)) for stored in found]


def _frame(stored: StoredEvent) -> bytes:
    return format_sse_event(data_str=dumps(event_json(stored)), event=str(stored.event.kind), id=str(stored.id))


def piece_of(where: EventFilter, events: Framed) -> Piece:
    """Those that this listener asks for."""
    mine = [frame for stored, frame in events if where.matches(stored)]
    return Piece(b"".join(mine), len(mine)) if mine else NOTHING


def opening(number: int) -> bytes:
    """How long to wait before coming back; different for each listener, so that they do not come all at once."""
    return format_sse_event(comment="connected", retry=RETRY_MIN_MS + number * 37 % RETRY_SPREAD_MS)


def here(event_id: int) -> bytes:
    """Everything up to this id is told."""
    return format_sse_event(id=str(event_id))


def ping(event_id: int) -> Piece:
    return Piece(format_sse_event(comment="ping", id=str(event_id)), 0)


def reset(reason: str, event_id: int) -> bytes:
    """What was missed cannot be told; the stream goes on behind `event_id`."""
    return format_sse_event(data_str=dumps({"reason": reason, "newest": event_id}), event="reset", id=str(event_id))


def ending(why: str) -> bytes:
    return format_sse_event(comment=why)


WAITING_MAX = 1000  # events that a listener may be behind
WAITING_BYTES = 4 * 2**20


class Stream:
    """`authorization`: the header by which the listener was let in; `client`: its address, None where there is none.
    `over`: why the stream ends, "" = it goes on. `sending_since`: on the loop's clock, None = nothing is being sent."""

    def __init__(self, where: EventFilter, caller: Caller, authorization: str, client: tuple[str, int] | None) -> None:
        self.where, self.caller, self.authorization, self.client = where, caller, authorization, client
        self.over = ""
        self.sending_since: float | None = None
        self.last_put = 0.0
        self._pieces: deque[bytes] = deque()
        self._waiting = self._bytes = 0  # events in there
        self._sleeper: asyncio.Future[None] | None = None

    def put(self, piece: Piece, now: float) -> bool:
        """False: it does not keep up. `wake` is called afterwards."""
        events, size = self._waiting + piece.events, self._bytes + len(piece.data)
        if self._waiting and (events > WAITING_MAX or size > WAITING_BYTES):
            return False
        self._pieces.append(piece.data)
        self._waiting, self._bytes = events, size
        self.last_put = now
        return True

    def wake(self) -> None:
        if self._sleeper is not None and not self._sleeper.done():
            self._sleeper.set_result(None)

    def end(self, why: str) -> None:
        """What waits is not sent any more."""
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
        taken = self._pieces.popleft() if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self._waiting = self._bytes = 0
        return taken
