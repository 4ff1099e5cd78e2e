"""A GET of the history that asks for text/event-stream, answered by a stream that goes on.

What was missed comes first, in pages from the database, up to where the common reader is. Then the listener joins the
reader between two steps of the event loop, in which nothing is handed out: no gap and no double.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.sse import EventSourceResponse
from starlette.types import Receive, Scope, Send

from supervisor.api.shapes.bodies import EventParameters
from supervisor.api.streams.frames import ending, framed, here, opening, piece_of, reset
from supervisor.api.streams.listener import Stream
from supervisor.api.streams.listeners import Streams
from supervisor.api.wire.deps import caller_of
from supervisor.domain.errors import InvalidRequest
from supervisor.ports.history import KEPT_S, EventFilter, History
from supervisor.ports.store import StoreDown

MEDIA_TYPE = "text/event-stream"
PAGE = 200
AHEAD_S = 0.1  # another replica has told more than we have read: looked at again so often
ID_MAX = 2**62
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
OF_LISTS = ("before", "limit", "newest_first", "since", "cloud")
OF_STREAMS = ("kind",)


def wants_stream(request: Request) -> bool:
    if request.method != "GET":
        return False  # a HEAD has an end
    for kind in request.headers.get("accept", "").lower().split(","):
        name, _, rest = kind.partition(";")
        if name.strip() == MEDIA_TYPE:
            return rest.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def open_stream(
    request: Request, query: EventParameters, run_id: str | None, owner: str | None = None
) -> Response:
    """Raises InvalidRequest, StreamsFull, TooManyStreams, Unavailable."""
    _refuse(query, OF_LISTS, "is for lists, not for a stream")
    start = _last_seen(request)
    if start is None and "after" in query.model_fields_set:
        start = query.after
    streams: Streams = request.app.state.streams
    where = EventFilter(run_id, owner, query.actor, frozenset(query.kind))
    client = request.client
    address = None if client is None else (client.host, client.port)
    stream = Stream(where, caller_of(request), request.headers.get("authorization", ""), address)
    return _Answer(streams, stream, streams.admit(stream), start)


def refuse_of_streams(query: EventParameters) -> None:
    """For lists: no index finds events by their kind. Raises InvalidRequest."""
    _refuse(query, OF_STREAMS, f"is for a stream, which Accept: {MEDIA_TYPE} asks for")


def _refuse(query: EventParameters, names: Sequence[str], why: str) -> None:
    found = [name for name in names if name in query.given]
    if found:
        raise InvalidRequest(
            f"The query parameter {found[0]} {why}.", {}, [(f"?{name}", why) for name in found]
        )


def _last_seen(request: Request) -> int | None:
    """Of a client that comes back; the header counts more than a parameter, which it repeats unchanged. Raises
    InvalidRequest."""
    given = request.headers.get("last-event-id", "").strip()
    if not given:
        return None
    if not (given.isascii() and given.isdigit()) or len(given) > 19 or int(given) > ID_MAX:
        reason = "must be the id of an event"
        raise InvalidRequest(f"The header Last-Event-ID {reason}.", {}, [("Last-Event-ID", reason)])
    return int(given)


class _Answer(EventSourceResponse):
    def __init__(self, streams: Streams, stream: Stream, number: int, start: int | None) -> None:
        super().__init__(_sent(streams, stream, number, start), headers=HEADERS)
        self._streams, self._stream = streams, stream

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams.leave(self._stream)


async def _sent(streams: Streams, stream: Stream, number: int, start: int | None) -> AsyncIterator[bytes]:
    """What is sent, with a note of when each sending began: one that does not end is somebody who takes nothing."""
    loop = asyncio.get_running_loop()
    async for data in _told(streams, stream, number, start):
        stream.sending_since = loop.time()
        yield data
        stream.sending_since = None


async def _told(streams: Streams, stream: Stream, number: int, start: int | None) -> AsyncIterator[bytes]:
    yield opening(number)
    try:
        position = await streams.beginning()
        if stream.over:
            pass
        elif start is None:
            yield here(position)
        else:
            why = await run_in_threadpool(why_reset, streams.history, start, streams.clock.now())
            if why:
                yield reset(why, position)
            else:
                position = start
        async for data in _missed(streams, stream, position):
            yield data
    except StoreDown:
        stream.end("the database is away")
    while (taken := await stream.take()) is not None:
        yield taken
    yield ending(stream.over)


async def _missed(streams: Streams, stream: Stream, position: int) -> AsyncIterator[bytes]:
    """What lies between `position` and the reader; when that is nothing, the stream has joined it. Raises StoreDown."""
    while not stream.over:
        passed = await streams.beginning()
        if position == passed:
            streams.join(stream)
            return
        if position > passed:
            await asyncio.sleep(AHEAD_S)
            continue
        found, position = await run_in_threadpool(
            streams.history.between, stream.where, position, passed, PAGE
        )
        if found:
            yield piece_of(stream.where, framed(found)).data


def why_reset(history: History, last_seen: int, now: float) -> str:
    """Why a listener cannot be told what it has missed since this event; "" = it can. Raises StoreDown."""
    if last_seen > history.newest():
        return "unknown"  # an event of another database
    if last_seen == 0:
        return ""  # whatever there is
    at = history.time_of(last_seen)
    return "too_old" if at is None or at < now - KEPT_S else ""
