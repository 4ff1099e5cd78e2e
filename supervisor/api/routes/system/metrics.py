"""What Prometheus scrapes."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool

from supervisor.api.shapes.bodies import NoParameters, read_query
from supervisor.api.wire.access import Admitted
from supervisor.api.wire.deps import Services, services_of
from supervisor.services.reading import watching

router = APIRouter(tags=["health"], route_class=Admitted)


@router.get("/metrics")
async def show_metrics(request: Request) -> Response:
    """Tell all metrics, in the text format of Prometheus or, where `Accept` names it, in OpenMetrics.

    A part that is away leaves its series out and says so by `spot_scrape_part_up`.
    """
    read_query(NoParameters, request)
    accept = request.headers.get("accept", "")
    body, media_type = await run_in_threadpool(_scrape, services_of(request), accept)
    return Response(body, 200, {"Content-Type": media_type, "Cache-Control": "no-store"})


def _scrape(services: Services, accept: str) -> tuple[bytes, str]:
    from supervisor.api.wire.exposition import render

    return render(accept, watching.read(services.readings))
