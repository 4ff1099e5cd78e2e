"""What keeps a page live: one stream of events for each open page, which shows one run or the rows of some runs.

The API's stream (HTML standard, section Server-sent events) is converted on the way. A page with rows gets the new row
of each of its runs that changed. Every page is told to refresh, with the pace: the requests that one event causes in
all open pages are spread out, so a thousand readers cost no more than twenty. The API decides who receives what, ends
streams, and disconnects a slow listener; here nothing waits but what is being sent. Scripts cannot see a block without
data: a bare id is passed on as an event `ping`.

The row of a changed run is made once for all pages that show it. A listener that receives an event may see its run, and
a row is the same for everyone: so the first page that needs it asks the API, with its own token, and the others wait
for the result. If the API refuses, the next page asks itself.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections import Counter, OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import NamedTuple

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from supervisor.contract.identifiers import is_run_id
from supervisor.dashboard import rendering
from supervisor.dashboard.public_api import Api, Json, Query, Refused, Relayed, SignInNeeded, refuse_others
from supervisor.domain.texts import visible

LOG = logging.getLogger(__name__)
KEPT_BYTES = 64 * 1024  # a larger piece belongs to one listener that is behind: no other gets the same
KEPT_PIECES = 64
KEPT_ROWS, FRESH_S = 256, 2.0
ROWS_MAX = 100  # of one page; the others are updated when the page refreshes (static/live.js)
CHANGED_MAX = 20  # changed runs in one piece; with more of them a refresh of the page is quicker
SPACING_MS = 50  # between the refreshes of two pages because of the same event
UNBUFFERED = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
TEMPLATE = "runs_row.html"
_LINE_END = re.compile(r"\r\n|\r|\n")

Making = asyncio.Task[dict[str, bytes] | None]


async def show(request: Request, api: Api) -> Response:
    """`run=ID`, or `runs=a,b,c` (may be empty: a page without rows); `after` as in the API. Raises Refused."""
    refuse_others(request)
    after, last_id = request.query_params.get("after"), request.headers.get("last-event-id")
    query = [] if after is None else [("after", after)]
    return Live(
        api, request.app.state.pages, _shown(request), query, {} if last_id is None else {"last-event-id": last_id}
    )


class Shown(NamedTuple):
    """What a page shows: one run, or the rows of some. `run` "" = any."""

    run: str
    rows: Collection[str]

    @property
    def path(self) -> str:
        return f"/v1/runs/{self.run}/events" if self.run else "/v1/events"


def _shown(request: Request) -> Shown:
    run = request.query_params.get("run", "")
    rows = [run_id for run_id in request.query_params.get("runs", "").split(",") if run_id]
    unknown = set(request.query_params) - {"run", "runs", "after"}
    if unknown or (run and rows) or not all(map(is_run_id, rows)) or (run and not is_run_id(run)):
        raise _invalid("A stream is for one run (run=ID) or for the rows of some (runs=ID,ID,…).")
    if len(rows) > ROWS_MAX:
        raise _invalid(f"A stream has the rows of at most {ROWS_MAX} runs.")
    return Shown(run, frozenset(rows))


def _invalid(detail: str) -> Refused:
    return Refused(422, {"code": "INVALID_REQUEST", "detail": detail})


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
        """Over how long the pages that receive the same event spread their requests."""
        return max(0, self._open[run] - 1) * SPACING_MS


class Rows:
    """Used on the event loop only."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._made: OrderedDict[tuple[str, str], tuple[Making, float]] = OrderedDict()

    async def made(self, api: Api, changed: Mapping[str, str]) -> dict[str, bytes]:
        """`changed`: run -> its last event. Returns run -> the event with its row after that event or later; without
        runs that no longer exist or could not be read."""
        rows: dict[str, bytes] = {}
        for key in changed.items():
            while key[0] not in rows and (making := self._fresh(key)) is not None:
                # Shielded: it is made for all pages, also when this one closes.
                if (made := await asyncio.shield(making)) is not None:
                    rows[key[0]] = made.get(key[0], b"")
                elif self._fresh(key) is making:
                    del self._made[key]
        missing = {run_id: event_id for run_id, event_id in changed.items() if run_id not in rows}
        if missing:
            rows |= await self._begin(api, missing) or {}
        return {run_id: row for run_id, row in rows.items() if row}

    def _fresh(self, key: tuple[str, str]) -> Making | None:
        """A page that reconnects receives earlier events: a row of that time may be outdated."""
        making, begun = self._made.get(key, (None, 0.0))
        return making if asyncio.get_running_loop().time() - begun < FRESH_S else None

    async def _begin(self, api: Api, missing: Mapping[str, str]) -> dict[str, bytes] | None:
        making = asyncio.create_task(self._make(api, list(missing)))
        for key in missing.items():
            self._made[key] = making, asyncio.get_running_loop().time()
        while len(self._made) > KEPT_ROWS:
            self._made.popitem(last=False)
        return await asyncio.shield(making)

    async def _make(self, api: Api, run_ids: Sequence[str]) -> dict[str, bytes] | None:
        """None: the API refused. Raises nothing: an error would end the streams of all pages each time they reconnect.
        They refresh instead, and the page says what is wrong."""
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


