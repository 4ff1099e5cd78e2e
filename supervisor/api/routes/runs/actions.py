"""Wishes for one run: stop, resume, retry, approve. 202 where the loop has work to do, 200 where nothing changes."""

from __future__ import annotations

from dataclasses import astuple

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool

from supervisor.api.shapes.bodies import ApproveBody, NoParameters, ResumeBody, read_body, read_query
from supervisor.api.wire.access import Admitted
from supervisor.api.wire.answers import run_answer
from supervisor.api.wire.deps import caller_of, services_of
from supervisor.api.wire.keys import once_of, replied
from supervisor.domain.run import Run
from supervisor.services.runs.approve import ApproveRequest, approve, approve_once
from supervisor.services.runs.keys import Reply
from supervisor.services.runs.policy import warnings_of
from supervisor.services.runs.resume import Resumed, Wish, resume, resume_once
from supervisor.services.runs.retry import retry, retry_once
from supervisor.services.runs.stop import stop, stop_once
from supervisor.services.views.run_view import Json, dumps

router = APIRouter(prefix="/v1/runs/{run_id}", tags=["actions"], route_class=Admitted)


@router.post("/stop", status_code=202)
async def stop_run(request: Request, run_id: str) -> Response:
    """Stop a run: its checkpoint is saved first, then its machine is released."""
    read_query(NoParameters, request)
    services, caller, once = services_of(request), caller_of(request), once_of(request, None)
    view = services.queries.view
    if once is not None:
        return replied(await run_in_threadpool(stop_once, services.parts, run_id, caller, once, view))

    def work() -> tuple[Run, Json]:
        run = stop(services.parts, run_id, caller)
        return run, view(run)

    run, answer = await run_in_threadpool(work)
    return run_answer(answer, 200 if run.terminal else 202)


@router.post("/resume", status_code=202)
async def resume_run(request: Request, run_id: str) -> Response:
    """Resume an ended run from its newest checkpoint as its next generation."""
    read_query(NoParameters, request)
    body = await read_body(ResumeBody, request, optional=True)
    spec = body.spec.as_spec() if body.spec is not None else None
    wish = Wish(spec, body.replace_spec, body.rerun, caller_of(request))
    services, once = services_of(request), once_of(request, [spec, body.replace_spec, body.rerun])

    def shape(resumed: Resumed) -> Reply:
        answer = services.queries.view(resumed.run, resumed.spec.get("labels", {}))
        warnings = warnings_of(resumed.spec, services.parts.traits(resumed.run.provider))
        told = {**answer, "warnings": warnings, "differs": resumed.differs}
        return Reply(202 if resumed.changed else 200, dumps(told), "")

    if once is not None:
        return replied(await run_in_threadpool(resume_once, services.parts, run_id, wish, once, shape))
    return replied(await run_in_threadpool(lambda: shape(resume(services.parts, run_id, wish))))


@router.post("/retry", status_code=202)
async def retry_run(request: Request, run_id: str) -> Response:
    """Ask for the machine of a waiting run now, whatever pause is left."""
    read_query(NoParameters, request)
    services, caller, once = services_of(request), caller_of(request), once_of(request, None)
    view = services.queries.view
    if once is not None:
        return replied(await run_in_threadpool(retry_once, services.parts, run_id, caller, once, view))
    return run_answer(await run_in_threadpool(lambda: view(retry(services.parts, run_id, caller))), 202)


@router.post("/approve", status_code=202)
async def approve_run(request: Request, run_id: str) -> Response:
    """Approve the release of the machine of a finished run, or give up results that cannot be verified."""
    read_query(NoParameters, request)
    body = await read_body(ApproveBody, request)
    wish = ApproveRequest(body.machine_id, body.results_sha256 or "", (body.accept_loss or "").strip())
    services, caller, once = services_of(request), caller_of(request), once_of(request, astuple(wish))
    view = services.queries.view
    if once is not None:
        return replied(
            await run_in_threadpool(
                approve_once, services.parts, run_id, wish, caller=caller, asked=once, view=view
            )
        )

    def work() -> Json:
        return view(approve(services.parts, run_id, wish, caller))

    return run_answer(await run_in_threadpool(work), 202)
