"""Heartbeats: pushed by agents, and the series that is drawn of those that were kept.

The push is the hot path: no model, no database when the launch is known, the answer made by hand.
"""

from __future__ import annotations

import json

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool

from supervisor.api.errors import BodyTooLarge
from supervisor.api.shapes import answers, beats
from supervisor.api.shapes.bodies import epoch
from supervisor.api.wire.deps import services_of
from supervisor.api.wire.route import Routes
from supervisor.contract.heartbeat import MAX_BYTES, BeatRejected
from supervisor.domain.callers import Scope
from supervisor.domain.errors import InvalidRequest, NonceRefused
from supervisor.services.reading.series import series_json
from supervisor.services.runs.heartbeat import BeatInbox, NonceUnknown, read
from supervisor.services.views.run_view import Json

routes = Routes("agent")


@routes.on(
    "POST /v1/runs/{run_id}/heartbeat",
    None,
    answers.BeatAnswer,
    body=beats.HeartbeatBody,
    refuses="NONCE_REFUSED RUN_NOT_FOUND RUN_ENDED",
)
async def push_beat(request: Request, run_id: str) -> Response:
    """Push a heartbeat. Sent by the agent beside the training, with the nonce of its launch inside."""
    raw = await request.body()
    inbox = services_of(request).inbox
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
    body = {"next_s": answer.next_s, "stop": answer.stop, "follow_logs": answer.follow_logs}
    return Response(json.dumps(body), 200, media_type="application/json")


def _reject(inbox: BeatInbox, run_id: str, reason: str) -> None:
    inbox.reject(run_id, reason.rstrip(".") + ".")


@routes.on("GET /v1/runs/{run_id}/beats", Scope.READ, beats.Series, tag="runs", refuses="RUN_NOT_FOUND")
async def list_beats(request: Request, run_id: str, query: beats.SeriesParameters) -> object:
    """List the series of a run (step, pace, metrics, figures of its machine), thinned out for a chart."""
    services = services_of(request)

    def work() -> Json:
        run = services.queries.find(run_id)
        return series_json(services.parts, run, epoch(query.since), epoch(query.until), query.points)

    return await run_in_threadpool(work)
