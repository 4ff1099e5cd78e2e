"""One listener to the history: what waits to be sent to it, and why it ends. Used on the event loop only."""

from __future__ import annotations

import asyncio
from collections import deque

from supervisor.api.streams.frames import Piece
from supervisor.domain.access.callers import Caller
from supervisor.ports.history import EventFilter

WAITING_MAX = 1000  # events that a listener may be behind
WAITING_BYTES = 4 * 2**20


class Stream:
    """`authorization`: the header by which the listener was let in; `client`: its address, None where there is none.
    `over`: why the stream ends, "" = it goes on. `sending_since`: on the loop's clock, None = nothing is being sent."""

    def __init__(
        self, where: EventFilter, caller: Caller, authorization: str, client: tuple[str, int] | None
    ) -> None:
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
