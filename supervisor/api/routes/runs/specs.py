"""What a run was asked for, and what its machines are started with."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool

from supervisor.api.shapes.bodies import NoParameters, read_query
from supervisor.api.wire.access import Admitted
from supervisor.api.wire.answers import json_answer
from supervisor.api.wire.deps import services_of
from supervisor.services.plan import spec_view

router = APIRouter(prefix="/v1/runs/{run_id}", tags=["runs"], route_class=Admitted)


@router.get("/spec")
async def show_spec(request: Request, run_id: str) -> Response:
    """Show the spec of a run, as a submit takes it."""
    read_query(NoParameters, request)
    services = services_of(request)
    return json_answer(await run_in_threadpool(spec_view.show_spec, services.parts, services.queries, run_id))


@router.get("/launch")
async def show_launch(request: Request, run_id: str) -> Response:
    """Show what the newest machine of a run is started with: the request, its start-up script, the job."""
    read_query(NoParameters, request)
    services = services_of(request)
    preview = services.asking.preview
    return json_answer(
        await run_in_threadpool(spec_view.show_launch, services.parts, services.queries, preview, run_id)
    )
