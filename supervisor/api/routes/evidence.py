"""Why an attempt ended."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool

from supervisor.api.answers import json_answer
from supervisor.api.bodies import NoParameters, read_query
from supervisor.api.deps import services_of
from supervisor.services.evidence import show_evidence as evidence_of

router = APIRouter(prefix="/v1", tags=["runs"])


@router.get("/runs/{run_id}/attempts/{number}/evidence")
async def show_evidence(request: Request, run_id: str, number: str) -> Response:
    """Show what was kept of an attempt that is over: why it ended, on what that rests, its last words."""
    read_query(NoParameters, request)
    services = services_of(request)
    return json_answer(await run_in_threadpool(evidence_of, services.parts, services.queries, run_id, number))
