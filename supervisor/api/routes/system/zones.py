"""What was learned of zones, and the series of a run: both are read from the database alone."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool

from supervisor.api.shapes.bodies import NoParameters, epoch, read_query
from supervisor.api.shapes.runs.beats import SeriesParameters
from supervisor.api.wire.access import Admitted
from supervisor.api.wire.answers import json_answer
from supervisor.api.wire.deps import caller_of, services_of
from supervisor.services.reading.offers import zones_json
from supervisor.services.reading.series import series_json
from supervisor.services.views.run_view import Json

router = APIRouter(prefix="/v1", tags=["runs"], route_class=Admitted)


@router.get("/zones")
async def list_zones(request: Request) -> Response:
    """List what was learned of each offer of the provider: capacity, refusals and pauses, preemptions."""
    read_query(NoParameters, request)
    services, caller = services_of(request), caller_of(request)
    return json_answer(await run_in_threadpool(zones_json, services.parts, caller))


@router.get("/runs/{run_id}/beats")
async def list_beats(request: Request, run_id: str) -> Response:
    """List the series of a run (step, pace, metrics, figures of its machine), thinned out for a chart."""
    query, services = read_query(SeriesParameters, request), services_of(request)

    def work() -> Json:
        run = services.queries.find(run_id)
        return series_json(services.parts, run, epoch(query.since), epoch(query.until), query.points)

    return json_answer(await run_in_threadpool(work))
