"""What keeps a page live: one stream of events for each open page, which shows one run or the rows of some.

The API's stream of events (HTML standard, section Server-sent events) is turned on the way into what the page puts in
place. A page that shows rows gets the new row of each run that it shows and that changed. Every page is told to look
again, which it does at the pace that comes with it: what one event makes all open pages ask for is spread, so that a
thousand eyes cost no more than twenty. The API decides who hears what, ends streams and cuts off who does not keep up;
here nothing waits but what is on its way to the listener. Scripts hear of nothing that has no data: so what the API
says as a comment or as a bare id goes on as an event `ping`.

The row of a run that changed is made once for all pages that show it. Whoever is told of an event may see its run, and
a row shows everybody the same: so the first page that needs it asks the API, with its own token, and the others wait
for what it gets. Where it gets nothing, the next one asks itself.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from supervisor.contract.identifiers import is_run_id
from supervisor.dashboard import rendering
from supervisor.dashboard.public_api import Api, Json, Query, Refused, SignInNeeded, refuse_others
from supervisor.domain.texts import visible

KEPT_BYTES = 64 * 1024  # a larger piece is one of a listener that is behind: nobody else gets the same
KEPT_PIECES = 64
_LINE_END = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True, slots=True)
class Heard:
    """One piece of the API's stream. `runs`: that changed, each with its last event. `looks`: it holds anything that a
    page could show. `aside`: what goes to every page as it is: pings, and how soon to come back."""

    runs: Mapping[str, str] = field(default_factory=dict)
    last_id: str = ""
    looks: bool = False
    aside: bytes = b""


def heard_in(piece: bytes) -> Heard:
    """Whole blocks. The API sends the same piece to all who listen to the same."""
    return _kept(piece) if len(piece) <= KEPT_BYTES else _read(piece)


def _read(piece: bytes) -> Heard:
    runs: dict[str, str] = {}
    last_id, looks, aside = "", False, b""
    for block in piece.decode().split("\n\n"):
        fields = dict(_field(line) for line in block.split("\n"))
        block_id = fields.get("id", "")
        last_id = block_id or last_id
        if "data" in fields:
            looks = True
            run_id = json.loads(fields["data"]).get("run_id")
            if run_id:
                runs[run_id] = block_id
        elif block_id:
            aside += framed("ping", ".", block_id)
        elif "retry" in fields:
            aside += f"retry: {fields['retry']}\n\n".encode()
        elif fields.get(""):
            aside += f": {fields['']}\n\n".encode()
    return Heard(runs, last_id, looks, aside)


_kept = lru_cache(KEPT_PIECES)(_read)


def _field(line: str) -> tuple[str, str]:
    """ "" = a comment, or nothing."""
    name, _, value = line.partition(":")
    return name, value.removeprefix(" ")


def framed(event: str, data: str, block_id: str = "") -> bytes:
    lines = [f"event: {event}", *(f"data: {line}" for line in _LINE_END.split(data))]
    if block_id:
        lines.append(f"id: {block_id}")
    return ("\n".join(lines) + "\n\n").encode()


@lru_cache(KEPT_PIECES)
def look(last_id: str, spread_ms: int) -> bytes:
    return framed("look", str(spread_ms), last_id)


LOG = logging.getLogger(__name__)
KEPT, FRESH_S = 256, 2.0
TEMPLATE = "runs_row.html"
Making = asyncio.Task[dict[str, bytes] | None]


class Rows:
    """Used on the event loop only."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._made: OrderedDict[tuple[str, str], tuple[Making, float]] = OrderedDict()

    async def made(self, api: Api, changed: Mapping[str, str]) -> dict[str, bytes]:
        """`changed`: run -> its last event. Run -> the event with its row as it is after that, or later; a run
        that is gone, or that could not be had, is left out."""
        rows: dict[str, bytes] = {}
        for key in changed.items():
            while key[0] not in rows and (making := self._fresh(key)) is not None:
                # Shielded: it is made for all, whoever goes away meanwhile.
                if (made := await asyncio.shield(making)) is not None:
                    rows[key[0]] = made.get(key[0], b"")
                elif self._fresh(key) is making:
                    del self._made[key]
        missing = {run_id: event_id for run_id, event_id in changed.items() if run_id not in rows}
        if missing:
            rows |= await self._begin(api, missing) or {}
        return {run_id: row for run_id, row in rows.items() if row}

    def _fresh(self, key: tuple[str, str]) -> Making | None:
        """A page that comes back is told of events of before: the row of then may be old."""
        making, begun = self._made.get(key, (None, 0.0))
        return making if asyncio.get_running_loop().time() - begun < FRESH_S else None

    async def _begin(self, api: Api, missing: Mapping[str, str]) -> dict[str, bytes] | None:
        making = asyncio.create_task(self._make(api, list(missing)))
        for key in missing.items():
            self._made[key] = making, asyncio.get_running_loop().time()
        while len(self._made) > KEPT:
            self._made.popitem(last=False)
        return await asyncio.shield(making)

    async def _make(self, api: Api, run_ids: Sequence[str]) -> dict[str, bytes] | None:
        """None: the API refused. Raises nothing: a row that cannot be shown would end the streams of all pages, again
        and again, as they come back; they look instead, and the page says what is wrong."""
        filters = [("run_id", run_id) for run_id in run_ids]
        try:
            listing = await api.get("/v1/runs", [*filters, ("include", "sparkline")])
            return await run_in_threadpool(self._rendered, listing["runs"])
        except (Refused, SignInNeeded):
            return None
        except Exception:
            LOG.exception("The rows of changed runs cannot be made.")
            return {}

    def _rendered(self, runs: Sequence[Json]) -> dict[str, bytes]:
        template, now = rendering.environment().get_template(TEMPLATE), self._now()
        rows = ((run["run_id"], visible(template.render(run=run, now=now))) for run in runs)
        return {run_id: framed(f"run-{run_id}", row) for run_id, row in rows}


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
        ours = MutableHeaders(raw=[header for header in given if header[0].lower() != b"x-request-id"])
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
        heard = heard_in(piece)
        if not heard.looks:
            return heard.aside
        frames = await self._changed(heard)
        frames.append(look(heard.last_id, self._pages.spread_ms(self._wish.run)))
        return b"".join(frames) + heard.aside

    async def _changed(self, heard: Heard) -> list[bytes]:
        if len(heard.runs) > CHANGED_MOST:
            return []
        mine = {run_id: event_id for run_id, event_id in heard.runs.items() if run_id in self._wish.rows}
        # Ids come behind: of what is cut off in between, everything is told again.
        return list((await self._pages.rows.made(self._api, mine)).values())


