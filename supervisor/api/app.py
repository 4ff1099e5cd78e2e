"""The application: routes, the shape of every refusal, and the outer door in front."""

from __future__ import annotations

import logging
from collections.abc import Collection

from fastapi import FastAPI, Request, Response
from fastapi.routing import APIRoute
from starlette.exceptions import HTTPException

from supervisor.api.errors import problem, problem_of, request_id_of
from supervisor.api.routes.runs import (
    actions,
    beats,
    changes,
    code,
    cost,
    evidence,
    facts,
    files,
    logs,
    many,
    runs,
    specs,
)
from supervisor.api.routes.system import (
    dev,
    document,
    gpus,
    health,
    imports,
    machines,
    metrics,
    prices,
    tokens,
    webhooks,
    zones,
)
from supervisor.api.wire import heads
from supervisor.api.wire.access import Admitted
from supervisor.api.wire.deps import Services, streams_of
from supervisor.api.wire.door import LOOPBACK, Door
from supervisor.domain.errors import SpotError, Unavailable
from supervisor.ports.objectstore import StoreFull, StoreUnavailable
from supervisor.ports.provider import ProviderUnavailable
from supervisor.ports.store import RowUnreadable, StoreDown
from supervisor.services.reading.health import full_disk
from supervisor.telemetry import logs as telemetry

LOG = logging.getLogger(__name__)
ROUTERS = (
    runs.router, logs.router, facts.router, evidence.router, cost.router, files.router, actions.router, changes.router,
    many.router, beats.router, code.router, imports.router, health.router, machines.router, gpus.router,
    prices.router, dev.router, tokens.router, webhooks.router, metrics.router, zones.router, specs.router,
    document.router,
)  # fmt: skip


def create_app(services: Services | None, hosts: Collection[str] = LOOPBACK) -> FastAPI:
    """The ASGI application. `services` None: only its document can be made from it."""
    app = FastAPI(
        title="Spot Supervisor",
        version="1",
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.services = services
    app.state.streams = None if services is None else streams_of(services)
    for router in ROUTERS:
        if not all(isinstance(route, Admitted) for route in router.routes):
            raise TypeError("a route would be reached without asking who calls it")
        app.router.routes += router.routes  # as they are: including would make them again, for each app
    methods = [
        (route.path_regex, route.methods or set())
        for router in ROUTERS
        for route in router.routes
        if isinstance(route, APIRoute)
    ]

    async def routing(request: Request, error: HTTPException) -> Response:
        """What the framework refuses by itself: an unknown path or method."""
        path, request_id = request.url.path, request_id_of(request)
        if error.status_code == 405:
            allowed = heads.shown(heads.allowed(methods, path))
            text = f"This address understands {allowed} only."
            response = problem("METHOD_NOT_ALLOWED", text, path, request_id, {"allowed": allowed})
            response.headers["Allow"] = allowed
            return response
        if error.status_code == 404:
            return problem("NOT_FOUND", "There is nothing at this address.", path, request_id)
        return problem("INVALID_REQUEST", "The request cannot be understood.", path, request_id)

    app.add_exception_handler(HTTPException, routing)  # type: ignore[arg-type]
    app.add_exception_handler(SpotError, _refused)  # type: ignore[arg-type]
    for kind in _PARTS:
        app.add_exception_handler(kind, _away)
    app.add_middleware(heads.HeadAsGet, paths=methods)
    beat_host = services.beat_host if services is not None else ""
    app.add_middleware(Door, hosts=hosts, beat_host=beat_host)
    return app


async def _refused(request: Request, error: SpotError) -> Response:
    return problem_of(error, request.url.path, request_id_of(request))


async def _away(request: Request, error: Exception) -> Response:
    """The text of a driver's error stays in the log: it may name paths and addresses."""
    LOG.warning(
        "A part was away: %s",
        error,
        extra={telemetry.ACTION: "unavailable", telemetry.DETAIL: type(error).__name__},
    )
    if isinstance(error, RowUnreadable):
        text = str(error)
        return await _refused(request, Unavailable(text[0].upper() + text[1:], {"part": "database"}))
    full = "the object store is full" if isinstance(error, StoreFull) else ""
    if isinstance(error, StoreDown):
        full = full_disk(error)
    what = (
        f"{full[0].upper()}{full[1:]}. Free some space; the"
        if full
        else "A part that this needs is away. The"
    )
    away = Unavailable(f"{what} request can be repeated.", {"part": _PARTS[type(error)]})
    return await _refused(request, away)


_PARTS = {
    StoreDown: "database",
    StoreUnavailable: "object store",
    StoreFull: "object store",
    ProviderUnavailable: "provider",
}
