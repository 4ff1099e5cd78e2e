"""Machines: the existing ones, the release of machines that no run needs, the GPUs of the supervisor's own computer.

And what is offered: providers, zones, prices.
"""

from __future__ import annotations

from fastapi import Request
from fastapi.concurrency import run_in_threadpool

from supervisor.api.shapes import bodies
from supervisor.api.shapes.parameters import MachineParameters
from supervisor.api.wire.deps import caller_of, in_slow_thread, services_of
from supervisor.api.wire.route import Routes
from supervisor.domain.callers import Scope
from supervisor.services.bases import requests as bases
from supervisor.services.bases.requests import BaseList, BaseShown
from supervisor.services.machines.gc import Collected, collect
from supervisor.services.machines.gpus import GpuBack, GpuList
from supervisor.services.machines.kept import KeptList, kept_json
from supervisor.services.machines.machines import MachineList, machines_json
from supervisor.services.reading.offers import (
    PriceList,
    ProviderList,
    RefreshedPrices,
    ZoneList,
    prices_json,
    providers_json,
    refreshed_json,
    zones_json,
)

routes = Routes("machines")


@routes.on("GET /v1/machines", Scope.ADMIN)
async def list_machines(request: Request, query: MachineParameters) -> MachineList:
    """List the machines that the provider sees now, and the use of each."""
    services = services_of(request)
    return await in_slow_thread(machines_json, services.parts, query.all)


@routes.on("GET /v1/machines/kept", Scope.READ)
async def list_kept_machines(request: Request) -> KeptList:
    """List the machines that runs keep switched off for their next attempt (`keep: machine`). Without admin, those of
    your own runs."""
    services, caller = services_of(request), caller_of(request)
    return await in_slow_thread(kept_json, services.parts, caller)


@routes.on("POST /v1/gc", Scope.ADMIN)
async def collect_machines(request: Request, body: bodies.CollectBody) -> Collected:
    """Release the machines of this supervisor that no run needs; with dry_run only list them."""
    services, caller = services_of(request), caller_of(request)
    return await in_slow_thread(collect, services.parts, body.dry_run, caller)


@routes.on("GET /v1/bases", Scope.READ, tag="bases")
async def list_bases(request: Request) -> BaseList:
    """List the bases, newest first: scripts with a name that prepare machines, and the images of their disks."""
    return await run_in_threadpool(bases.list_bases, services_of(request).parts)


@routes.on(
    "POST /v1/bases",
    Scope.WRITE,
    {201: BaseShown},
    tag="bases",
    refuses="RUN_NOT_FOUND BASE_NOT_FOUND BASE_NOT_READY TOO_MANY_ACTIVE_RUNS PRICE_UNKNOWN SECRET_IN_SPEC "
    "RUN_ID_TAKEN INVALID_TIMEOUTS BASE_IN_USE SPEND_UNBOUNDED PLAN_REQUIRED",
)
async def create_base(request: Request, body: bodies.CreateBaseBody) -> BaseShown:
    """Create the next version of a base, from a script, or from the setup of a run. Where the provider makes images of
    disks, a run prepares a machine for it first."""
    wanted = bases.CreateRequest(
        family=body.name,
        script=body.script or "",
        from_run=body.from_run or "",
        image=body.image or "",
        provider=body.provider or "",
        zones=tuple(body.zones),
        shapes=tuple(body.shapes),
        secrets=body.secrets,
        setup_s=body.setup_s,
    )
    return await run_in_threadpool(bases.create, services_of(request).parts, wanted, caller_of(request))


@routes.on("DELETE /v1/bases/{base_name}", Scope.WRITE, tag="bases", refuses="BASE_NOT_FOUND BASE_IN_USE FORBIDDEN")
async def delete_base(request: Request, base_name: str) -> BaseShown:
    """Delete a base, and its image. One that a live run uses is not deleted."""
    return await in_slow_thread(bases.remove, services_of(request).parts, base_name, caller_of(request))


@routes.on("GET /v1/gpus", Scope.ADMIN, refuses="NOT_SUPPORTED")
async def list_gpus(request: Request) -> GpuList:
    """List the GPUs of the supervisor's own computer: the user of each, and which are set aside as broken."""
    return await in_slow_thread(services_of(request).gpus.listed)


@routes.on("POST /v1/gpus/back", Scope.ADMIN, refuses="NOT_SUPPORTED")
async def bring_gpu_back(request: Request, body: bodies.GpuBackBody) -> GpuBack:
    """Declare that a GPU that was set aside works again, so that runs may use it."""
    gpus, caller = services_of(request).gpus, caller_of(request)
    return await in_slow_thread(gpus.bring_back, body.gpu, caller)


@routes.on("GET /v1/prices", Scope.READ, tag="prices", refuses="NOT_SUPPORTED")
async def list_prices(request: Request) -> PriceList:
    """List the price per hour of a machine of each shape in each region, with its source and date."""
    return await run_in_threadpool(prices_json, services_of(request).parts)


@routes.on("POST /v1/prices/refresh", Scope.ADMIN, tag="prices", refuses="NOT_SUPPORTED", body_required=False)
async def refresh_prices(request: Request, body: bodies.RefreshBody) -> RefreshedPrices:
    """Read the prices of the platform and use them from now on. Takes up to a minute; all or nothing."""
    services, caller = services_of(request), caller_of(request)
    return await in_slow_thread(refreshed_json, services.parts, caller)


@routes.on("GET /v1/zones", Scope.READ, tag="runs")
async def list_zones(request: Request) -> ZoneList:
    """List the record of each offer of the provider: capacity, refusals and backoffs, preemptions."""
    services, caller = services_of(request), caller_of(request)
    return await run_in_threadpool(lambda: zones_json(services.parts, caller, services.loop()))


@routes.on("GET /v1/providers", Scope.READ)
async def list_providers(request: Request) -> ProviderList:
    """List the providers: what each can do, its zones and shapes, and the age of its last listing."""
    services = services_of(request)
    return await run_in_threadpool(lambda: providers_json(services.parts, services.loop()))
