"""What a run's attempts ran on."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from supervisor.api.shapes.bodies import NoParameters, read_query
from supervisor.api.wire.access import Admitted
from supervisor.api.wire.answers import json_answer
from supervisor.api.wire.deps import services_of
from supervisor.api.wire.threads import in_slow_thread
from supervisor.services.reading.evidence import show_facts as facts_of

router = APIRouter(prefix="/v1", tags=["runs"], route_class=Admitted)


@router.get("/runs/{run_id}/facts")
async def show_facts(request: Request, run_id: str) -> Response:
    """Show what each attempt ran on (code, versions, packages, GPUs, seeds, tracker) and where attempts differ."""
    read_query(NoParameters, request)
    services = services_of(request)
    return json_answer(await in_slow_thread(facts_of, services.parts, services.queries, run_id))
