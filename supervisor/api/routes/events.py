"""The history: a list of events, or a stream of them where a GET accepts text/event-stream.

A stream begins with the events that its client has missed, in pages from the database, up to the position of the common
reader. Then the listener joins the reader between two steps of the event loop, in which nothing is handed out: no event
is left out, and none comes twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.sse import EventSourceResponse
from starlette import types

from supervisor.api.shapes.parameters import AllEventParameters, EventParameters, RunEventParameters, epoch
from supervisor.api.streams import listener
from supervisor.api.streams.listener import Stream
from supervisor.api.streams.listeners import Streams
from supervisor.api.wire.deps import caller_of, in_slow_thread, services_of
from supervisor.api.wire.route import Routes
from supervisor.domain.callers import Scope
from supervisor.domain.errors import InvalidRequest
from supervisor.ports.history import KEPT_S, EventFilter, History
from supervisor.ports.store import StoreDown
from supervisor.services.reading import history as reading
from supervisor.services.reading.history import EventList, EventQuery

routes = Routes("runs")
MEDIA_TYPE = "text/event-stream"
PAGE = 200
AHEAD_S = 0.1  # how often to look again where another replica has sent more than this one has read
ID_MAX = 2**62
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
OF_LISTS = ("before", "limit", "newest_first", "since", "cloud")
OF_STREAMS = ("kind",)  # no index finds events by their kind
STREAMED: dict[str, Any] = {"media": {200: (MEDIA_TYPE,)}, "takes": ("Last-Event-ID",)}


@routes.on(
    "GET /v1/runs/{run_id}/events",
    Scope.READ,
    {200: EventList},
    refuses="RUN_NOT_FOUND STREAMS_FULL TOO_MANY_STREAMS",
    **STREAMED,
)
async def list_run_events(request: Request, run_id: str, query: RunEventParameters) -> EventList | Response:
    """List the history of a run; with `cloud=true` also what the cloud itself recorded of its machines. With
    `Accept: text/event-stream` a stream that goes on: docs/api.md#live-events."""
    services = services_of(request)
    if wants_stream(request):
        await run_in_threadpool(services.queries.find, run_id)
        return _open_stream(request, query, run_id, None)
    wanted = _query(query, None)

    def work() -> EventList:
        return reading.list_events(services.parts, services.queries.find(run_id), wanted, cloud=query.cloud)

    return await (in_slow_thread(work) if query.cloud else run_in_threadpool(work))


@routes.on("GET /v1/events", Scope.READ, {200: EventList}, refuses="STREAMS_FULL TOO_MANY_STREAMS", **STREAMED)
async def list_events(request: Request, query: AllEventParameters) -> EventList | Response:
    """List the history of all runs and of the supervisor itself; without admin, that of your own runs. With
    `Accept: text/event-stream` a stream that goes on: docs/api.md#live-events."""
    owner = caller_of(request).visible_owner(query.owner)
    if wants_stream(request):
        return _open_stream(request, query, None, owner)
    return await run_in_threadpool(reading.list_events, services_of(request).parts, None, _query(query, owner))


def _query(query: EventParameters, owner: str | None) -> EventQuery:
    """Raises InvalidRequest."""
    _refuse(query, OF_STREAMS, f"is for a stream, which Accept: {MEDIA_TYPE} asks for")
    return EventQuery(
        query.after, query.limit, query.newest_first, epoch(query.since), query.before, owner, query.actor
    )


def _refuse(query: EventParameters, names: Sequence[str], why: str) -> None:
    refused = [name for name in names if name in query.given]
    if refused:
        raise InvalidRequest(f"The query parameter {refused[0]} {why}.", {}, [(f"?{name}", why) for name in refused])


# --- streams ----------------------------------------------------------------------------------------------------------


def wants_stream(request: Request) -> bool:
    if request.method != "GET":
        return False  # a HEAD has an end
    for kind in request.headers.get("accept", "").lower().split(","):
        name, _, rest = kind.partition(";")
        if name.strip() == MEDIA_TYPE:
            return rest.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def _open_stream(request: Request, query: EventParameters, run_id: str | None, owner: str | None) -> Response:
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
    return _EventStream(streams, stream, streams.admit(stream), start)


def _last_seen(request: Request) -> int | None:
    """Of a client that reconnects. The header wins over the parameter, which the client repeats unchanged. Raises
    InvalidRequest."""
    header = request.headers.get("last-event-id", "").strip()
    if not header:
        return None
    if not (header.isascii() and header.isdigit()) or len(header) > 19 or int(header) > ID_MAX:
        reason = "must be the id of an event"
        raise InvalidRequest(f"The header Last-Event-ID {reason}.", {}, [("Last-Event-ID", reason)])
    return int(header)


class _EventStream(EventSourceResponse):
    def __init__(self, streams: Streams, stream: Stream, number: int, start: int | None) -> None:
        super().__init__(_sent(streams, stream, number, start), headers=HEADERS)
        self._streams, self._stream = streams, stream

    async def __call__(self, scope: types.Scope, receive: types.Receive, send: types.Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._streams.leave(self._stream)


async def _sent(streams: Streams, stream: Stream, number: int, start: int | None) -> AsyncIterator[bytes]:
    """Notes when each piece was given to the client: one that never ends belongs to a client that reads nothing."""
    loop = asyncio.get_running_loop()
    async for data in _pieces(streams, stream, number, start):
        stream.sending_since = loop.time()
        yield data
        stream.sending_since = None


async def _pieces(streams: Streams, stream: Stream, number: int, start: int | None) -> AsyncIterator[bytes]:
    yield listener.opening(number)
    try:
        position = await streams.beginning()
        if stream.over:
            pass
        elif start is None:
            yield listener.here(position)
        else:
            why = await run_in_threadpool(_why_reset, streams.history, start, streams.clock.now())
            if why:
                yield listener.reset(why, position)
            else:
                position = start
        async for data in _missed(streams, stream, position):
            yield data
    except StoreDown:
        stream.end("the database is unavailable")
    while (piece := await stream.take()) is not None:
        yield piece
    yield listener.ending(stream.over)


async def _missed(streams: Streams, stream: Stream, position: int) -> AsyncIterator[bytes]:
    """The events between `position` and the reader. When there are none, the stream has joined it. Raises
    StoreDown."""
    while not stream.over:
        passed = await streams.beginning()
        if position == passed:
            streams.join(stream)
            return
        if position > passed:
            await asyncio.sleep(AHEAD_S)
            continue
        events, position = await run_in_threadpool(streams.history.between, stream.where, position, passed, PAGE)
        if events:
            yield listener.piece_of(stream.where, listener.framed(events)).data


def _why_reset(history: History, last_seen: int, now: float) -> str:
    """Why the events since this one cannot be sent; "" = they can. Raises StoreDown."""
    if last_seen > history.newest():
        return "unknown"  # an event of another database
    if last_seen == 0:
        return ""  # from the first event that still exists
    at = history.time_of(last_seen)
    return "too_old" if at is None or at < now - KEPT_S else ""
