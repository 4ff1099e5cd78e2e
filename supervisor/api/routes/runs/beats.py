"""The heartbeat: the hot path. No model, no database when the launch is known, the answer made by hand."""

from __future__ import annotations

import json

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool

from supervisor.api.errors import BodyTooLarge
from supervisor.api.shapes.bodies import NoParameters, read_query
from supervisor.api.wire.access import Admitted
from supervisor.api.wire.deps import services_of
from supervisor.contract.heartbeat import MAX_BYTES, BeatRejected
from supervisor.domain.errors import InvalidRequest, NonceRefused
from supervisor.services.runs.heartbeat import BeatInbox, NonceUnknown, read

router = APIRouter(prefix="/v1/runs/{run_id}", tags=["agent"], route_class=Admitted)


@router.post("/heartbeat")
async def push_beat(request: Request, run_id: str) -> Response:
    """Push a heartbeat. Sent by the agent beside the training, with the nonce of its launch inside."""
    if request.scope["query_string"]:
        read_query(NoParameters, request)
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
