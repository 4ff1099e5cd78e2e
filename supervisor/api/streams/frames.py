"""What goes over the wire of an event stream (HTML standard, section Server-sent events): the same bytes for everybody.

An event has the id of its row, its kind as its name, and the JSON of the list as its data. Pings and the opening carry
an id too, without data: a client that never saw an event it asked for still says where it was when it comes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fastapi.sse import format_sse_event

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
    return format_sse_event(
        data_str=dumps(event_json(stored)), event=str(stored.event.kind), id=str(stored.id)
    )


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
    return format_sse_event(
        data_str=dumps({"reason": reason, "newest": event_id}), event="reset", id=str(event_id)
    )


def ending(why: str) -> bytes:
    return format_sse_event(comment=why)
