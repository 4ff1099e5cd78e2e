"""All listeners to the history of this server, and the one reader that serves them.

The reader's thread makes the bytes of each event once and gives whole pieces to the event loop. The loop puts the same
bytes into the queues of all listeners that want them, and wakes the listeners a few at a time, so that other requests
are served between. A listener that does not keep up, or reads nothing for a while, is disconnected: it reconnects and
says which event it received last.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from fastapi.concurrency import run_in_threadpool

from supervisor.api.errors import StreamsFull, TooManyStreams
from supervisor.api.streams.listener import Framed, Piece, Stream, framed, piece_of, ping
from supervisor.domain.callers import Caller, Scope
from supervisor.domain.errors import Unauthorized, Unavailable
from supervisor.ports.clock import Clock
from supervisor.ports.history import EventFilter, History, StoredEvent
from supervisor.ports.store import StoreDown
from supervisor.services.reading.following import Follower
from supervisor.telemetry import logs as telemetry
from supervisor.telemetry import metrics

LOG = logging.getLogger(__name__)
SLICE = 25  # listeners that are woken together
HAND_OUT_S = 0.25  # how long the reader waits at most until all are served

Cut = Callable[[tuple[str, int] | None], None]
Identify = Callable[[str, str], Caller]


@dataclass(frozen=True, slots=True)
class Limits:
    """`streams`: of this server. `each`: of one token. `ping_s`: how often a listener receives something at least.
    `look_s`: how often tokens are checked again and hanging listeners are looked for. `hang_s`: how long a listener may
    read nothing."""

    streams: int = 500
    each: int = 100
    ping_s: float = 15.0
    look_s: float = 4.0
    hang_s: float = 20.0


@dataclass(frozen=True, slots=True)
class _Batch:
    """What the reader has read: the bytes of each event, the piece of each filter, and the last id."""

    events: Framed
    pieces: Mapping[EventFilter, Piece]
    passed: int


def _cut_nothing(client: tuple[str, int] | None) -> None:
    """A `Cut` without a server."""


class Streams:
    """Everything but the reader's callbacks runs on the event loop. `cut` breaks a connection at once."""

    def __init__(self, history: History, clock: Clock, identify: Identify, limits: Limits) -> None:
        self.history, self.clock = history, clock
        self.cut: Cut = _cut_nothing
        self.passed: int | None = None  # everything up to this id was handed out; None: not known yet
        self._identify, self._limits = identify, limits
        self._admitted: dict[Stream, None] = {}
        self._joined: dict[Stream, None] = {}
        self._wanted: Counter[EventFilter] = Counter()  # of the joined streams
        self._number = 0
        self._closing = False
        self._follower: Follower | None = None
        self._watching: asyncio.Task[None] | None = None
        self._position_known = asyncio.Event()
        history.on_written(self._wake)

    # --- one listener -------------------------------------------------------------------------------------------------

    def admit(self, stream: Stream) -> int:
        """The number of this stream. The caller must call `leave` at its end. Raises StreamsFull, TooManyStreams,
        Unavailable."""
        if self._closing:
            raise Unavailable("The supervisor is stopping. The request can be repeated.", {"part": "server"})
        if len(self._admitted) >= self._limits.streams:
            raise StreamsFull(
                "This server has as many open event streams as it allows.", {"limit": self._limits.streams}
            )
        token_id = stream.caller.token_id
        same = sum(other.caller.token_id == token_id for other in self._admitted) if token_id else 0
        if same >= self._limits.each:
            raise TooManyStreams(
                "This token has as many open event streams as one token may have.", {"limit": self._limits.each}
            )
        self._admitted[stream] = None
        metrics.STREAMS_OPEN.add()
        self._number += 1
        self._begin()
        return self._number

    def leave(self, stream: Stream) -> None:
        if stream not in self._admitted:
            return
        del self._admitted[stream]
        metrics.STREAMS_OPEN.add(by=-1)
        if stream in self._joined:
            del self._joined[stream]
            self._wanted[stream.where] -= 1
            if not self._wanted[stream.where]:
                del self._wanted[stream.where]
        if not self._admitted:
            self._rest()

    async def beginning(self) -> int:
        """The id up to which everything was handed out, as soon as that is known; 0 where all streams are over."""
        await self._position_known.wait()
        return self.passed or 0

    def join(self, stream: Stream) -> None:
        """From now on it receives what is handed out. It must have everything up to `passed`."""
        stream.last_put = self._now()
        self._joined[stream] = None
        self._wanted[stream.where] += 1

    def close(self) -> None:
        """The server ends: every stream says so and ends; a listener that hangs is disconnected."""
        self._closing = True
        self._position_known.set()
        for stream in list(self._admitted):
            self._end(stream, "the supervisor is stopping")

    def drop(self, stream: Stream, why: str) -> None:
        metrics.STREAMS_DROPPED.add(why)
        self._end(stream, why)

    def _end(self, stream: Stream, why: str) -> None:
        stream.end(why)
        if stream.sending_since is not None:
            self.cut(stream.client)

    # --- the reader ---------------------------------------------------------------------------------------------------

    def _begin(self) -> None:
        if self._follower is not None:
            return
        loop = asyncio.get_running_loop()
        handed = threading.Event()

        def hand_out(events: Sequence[StoredEvent], passed: int) -> None:
            frames = framed(events)
            pieces = {where: piece_of(where, frames) for where in list(self._wanted)}
            handed.clear()
            if _on(loop, self._take_over, follower, _Batch(frames, pieces, passed), handed):
                handed.wait(HAND_OUT_S)

        def over() -> None:
            _on(loop, self._lost, follower)

        follower = self._follower = Follower(self.history, self.clock, hand_out, over)
        self._position_known = asyncio.Event()
        self._watching = loop.create_task(self._watch())
        self._watching.add_done_callback(partial(self._watched, follower))
        follower.begin()

    def _rest(self) -> None:
        """Without listeners nothing is read."""
        if self._follower is not None:
            self._follower.end()
        if self._watching is not None:
            self._watching.cancel()
        self._follower = self._watching = self.passed = None

    def _wake(self) -> None:
        """From any thread."""
        follower = self._follower
        if follower is not None:
            follower.wake()

    def _lost(self, follower: Follower) -> None:
        """The reader has ended by a bug: the listeners reconnect, and a new reader starts."""
        if follower is self._follower:
            for stream in list(self._admitted):
                self.drop(stream, "lost")
            self._position_known.set()
            self._rest()

    def _take_over(self, follower: Follower, batch: _Batch, handed: threading.Event) -> None:
        if follower is not self._follower:
            return
        self.passed = batch.passed
        self._position_known.set()
        now, served = self._now(), []
        for stream in list(self._joined):
            piece = batch.pieces.get(stream.where) or piece_of(stream.where, batch.events)
            if not piece.events:
                continue
            if stream.put(piece, now):
                served.append(stream)
            else:
                self.drop(stream, "slow")
        self._wake_some(served, 0, handed)

    def _wake_some(self, served: Sequence[Stream], start: int, handed: threading.Event) -> None:
        following = start + SLICE
        for stream in served[start:following]:
            stream.wake()
        loop = asyncio.get_running_loop()
        if following < len(served):
            loop.call_soon(self._wake_some, served, following, handed)
        else:
            loop.call_soon(handed.set)  # after the streams that were just woken have sent

    # --- looking after them -------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(self._limits.look_s)
            self._cut_hanging()
            self._ping()
            await self._end_revoked()

    def _watched(self, follower: Follower, watching: asyncio.Task[None]) -> None:
        error = None if watching.cancelled() else watching.exception()
        if error is not None:
            extra = {telemetry.ACTION: "streams", telemetry.ERROR: type(error).__name__}
            LOG.error("The watch over the event streams has failed; all of them end.", exc_info=error, extra=extra)
            self._lost(follower)

    def _cut_hanging(self) -> None:
        now = self._now()
        for stream in list(self._admitted):
            since = stream.sending_since
            if since is not None and now - since >= self._limits.hang_s:
                self.drop(stream, "slow")

    def _ping(self) -> None:
        if self.passed is None:
            return
        now, piece = self._now(), ping(self.passed)
        for stream in list(self._joined):
            if now - stream.last_put > self._limits.ping_s - self._limits.look_s:
                stream.put(piece, now)
                stream.wake()

    async def _end_revoked(self) -> None:
        """A token that was revoked or has expired ends its streams."""
        headers = {stream.authorization for stream in self._admitted}
        refused = await run_in_threadpool(lambda: {header for header in headers if not self._may_read(header)})
        for stream in list(self._admitted):
            if stream.authorization in refused:
                self.drop(stream, "revoked")

    def _may_read(self, authorization: str) -> bool:
        try:
            return self._identify(authorization, "").may(Scope.READ)
        except Unauthorized:
            return False
        except StoreDown:
            return True  # not known; the next check comes soon

    def _now(self) -> float:
        return asyncio.get_running_loop().time()


def _on(loop: asyncio.AbstractEventLoop, act: Callable[..., None], *values: object) -> bool:
    """From another thread; False where the loop has ended."""
    try:
        loop.call_soon_threadsafe(act, *values)
    except RuntimeError:
        return False
    return True
