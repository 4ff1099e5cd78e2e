"""What runs cost, what their files cost, and the deletion of a run's files."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from supervisor.api.shapes.bodies import (
    ListParameters,
    NoParameters,
    PurgeBody,
    read_body,
    read_query,
    run_filter,
)
from supervisor.api.wire.access import Admitted
from supervisor.api.wire.answers import json_answer
from supervisor.api.wire.deps import caller_of, services_of
from supervisor.api.wire.keys import once_of, replied
from supervisor.api.wire.threads import in_slow_thread
from supervisor.services.reading.cost import cost_page, run_cost
from supervisor.services.runs.keys import Reply
from supervisor.services.runs.purge import Purged, purge, purge_once
from supervisor.services.views.run_view import dumps

router = APIRouter(prefix="/v1", tags=["runs"], route_class=Admitted)


@router.get("/cost")
async def list_costs(request: Request) -> Response:
    """List what runs have cost and what their files take, newest first."""
    query, services = read_query(ListParameters, request), services_of(request)
    parts, queries, caller = services.parts, services.queries, caller_of(request)
    where = run_filter(query, caller)
    answer = await in_slow_thread(
        cost_page,
        parts,
        queries,
        where,
        page_size=query.page_size,
        cursor=query.cursor,
        with_code=caller.admin,
    )
    return json_answer(answer)


@router.get("/runs/{run_id}/cost")
async def show_cost(request: Request, run_id: str) -> Response:
    """Show what one run has cost and what its files take."""
    read_query(NoParameters, request)
    services = services_of(request)
    return json_answer(await in_slow_thread(run_cost, services.parts, services.queries, run_id))


@router.post("/runs/{run_id}/purge")
async def purge_run(request: Request, run_id: str) -> Response:
    """Delete all files of a run whose machines are gone; its history stays. Repeat it if it was cut off."""
    read_query(NoParameters, request)
    body = await read_body(PurgeBody, request)
    services, caller, once = services_of(request), caller_of(request), once_of(request, body.confirm)

    def shape(done: Purged) -> Reply:
        figures = {"deleted_files": done.files, "deleted_bytes": done.size_bytes}
        return Reply(200, dumps({**services.queries.view(done.run), **figures}), "")

    def work() -> Reply:
        if once is not None:
            return purge_once(services.parts, run_id, body.confirm, caller=caller, asked=once, shape=shape)
        return shape(purge(services.parts, run_id, body.confirm, caller))

    return replied(await in_slow_thread(work))
