"""Stop and resume of all runs that a filter names: the filters of the list, in the query as there."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool

from supervisor.api.shapes.bodies import read_body, read_query, run_filter
from supervisor.api.shapes.runs.changes import ManyBody, ManyParameters
from supervisor.api.wire.access import Admitted
from supervisor.api.wire.answers import json_answer
from supervisor.api.wire.deps import caller_of, services_of
from supervisor.domain.access.callers import Caller
from supervisor.services.parts import Parts
from supervisor.services.runs.many import Asked, resume_many, stop_many
from supervisor.services.views.run_view import Json

router = APIRouter(prefix="/v1/runs", tags=["actions"], route_class=Admitted)


@router.post("/stop")
async def stop_runs(request: Request) -> Response:
    """Stop every run of a filter, 1000 at most in one request: each as a stop of it alone would."""
    return await _done(request, stop_many)


@router.post("/resume")
async def resume_runs(request: Request) -> Response:
    """Resume every ended run of a filter with the spec that it has, 1000 at most in one request. Live runs and
    completed ones are left alone."""
    return await _done(request, resume_many)


async def _done(request: Request, deed: Callable[[Parts, Asked, Caller], Json]) -> Response:
    query = read_query(ManyParameters, request)
    body = await read_body(ManyBody, request, optional=True)
    services, caller = services_of(request), caller_of(request)
    asked = Asked(run_filter(query, caller), query.page_size, query.cursor, body.dry_run, body.expect)
    return json_answer(await run_in_threadpool(deed, services.parts, asked, caller))
