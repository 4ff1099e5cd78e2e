"""Wishes for one run: stop, resume, approve. 202 where the loop has something to do, 200 where nothing changes."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool

from supervisor.api.answers import run_answer
from supervisor.api.bodies import ApproveBody, NoParameters, ResumeBody, read_body, read_query
from supervisor.api.deps import Services, caller_of, services_of
from supervisor.domain.run import Run
from supervisor.services.approve import ApproveRequest, approve
from supervisor.services.policy import warnings_of
from supervisor.services.resume import Wish, resume
from supervisor.services.run_view import Json
from supervisor.services.stop import stop

router = APIRouter(prefix="/v1/runs/{run_id}", tags=["actions"])


@router.post("/stop", status_code=202)
async def stop_run(request: Request, run_id: str) -> Response:
    """Stop a run: its checkpoint is saved first, then its machine is released."""
    read_query(NoParameters, request)
    services, caller = services_of(request), caller_of(request)

    def work() -> tuple[Run, Json]:
        run = stop(services.parts, run_id, caller)
        return run, services.queries.view(run)

    run, answer = await run_in_threadpool(work)
    return run_answer(answer, 200 if run.terminal else 202)


@router.post("/resume", status_code=202)
async def resume_run(request: Request, run_id: str) -> Response:
    """Resume an ended run from its newest checkpoint as its next generation."""
    read_query(NoParameters, request)
    body = await read_body(ResumeBody, request, optional=True)
    spec = body.spec.as_spec() if body.spec is not None else None
    wish = Wish(spec, body.replace_spec, body.rerun, caller_of(request))
    services = services_of(request)
    answer, changed = await run_in_threadpool(_resume, services, run_id, wish)
    return run_answer(answer, 202 if changed else 200)


def _resume(services: Services, run_id: str, wish: Wish) -> tuple[Json, bool]:
    resumed = resume(services.parts, run_id, wish)
    answer = services.queries.view(resumed.run)
    warnings = warnings_of(resumed.spec, resumed.run.provider)
    return {**answer, "warnings": warnings, "differs": resumed.differs}, resumed.changed


@router.post("/approve", status_code=202)
async def approve_run(request: Request, run_id: str) -> Response:
    """Approve the release of the machine of a finished run, or give up results that cannot be verified."""
    read_query(NoParameters, request)
    body = await read_body(ApproveBody, request)
    wish = ApproveRequest(body.machine_id, body.results_sha256 or "", (body.accept_loss or "").strip())
    services, caller = services_of(request), caller_of(request)

    def work() -> Json:
        return services.queries.view(approve(services.parts, run_id, wish, caller))

    return run_answer(await run_in_threadpool(work), 202)
