"""Disasters on request: all of them on machines of this computer, a preemption on Spot VMs too."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import Request

from supervisor.api.shapes import bodies, health
from supervisor.api.wire.deps import caller_of, in_slow_thread, services_of
from supervisor.api.wire.route import Routes
from supervisor.domain.callers import Caller, Scope
from supervisor.domain.errors import DevRefused
from supervisor.services.runs.dev import Dev
from supervisor.services.views.run_view import Json

routes = Routes("dev")


@routes.on(
    "POST /v1/dev/preempt", Scope.ADMIN, health.Disaster, refuses="RUN_NOT_FOUND CONFLICT DEV_REFUSED CONFIRM_NEEDED"
)
async def preempt(request: Request, body: bodies.PreemptBody) -> object:
    """Preempt the machine of a run with notice; a rented one only with `confirm`."""
    return await _done(request, lambda dev, caller: dev.preempt(body.run_id, body.notice_s, body.confirm, caller))


@routes.on("POST /v1/dev/kill", Scope.ADMIN, health.Disaster, refuses="RUN_NOT_FOUND CONFLICT DEV_REFUSED")
async def kill(request: Request, body: bodies.StrikeBody) -> object:
    """Kill everything on the machine of a run at once, without a record."""
    return await _done(request, lambda dev, caller: dev.kill(body.run_id, caller))


@routes.on("POST /v1/dev/freeze", Scope.ADMIN, health.Disaster, refuses="RUN_NOT_FOUND CONFLICT DEV_REFUSED")
async def freeze(request: Request, body: bodies.StrikeBody) -> object:
    """Let the training of a run stand still while its agent goes on."""
    return await _done(request, lambda dev, caller: dev.freeze(body.run_id, caller))


@routes.on("POST /v1/dev/stockout", Scope.ADMIN, health.Stockout, refuses="DEV_REFUSED")
async def stockout(request: Request, body: bodies.StockoutBody) -> object:
    """Let zones have no capacity for a time."""
    return await _done(request, lambda dev, caller: dev.stockout(body.zones, body.for_s, caller))


async def _done(request: Request, deed: Callable[[Dev, Caller], Json]) -> Json:
    dev = services_of(request).dev
    if dev is None:
        raise DevRefused("Disasters are for the local provider only; machines of this supervisor are elsewhere.")
    return await in_slow_thread(deed, dev, caller_of(request))
