"""The machines that there are now, and the release of those that serve nobody."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from supervisor.api.shapes.bodies import NoParameters, read_body, read_query
from supervisor.api.shapes.system.machines import CollectBody, MachineParameters
from supervisor.api.wire.access import Admitted
from supervisor.api.wire.answers import json_answer
from supervisor.api.wire.deps import caller_of, services_of
from supervisor.api.wire.threads import in_slow_thread
from supervisor.services.machines.gc import collect
from supervisor.services.machines.machines import machines_json

router = APIRouter(prefix="/v1", tags=["machines"], route_class=Admitted)


@router.get("/machines")
async def list_machines(request: Request) -> Response:
    """List the machines that the provider sees now, and what each is for."""
    query, services = read_query(MachineParameters, request), services_of(request)
    return json_answer(await in_slow_thread(machines_json, services.parts, query.all))


@router.post("/gc")
async def collect_machines(request: Request) -> Response:
    """Release the machines of this supervisor that serve no run; with dry_run only tell which."""
    read_query(NoParameters, request)
    body = await read_body(CollectBody, request)
    services, caller = services_of(request), caller_of(request)
    return json_answer(await in_slow_thread(collect, services.parts, body.dry_run, caller))
