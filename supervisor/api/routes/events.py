"""The history: as a list, or as a stream that goes on, where a GET asks for text/event-stream.

What a stream has missed comes first, in pages from the database, up to where the common reader is. Then the listener
joins the reader between two steps of the event loop, in which nothing is handed out: no gap and no double.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.sse import EventSourceResponse
from starlette import types

from supervisor.api.shapes import answers, bodies
from supervisor.api.shapes.bodies import EventParameters, epoch
from supervisor.api.streams import listener
from supervisor.api.streams.listener import Stream
from supervisor.api.streams.listeners import Streams
from supervisor.api.wire.deps import caller_of, in_slow_thread, services_of
from supervisor.api.wire.route import Routes
from supervisor.domain.callers import Scope
from supervisor.domain.errors import InvalidRequest
from supervisor.ports.history import KEPT_S, EventFilter, History
from supervisor.ports.store import StoreDown
from supervisor.services.reading.queries import Only
from supervisor.services.views.run_view import Json

routes = Routes("runs")
MEDIA_TYPE = "text/event-stream"
PAGE = 200
AHEAD_S = 0.1  # another replica has told more than we have read: looked at again so often
ID_MAX = 2**62
HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
OF_LISTS = ("before", "limit", "newest_first", "since", "cloud")
OF_STREAMS = ("kind",)
STREAMED: dict[str, Any] = {"media": {200: (MEDIA_TYPE,)}, "takes": ("Last-Event-ID",)}


def wants_stream(request: Request) -> bool:
    if request.method != "GET":
        return False  # a HEAD has an end
    for kind in request.headers.get("accept", "").lower().split(","):
        name, _, rest = kind.partition(";")
        if name.strip() == MEDIA_TYPE:
            return rest.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def open_stream(request: Request, query: EventParameters, run_id: str | None, owner: str | None = None) -> Response:
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
        raise InvalidRequest(f"The query parameter {found[0]} {why}.", {}, [(f"?{name}", why) for name in found])


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

    async def __call__(self, scope: types.Scope, receive: types.Receive, send: types.Send) -> None:
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
    yield listener.opening(number)
    try:
        position = await streams.beginning()
        if stream.over:
            pass
        elif start is None:
            yield listener.here(position)
        else:
            why = await run_in_threadpool(why_reset, streams.history, start, streams.clock.now())
            if why:
                yield listener.reset(why, position)
            else:
                position = start
        async for data in _missed(streams, stream, position):
            yield data
    except StoreDown:
        stream.end("the database is away")
    while (taken := await stream.take()) is not None:
        yield taken
    yield listener.ending(stream.over)


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
        found, position = await run_in_threadpool(streams.history.between, stream.where, position, passed, PAGE)
        if found:
            yield listener.piece_of(stream.where, listener.framed(found)).data


def why_reset(history: History, last_seen: int, now: float) -> str:
    """Why a listener cannot be told what it has missed since this event; "" = it can. Raises StoreDown."""
    if last_seen > history.newest():
        return "unknown"  # an event of another database
    if last_seen == 0:
        return ""  # whatever there is
    at = history.time_of(last_seen)
    return "too_old" if at is None or at < now - KEPT_S else ""


@routes.on(
    "GET /v1/runs/{run_id}/events",
    Scope.READ,
    answers.EventList,
    refuses="RUN_NOT_FOUND STREAMS_FULL TOO_MANY_STREAMS",
    **STREAMED,
)
async def list_run_events(request: Request, run_id: str, query: bodies.RunEventParameters) -> object:
    """List the history of a run; with `cloud=true` also what the cloud itself recorded of its machines. With
    `Accept: text/event-stream` a stream that goes on: docs/api.md#live-events."""
    if wants_stream(request):
        await run_in_threadpool(services_of(request).queries.find, run_id)
        return open_stream(request, query, run_id)
    return await _events(request, run_id, query, query.cloud)


@routes.on("GET /v1/events", Scope.READ, answers.EventList, refuses="STREAMS_FULL TOO_MANY_STREAMS", **STREAMED)
async def list_events(request: Request, query: bodies.AllEventParameters) -> object:
    """List the history of all runs and of the supervisor itself; without admin, that of one's own runs. With
    `Accept: text/event-stream` a stream that goes on: docs/api.md#live-events."""
    if wants_stream(request):
        return open_stream(request, query, None, caller_of(request).visible_owner(query.owner))
    return await _events(request, None, query, owner=caller_of(request).visible_owner(query.owner))


async def _events(
    request: Request, run_id: str | None, query: EventParameters, cloud: bool = False, owner: str | None = None
) -> Json:
    refuse_of_streams(query)
    events, since = services_of(request).queries.events, epoch(query.since)
    page = (run_id, query.after, query.limit, query.newest_first, since)
    only = Only(owner, query.actor, query.before)
    threads = in_slow_thread if cloud else run_in_threadpool  # the cloud is asked for its own
    return await threads(events, *page, cloud, only)
