"""Disasters on request: all of them on machines of this computer, a preemption on Spot VMs too."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter, Request, Response

from supervisor.api.shapes.bodies import (
    NoParameters,
    PreemptBody,
    StockoutBody,
    StrikeBody,
    read_body,
    read_query,
)
from supervisor.api.wire.access import Admitted
from supervisor.api.wire.answers import json_answer
from supervisor.api.wire.deps import caller_of, services_of
from supervisor.api.wire.threads import in_slow_thread
from supervisor.domain.access.callers import Caller
from supervisor.domain.errors import DevRefused
from supervisor.services.runs.dev import Dev
from supervisor.services.views.run_view import Json

router = APIRouter(prefix="/v1/dev", tags=["dev"], route_class=Admitted)


@router.post("/preempt")
async def preempt(request: Request) -> Response:
    """Preempt the machine of a run with notice; a rented one only with `confirm`."""
    body = await read_body(PreemptBody, request)
    return await _done(
        request, lambda dev, caller: dev.preempt(body.run_id, body.notice_s, body.confirm, caller)
    )


@router.post("/kill")
async def kill(request: Request) -> Response:
    """Kill everything on the machine of a run at once, without a record."""
    body = await read_body(StrikeBody, request)
    return await _done(request, lambda dev, caller: dev.kill(body.run_id, caller))


@router.post("/freeze")
async def freeze(request: Request) -> Response:
    """Let the training of a run stand still while its agent goes on."""
    body = await read_body(StrikeBody, request)
    return await _done(request, lambda dev, caller: dev.freeze(body.run_id, caller))


@router.post("/stockout")
async def stockout(request: Request) -> Response:
    """Let zones have no capacity for a time."""
    body = await read_body(StockoutBody, request)
    return await _done(request, lambda dev, caller: dev.stockout(body.zones, body.for_s, caller))


async def _done(request: Request, deed: Callable[[Dev, Caller], Json]) -> Response:
    read_query(NoParameters, request)
    dev = services_of(request).dev
    if dev is None:
        raise DevRefused(
            "Disasters are for the local provider only; machines of this supervisor are elsewhere."
        )
    return json_answer(await in_slow_thread(deed, dev, caller_of(request)))
