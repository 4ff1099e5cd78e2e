"""What trainings report: the push of the agents' beats, the series of a chart, and the curves of metrics.

The push is the hot path: no validation by a model, and no database when the launch is known. `BeatsFirst` responds to
an accepted beat in front of the framework, which takes twice as long as the inbox; the route has every other response.
"""

from __future__ import annotations

import csv
import io
from bisect import bisect_left
from datetime import datetime
from typing import NotRequired

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as AsgiScope
from typing_extensions import TypedDict

from supervisor.api.errors import BodyTooLarge
from supervisor.api.shapes.bodies import HeartbeatBody
from supervisor.api.shapes.parameters import (
    BeatParameters,
    CompareParameters,
    MetricParameters,
    SeriesParameters,
    epoch,
)
from supervisor.api.wire.deps import caller_of, in_slow_thread, services_of
from supervisor.api.wire.responses import SNIFFED, json_response, unless_known
from supervisor.api.wire.route import Routes
from supervisor.contract.heartbeat import MAX_BYTES, BeatRejected
from supervisor.domain.callers import Scope
from supervisor.domain.errors import InvalidRequest, NonceRefused
from supervisor.services.access.claims import PassShown
from supervisor.services.reading.comparing import Comparison, compare
from supervisor.services.reading.curves import RunMetrics
from supervisor.services.reading.series import Series, series_json
from supervisor.services.runs.heartbeat import BeatInbox, BeatResponse, NonceUnknown, read
from supervisor.services.views.formats import dumps, time_text

routes = Routes("agent")


_Renewed = TypedDict("_Renewed", {"pass": NotRequired[PassShown]})


class BeatAnswer(_Renewed):
    """`orders`: grows when people have ordered something of the run (changed code, a command); left out: not known.
    `store_s`: how long a beat in the object store may stay the newest one, because the supervisor reads the pushed
    ones; left out: beats are stored at the usual pace. `pass`: where the request asks for one and the run's objects can
    be reached here."""

    next_s: float
    stop: bool
    follow_logs: bool
    orders: NotRequired[int]
    store_s: NotRequired[float]


class BeatsFirst:
    """Middleware for a beat of a known launch. Any other request, and every refusal, is the framework's: it gets the
    same body once more."""

    def __init__(self, app: ASGIApp, inbox: BeatInbox) -> None:
        self._app, self._inbox = app, inbox
        self._route = next(route for route in routes if route.name == push_beat.__name__)

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        beat_path = self._route.path_regex.match(scope["path"]) if scope.get("method") == "POST" else None
        if beat_path is None or scope["query_string"]:
            await self._app(scope, receive, send)
            return
        scope["route"] = self._route  # requests are counted by it
        raw = await Request(scope, receive).body()
        try:
            response = json_response(_shown(self._inbox.accept(read(beat_path["run_id"], raw))))
        except (BeatRejected, NonceUnknown, NonceRefused):
            await self._app(scope, _again(raw, receive), send)
            return
        await response(scope, receive, send)


def _again(body: bytes, receive: Receive) -> Receive:
    """A `receive` that begins with the whole body."""
    messages = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def received() -> Message:
        return next(messages, None) or await receive()

    return received


def _shown(answer: BeatResponse) -> BeatAnswer:
    shown: BeatAnswer = {"next_s": answer.next_s, "stop": answer.stop, "follow_logs": answer.follow_logs}
    if answer.orders is not None:
        shown["orders"] = answer.orders
    if answer.store_s is not None:
        shown["store_s"] = answer.store_s
    return shown


