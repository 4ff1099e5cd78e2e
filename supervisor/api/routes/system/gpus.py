"""The GPUs of the supervisor's own computer, and the word that one that was set aside is back."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from supervisor.api.shapes.bodies import NoParameters, read_body, read_query
from supervisor.api.shapes.system.machines import GpuBackBody
from supervisor.api.wire.access import Admitted
from supervisor.api.wire.answers import json_answer
from supervisor.api.wire.deps import caller_of, services_of
from supervisor.api.wire.threads import in_slow_thread

router = APIRouter(prefix="/v1", tags=["machines"], route_class=Admitted)


@router.get("/gpus")
async def list_gpus(request: Request) -> Response:
    """List the GPUs of the supervisor's own computer: who has each, and which are set aside as broken."""
    read_query(NoParameters, request)
    return json_answer(await in_slow_thread(services_of(request).gpus.listed))


@router.post("/gpus/back")
async def bring_gpu_back(request: Request) -> Response:
    """Say that a GPU that was set aside works again, so that runs may have it."""
    read_query(NoParameters, request)
    body = await read_body(GpuBackBody, request)
    gpus, caller = services_of(request).gpus, caller_of(request)
    return json_answer(await in_slow_thread(gpus.bring_back, body.gpu, caller))
