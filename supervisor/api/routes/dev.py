"""Disasters on request, to see a run survive them: a preemption anywhere, all others on machines of this computer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from fastapi import Request

from supervisor.api.shapes import bodies
from supervisor.api.wire.deps import caller_of, in_slow_thread, services_of
from supervisor.api.wire.route import Routes
from supervisor.domain.callers import Caller, Scope
from supervisor.domain.errors import DevRefused
from supervisor.services.runs.dev import Dev, Disaster, Stockout

routes = Routes("dev")
Result = TypeVar("Result")


@routes.on("POST /v1/dev/preempt", Scope.ADMIN, refuses="RUN_NOT_FOUND CONFLICT DEV_REFUSED CONFIRM_NEEDED")
async def preempt(request: Request, body: bodies.PreemptBody) -> Disaster:
    """Preempt the machine of a run with notice. A rented machine needs `confirm`."""
    return await _done(request, lambda dev, caller: dev.preempt(body.run_id, body.notice_s, body.confirm, caller))


@routes.on("POST /v1/dev/kill", Scope.ADMIN, refuses="RUN_NOT_FOUND CONFLICT DEV_REFUSED")
async def kill(request: Request, body: bodies.StrikeBody) -> Disaster:
    """Kill every process on the machine of a run at once, without a record."""
    return await _done(request, lambda dev, caller: dev.kill(body.run_id, caller))


@routes.on("POST /v1/dev/freeze", Scope.ADMIN, refuses="RUN_NOT_FOUND CONFLICT DEV_REFUSED")
async def freeze(request: Request, body: bodies.StrikeBody) -> Disaster:
    """Freeze the training of a run while its agent goes on."""
    return await _done(request, lambda dev, caller: dev.freeze(body.run_id, caller))


@routes.on("POST /v1/dev/stockout", Scope.ADMIN, refuses="DEV_REFUSED")
async def stockout(request: Request, body: bodies.StockoutBody) -> Stockout:
    """Make zones have no capacity for a time."""
    return await _done(request, lambda dev, caller: dev.stockout(body.zones, body.for_s, caller))


async def _done(request: Request, disaster: Callable[[Dev, Caller], Result]) -> Result:
    dev = services_of(request).dev
    if dev is None:
        raise DevRefused("Disasters are for the local provider only; machines of this supervisor are elsewhere.")
    return await in_slow_thread(disaster, dev, caller_of(request))
