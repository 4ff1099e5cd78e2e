"""The stream of one open page: the API's stream of events, turned on the way into what the page puts in place.

A page that shows rows gets the new row of each run that it shows and that changed. Every page is told to look again,
which it does at the pace that comes with it: what one event makes all open pages ask for is spread, so that a thousand
eyes cost no more than twenty. The API decides who hears what, ends streams and cuts off who does not keep up; here
nothing waits but what is on its way to the listener.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from starlette.datastructures import MutableHeaders
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from supervisor.dashboard.live.frames import Told, look, told
from supervisor.dashboard.live.rows import Rows
from supervisor.dashboard.public_api import Api, Query

ROWS_MOST = 100  # of one page; further ones are seen when the page looks again (static/live.js)
CHANGED_MOST = 20  # changed runs in one piece; with more of them the page as a whole is quicker
SPACING_MS = 50  # between two pages that look again because of the same event
HEADERS = {"Content-Type": "text/event-stream", "Cache-Control": "no-store", "X-Accel-Buffering": "no"}


@dataclass(frozen=True, slots=True)
class Wish:
    """What a page shows: one run, or the rows of some. `run` "" = any."""

    run: str = ""
    rows: Collection[str] = frozenset()

    @property
    def path(self) -> str:
        return f"/v1/runs/{self.run}/events" if self.run else "/v1/events"


class Pages:
    """All open pages of this server. Used on the event loop only."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.rows = Rows(now)
        self._open: Counter[str] = Counter()  # by the run that they show

    @contextmanager
    def opened(self, run: str) -> Iterator[None]:
        self._open[run] += 1
        try:
            yield
        finally:
            self._open[run] -= 1
            if not self._open[run]:
                del self._open[run]

    def spread_ms(self, run: str) -> int:
        """Over how long the pages that hear of the same event are to spread their asking."""
        return max(0, self._open[run] - 1) * SPACING_MS


class Live(Response):
    """Raises nothing: what the API refuses is answered as it refuses it, with the same status."""

    def __init__(self, api: Api, pages: Pages, wish: Wish, query: Query, headers: Mapping[str, str]) -> None:
        super().__init__(None, 200, HEADERS)
        del self.headers["content-length"]
        self._api, self._pages, self._wish, self._query = api, pages, wish, query
        self._sent = {**headers, "accept": "text/event-stream"}
        self._rest = b""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._pages.opened(self._wish.run):
            answer = self._answer(send)
            await self._api.relay(self._wish.path, self._query, self._sent, receive, answer)

    def _answer(self, send: Send) -> Callable[[Message], Awaitable[None]]:
        streams = False

        async def answer(message: Message) -> None:
            nonlocal streams
            if message["type"] == "http.response.start":
                streams = message["status"] == 200
                message["headers"] = self._head(message["headers"], streams)
            elif streams:
                message["body"] = await self._turned(message.get("body", b""))
                if not message["body"] and message.get("more_body"):
                    return
            await send(message)

        return answer

    def _head(self, given: list[tuple[bytes, bytes]], streams: bool) -> list[tuple[bytes, bytes]]:
        """The outer door names the request itself."""
        ours = MutableHeaders(raw=[one for one in given if one[0].lower() != b"x-request-id"])
        for name, value in self.headers.items():
            if streams or name != "content-type":
                ours[name] = value
        return ours.raw

    async def _turned(self, piece: bytes) -> bytes:
        """The same for every page that shows the same, but for the pace."""
        if self._rest or not piece.endswith(b"\n\n"):
            whole, end, self._rest = (self._rest + piece).rpartition(b"\n\n")
            piece = whole + end
        if not piece:
            return b""
        heard = told(piece)
        if not heard.looks:
            return heard.aside
        frames = await self._changed(heard)
        frames.append(look(heard.last_id, self._pages.spread_ms(self._wish.run)))
        return b"".join(frames) + heard.aside

    async def _changed(self, heard: Told) -> list[bytes]:
        if len(heard.runs) > CHANGED_MOST:
            return []
        mine = {run_id: event_id for run_id, event_id in heard.runs.items() if run_id in self._wish.rows}
        # Ids come behind: of what is cut off in between, everything is told again.
        return list((await self._pages.rows.made(self._api, mine)).values())