class Live(Relayed):
    """A refusal of the API is passed on, with the same status."""

    def __init__(self, api: Api, pages: Pages, shown: Shown, query: Query, passed: Mapping[str, str]) -> None:
        super().__init__(api, shown.path, query, {**passed, "accept": "text/event-stream"}, UNBUFFERED)
        self._pages, self._shown = pages, shown
        self._rest = b""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        streams = False

        async def convert(message: Message) -> None:
            nonlocal streams
            if message["type"] == "http.response.start":
                streams = message["status"] == 200
            elif streams:
                message["body"] = await self._converted(message.get("body", b""))
                if not message["body"] and message.get("more_body"):
                    return
            await send(message)

        with self._pages.opened(self._shown.run):
            await super().__call__(scope, receive, convert)

    async def _converted(self, chunk: bytes) -> bytes:
        """The same for all pages that show the same, except for the pace."""
        if self._rest or not chunk.endswith(b"\n\n"):
            whole, end, self._rest = (self._rest + chunk).rpartition(b"\n\n")
            chunk = whole + end
        if not chunk:
            return b""
        piece = piece_of(chunk)
        if not piece.changes:
            return piece.aside
        frames: list[bytes] = []
        if len(piece.runs) <= CHANGED_MAX:
            mine = {run_id: event_id for run_id, event_id in piece.runs.items() if run_id in self._shown.rows}
            frames += (await self._pages.rows.made(self.api, mine)).values()
        # The id comes last: after a disconnect in between, everything is sent again.
        frames.append(refresh(piece.last_id, self._pages.spread_ms(self._shown.run)))
        return b"".join(frames) + piece.aside


class Piece(NamedTuple):
    """A part of the API's stream, in whole blocks. `runs`: the changed runs, each with its last event. `changes`: it
    has data that a page could show. `aside`: what goes to every page unchanged: pings, and the delay of a reconnect."""

    runs: Mapping[str, str]
    last_id: str
    changes: bool
    aside: bytes


def piece_of(chunk: bytes) -> Piece:
    """The API sends the same bytes to all listeners of the same events."""
    return _kept(chunk) if len(chunk) <= KEPT_BYTES else _parsed(chunk)


def _parsed(chunk: bytes) -> Piece:
    runs: dict[str, str] = {}
    last_id, changes, aside = "", False, b""
    for block in chunk.decode().split("\n\n"):
        fields = dict(_field(line) for line in block.split("\n"))
        block_id = fields.get("id", "")
        last_id = block_id or last_id
        if "data" in fields:
            changes = True
            run_id = json.loads(fields["data"]).get("run_id")
            if run_id:
                runs[run_id] = block_id
        elif block_id:
            aside += framed("ping", ".", block_id)
        elif "retry" in fields:
            aside += f"retry: {fields['retry']}\n\n".encode()
        elif fields.get(""):
            aside += f": {fields['']}\n\n".encode()
    return Piece(runs, last_id, changes, aside)


_kept = lru_cache(KEPT_PIECES)(_parsed)


def _field(line: str) -> tuple[str, str]:
    """(name, value); the name "" = a comment, or nothing."""
    name, _, value = line.partition(":")
    return name, value.removeprefix(" ")


def framed(event: str, data: str, block_id: str = "") -> bytes:
    lines = [f"event: {event}", *(f"data: {line}" for line in _LINE_END.split(data))]
    if block_id:
        lines.append(f"id: {block_id}")
    return ("\n".join(lines) + "\n\n").encode()


@lru_cache(KEPT_PIECES)
def refresh(last_id: str, spread_ms: int) -> bytes:
    return framed("refresh", str(spread_ms), last_id)
