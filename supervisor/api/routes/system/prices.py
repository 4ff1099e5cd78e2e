"""What machines cost now, and the question to the platform what they cost."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool

from supervisor.api.shapes.bodies import NoParameters, read_body, read_query
from supervisor.api.shapes.system.offers import RefreshBody
from supervisor.api.wire.access import Admitted
from supervisor.api.wire.answers import json_answer
from supervisor.api.wire.deps import caller_of, services_of
from supervisor.api.wire.threads import in_slow_thread
from supervisor.services.reading.offers import prices_json, refreshed_json

router = APIRouter(prefix="/v1", tags=["prices"], route_class=Admitted)


@router.get("/prices")
async def list_prices(request: Request) -> Response:
    """List what a machine of each shape costs per hour in each region, where that was read and when."""
    read_query(NoParameters, request)
    return json_answer(await run_in_threadpool(prices_json, services_of(request).parts))


@router.post("/prices/refresh")
async def refresh_prices(request: Request) -> Response:
    """Ask the platform for its prices and use them from now on. Takes up to a minute; all or nothing."""
    read_query(NoParameters, request)
    await read_body(RefreshBody, request, optional=True)
    services, caller = services_of(request), caller_of(request)
    return json_answer(await in_slow_thread(refreshed_json, services.parts, caller))
