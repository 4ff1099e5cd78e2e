"""What is it, is it alive, is it ready, and what would a doctor say."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool

from supervisor.api.shapes.bodies import DoctorParameters, NoParameters, ReadyParameters, read_query
from supervisor.api.wire.access import Admitted
from supervisor.api.wire.answers import json_answer
from supervisor.api.wire.deps import caller_of, services_of
from supervisor.api.wire.limits import limits_of
from supervisor.api.wire.threads import in_slow_thread
from supervisor.services.access.tokens import asker_json
from supervisor.services.doctor.doctor import examine
from supervisor.services.reading.health import loop_json, meta, readiness, readiness_json

router = APIRouter(tags=["health"], route_class=Admitted)


@router.get("/livez")
async def live(request: Request) -> Response:
    """Answer while the process lives; no database."""
    read_query(NoParameters, request)
    return json_answer({"live": True})


@router.get("/readyz")
async def ready(request: Request) -> Response:
    """Answer 200 when the supervisor is fit for work, else 503. `?verbose` shows each check."""
    verbose = read_query(ReadyParameters, request).verbose is not None
    services = services_of(request)
    answer = readiness_json(await run_in_threadpool(readiness, services.parts, services.loop))
    if not verbose and answer["ready"]:
        del answer["checks"]
    return json_answer(answer, 200 if answer["ready"] else 503)


@router.get("/v1/meta")
async def show_meta(request: Request) -> Response:
    """Tell version, features and limits, and what a run gets that names no provider, zone or shape."""
    read_query(NoParameters, request)
    services = services_of(request)
    return json_answer(meta(services.parts, limits_of(services)))


@router.get("/v1/loop")
async def show_loop(request: Request) -> Response:
    """Tell how the loop does: when it last looked, how long that took, and which leases this process holds."""
    read_query(NoParameters, request)
    services = services_of(request)
    return json_answer(loop_json(services.loop(), services.parts.knobs.poll_interval_s))


@router.get("/v1/whoami")
async def show_asker(request: Request) -> Response:
    """Tell whom the token of this request stands for, and what it may do."""
    read_query(NoParameters, request)
    services, caller = services_of(request), caller_of(request)
    return json_answer(await run_in_threadpool(asker_json, services.parts, caller))


@router.get("/v1/doctor")
async def doctor(request: Request) -> Response:
    """Check this computer, the cloud where there is one, the alert address, and machines that serve nobody.

    Every check is answered within four seconds, by a line that says so where it hangs.
    """
    test = read_query(DoctorParameters, request).alert_test
    services = services_of(request)
    return json_answer(await in_slow_thread(examine, services.parts, services.around, services.loop, test))