@routes.on(
    "POST /v1/runs/{run_id}/heartbeat", None, body=HeartbeatBody, refuses="NONCE_REFUSED RUN_NOT_FOUND RUN_ENDED"
)
async def push_beat(request: Request, run_id: str, query: BeatParameters) -> BeatAnswer:
    """Push a heartbeat. The agent beside the training sends it, with the nonce of its launch inside."""
    raw = await request.body()
    services = services_of(request)
    inbox = services.inbox
    if len(raw) > MAX_BYTES:
        raise BodyTooLarge(f"A beat has at most {MAX_BYTES} bytes.", {"max_bytes": MAX_BYTES})
    try:
        beat = read(run_id, raw)
        try:
            answer = inbox.accept(beat)
        except NonceUnknown:
            await run_in_threadpool(inbox.learn, beat)
            answer = inbox.accept(beat)
    except BeatRejected as error:
        await run_in_threadpool(_reject, inbox, run_id, str(error))
        raise InvalidRequest(f"The beat is refused: {error}.") from None
    except NonceRefused as error:
        await run_in_threadpool(_reject, inbox, run_id, error.detail)
        raise
    shown = _shown(answer)
    if query.renew is not None and services.door is not None:
        shown["pass"] = services.door.new_pass(run_id, beat.launch_id)  # its nonce proves the launch
    return shown


def _reject(inbox: BeatInbox, run_id: str, reason: str) -> None:
    inbox.reject(run_id, reason.rstrip(".") + ".")


@routes.on("GET /v1/runs/{run_id}/beats", Scope.READ, tag="runs", refuses="RUN_NOT_FOUND")
async def list_beats(request: Request, run_id: str, query: SeriesParameters) -> Series:
    """List the series of a run (step, pace, metrics, figures of its machine), thinned out for a chart."""
    services = services_of(request)

    def work() -> Series:
        run = services.queries.find(run_id)
        return series_json(services.parts, run, epoch(query.since), epoch(query.until), query.points)

    return await run_in_threadpool(work)


@routes.on(
    "GET /v1/runs/{run_id}/metrics",
    Scope.READ,
    {200: RunMetrics},
    tag="runs",
    refuses="RUN_NOT_FOUND",
    media={200: ("text/csv",), 304: ()},
    takes=("If-None-Match",),
    sends=("ETag", "Content-Disposition"),
)
async def list_metrics(request: Request, run_id: str, query: MetricParameters) -> Response:
    """List the metrics that a run has reported: their curves over all attempts, each step once, and last, lowest and
    highest values."""
    metrics = await in_slow_thread(services_of(request).curves.show, run_id, query.metric, query.points)
    if query.format == "json" and "text/csv" not in request.headers.get("accept", ""):
        return unless_known(request, dumps(metrics), "application/json")
    saved_as = {"Content-Disposition": f"attachment; filename={run_id}-metrics.csv", **SNIFFED}
    return unless_known(request, csv_text(metrics), "text/csv; charset=utf-8", saved_as)


@routes.on(
    "GET /v1/compare",
    Scope.READ,
    {200: Comparison},
    tag="runs",
    refuses="RUN_NOT_FOUND",
    media={304: ()},
    takes=("If-None-Match",),
    sends=("ETag",),
)
async def compare_runs(request: Request, query: CompareParameters) -> Response:
    """Compare runs: their curves, what differs in their specs, the last and best value of each metric, and the best
    checkpoint by one metric."""
    services = services_of(request)
    where = query.run_filter(caller_of(request))
    comparison = await in_slow_thread(compare, services.parts, services.curves, where, query.wish)
    return unless_known(request, dumps(comparison), "application/json")


def csv_text(metrics: RunMetrics) -> str:
    """One line for each point: metric, step, attempt, time, value."""
    since = datetime.fromisoformat(metrics["since"]).timestamp()
    ends = [(each["last_step"], each["attempt"]) for each in metrics["attempts"] if each["last_step"] is not None]
    last_steps = [step for step, _ in ends]
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(("metric", "step", "attempt", "time", "value"))
    for metric in metrics["metrics"]:
        for step, seconds, value in zip(metric["steps"], metric["seconds"], metric["values"], strict=True):
            attempt = ends[min(bisect_left(last_steps, step), len(ends) - 1)][1]
            writer.writerow((metric["name"], step, attempt, time_text(since + seconds), value))
    return text.getvalue()