async def show(request: Request, api: Api) -> Response:
    """`run=ID`, or `runs=a,b,c` (may be empty: a page without rows); `after` as in the API. Raises Refused."""
    refuse_others(request)
    if request.method == "HEAD":
        return Response(None, headers=HEADERS)  # a stream would have no end
    pages: Pages = request.app.state.pages
    after = request.query_params.get("after")
    seen = request.headers.get("last-event-id")
    return Live(
        api,
        pages,
        _wish(request),
        [] if after is None else [("after", after)],
        {} if seen is None else {"last-event-id": seen},
    )


def _wish(request: Request) -> Wish:
    run = request.query_params.get("run", "")
    rows = [run_id for run_id in request.query_params.get("runs", "").split(",") if run_id]
    unknown = set(request.query_params) - {"run", "runs", "after"}
    if unknown or (run and rows) or not all(map(is_run_id, rows)) or (run and not is_run_id(run)):
        raise _invalid("A stream is of one run (run=ID) or of the rows of some (runs=ID,ID,…).")
    if len(rows) > ROWS_MOST:
        raise _invalid(f"A stream has the rows of {ROWS_MOST} runs at most.")
    return Wish(run, frozenset(rows))


def _invalid(detail: str) -> Refused:
    return Refused(422, {"code": "INVALID_REQUEST", "detail": detail})
