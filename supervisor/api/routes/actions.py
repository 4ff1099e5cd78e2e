"""Wishes for runs that exist: stop, resume, retry, approve, change, purge; stop and resume also of all of a filter.

202 where the loop has work to do, 200 where nothing changes. Only whoever has seen a run as it is may change its
labels, limits or zones: a change names the version that it is made to.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import astuple

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool

from supervisor.api.errors import VersionNeeded
from supervisor.api.shapes import answers, bodies, files, plan
from supervisor.api.shapes.bodies import run_filter
from supervisor.api.shapes.plan import MERGE_PATCH, ChangeBody
from supervisor.api.shapes.run_spec import RunSpec
from supervisor.api.wire.answers import once_of, parse_tags, replied, run_answer, versions
from supervisor.api.wire.deps import caller_of, in_slow_thread, services_of
from supervisor.api.wire.reading import JSON, read_body
from supervisor.api.wire.route import KEYED, SPEC, WITH_KEY, Routes
from supervisor.domain.callers import Caller, Scope
from supervisor.domain.errors import InvalidRequest
from supervisor.domain.run import Run
from supervisor.services.parts import Parts
from supervisor.services.runs.actions import ApproveRequest, approve, retry, stop
from supervisor.services.runs.altering import alter
from supervisor.services.runs.changing import Action, Update, change, change_once
from supervisor.services.runs.keys import Reply
from supervisor.services.runs.many import ManyRequest, resume_many, stop_many
from supervisor.services.runs.policy import warnings_of
from supervisor.services.runs.purge import Purged, purge, purge_once
from supervisor.services.runs.resume import ResumeRequest, resume, resume_once
from supervisor.services.views.run_view import Json, dumps

routes = Routes("actions")
OF_ANOTHER_GENERATION = {"spec", *RunSpec.model_fields} - set(ChangeBody.model_fields)


@routes.on(
    "POST /v1/runs/{run_id}/stop",
    Scope.WRITE,
    {202: answers.Run, 200: answers.Run},
    refuses=KEYED + "RUN_NOT_FOUND",
    **WITH_KEY,
)
async def stop_run(request: Request, run_id: str) -> Response:
    """Stop a run: its checkpoint is saved first, then its machine is released."""
    return await _acted(request, run_id, stop(caller_of(request)), None, ended=200)


async def _acted(request: Request, run_id: str, action: Action, payload: object, ended: int = 202) -> Response:
    """`payload`: all that the body requests, as JSON values. `ended`: the status for a run that has ended."""
    services, key = services_of(request), once_of(request, payload)

    def respond(update: Update) -> Reply:
        return reply(update.run, update.labels)

    def reply(run: Run, labels: Mapping[str, str] | None = None) -> Reply:
        return Reply(ended if run.terminal else 202, dumps(services.queries.view(run, labels)), version=run.version)

    def work() -> Reply:
        if key is not None:
            return change_once(services.parts, run_id, action, key, respond)
        return reply(change(services.parts, run_id, action))

    return replied(await run_in_threadpool(work))


@routes.on(
    "POST /v1/runs/{run_id}/resume",
    Scope.WRITE,
    {202: answers.SubmittedRun, 200: answers.SubmittedRun},
    refuses=SPEC + KEYED + "RUN_NOT_FOUND RUN_ACTIVE CONFLICT",
    body_required=False,
    **WITH_KEY,
)
async def resume_run(request: Request, run_id: str, body: bodies.ResumeBody) -> Response:
    """Resume an ended run from its newest checkpoint as its next generation."""
    spec = body.spec.as_spec() if body.spec is not None else None
    wanted = ResumeRequest(caller_of(request), spec, body.replace_spec, body.rerun)
    services, once = services_of(request), once_of(request, [spec, body.replace_spec, body.rerun])

    def respond(resumed: Update) -> Reply:
        answer = services.queries.view(resumed.run, resumed.labels)
        warnings = warnings_of(resumed.spec or {}, *services.parts.traits_of(resumed.run))
        whole = {**answer, "warnings": warnings, "differs": resumed.differs}
        return Reply(202 if resumed.changed else 200, dumps(whole))

    if once is not None:
        return replied(await run_in_threadpool(resume_once, services.parts, run_id, wanted, once, respond))
    return replied(await run_in_threadpool(lambda: respond(resume(services.parts, run_id, wanted))))


@routes.on(
    "POST /v1/runs/{run_id}/retry",
    Scope.WRITE,
    {202: answers.Run},
    refuses=KEYED + "RUN_NOT_FOUND NOTHING_TO_RETRY",
    **WITH_KEY,
)
async def retry_run(request: Request, run_id: str) -> Response:
    """Ask for the machine of a waiting run now, whatever pause is left."""
    services = services_of(request)
    return await _acted(request, run_id, retry(services.parts, caller_of(request)), None)


@routes.on(
    "POST /v1/runs/{run_id}/approve",
    Scope.WRITE,
    {202: answers.Run},
    refuses=KEYED + "RUN_NOT_FOUND NOTHING_TO_APPROVE APPROVAL_MISMATCH PULL_REQUIRED",
    **WITH_KEY,
)
async def approve_run(request: Request, run_id: str, body: bodies.ApproveBody) -> Response:
    """Approve the release of the machine of a finished run, or give up results that cannot be verified."""
    approval = ApproveRequest(body.machine_id, body.results_sha256 or "", (body.accept_loss or "").strip())
    return await _acted(request, run_id, approve(approval, caller_of(request)), astuple(approval))


@routes.on(
    "PATCH /v1/runs/{run_id}",
    Scope.WRITE,
    plan.ChangedRun,
    body=plan.ChangeBody,
    refuses="RUN_NOT_FOUND PRECONDITION_FAILED PRECONDITION_REQUIRED RUN_ENDED INVALID_TIMEOUTS PRICE_UNKNOWN "
    "DATA_ELSEWHERE SECRET_IN_SPEC",
    takes=("If-Match",),
    sends=("ETag",),
    json_types=(JSON, MERGE_PATCH),
)
async def change_run(request: Request, run_id: str) -> Response:
    """Change labels, limits, or the zones of later attempts of a run, by a JSON merge patch. `If-Match` names the
    version that you have seen. What changes the training itself needs a resume with replace_spec."""
    versions = _versions(request)
    body = await _body(request)
    services, caller = services_of(request), caller_of(request)

    def work() -> Json:
        try:
            done = alter(services.parts, run_id, body.as_patch(), versions, caller)
        except InvalidRequest as error:
            error.errors = tuple((pointer.replace("#/spec/", "#/", 1), why) for pointer, why in error.errors)
            raise
        told = {"warnings": done.warnings, "before": done.before, "after": done.after}
        return {**services.queries.view(done.run), **told}

    return run_answer(await run_in_threadpool(work))


def _versions(request: Request) -> frozenset[int] | None:
    """Raises VersionNeeded, InvalidRequest. None = whatever is there may be changed."""
    lines = request.headers.getlist("if-match")
    if not lines:
        raise VersionNeeded(
            "Send the ETag of the run that you have read as If-Match, so that nobody else's change is overwritten; "
            "`If-Match: *` takes whatever is there."
        )
    wanted = parse_tags(lines)
    if wanted is None:
        raise InvalidRequest("If-Match is neither a list of entity tags in quotes nor `*`.")
    return versions(wanted)


async def _body(request: Request) -> ChangeBody:
    """Raises InvalidRequest and its kin; with advice where a field was meant that cannot change under a run."""
    try:
        return await read_body(ChangeBody, request, kind=MERGE_PATCH)
    except InvalidRequest as error:
        names = [pointer[2:].partition("/")[0] for pointer, _ in error.errors]
        fixed = [name for name in dict.fromkeys(names) if name in OF_ANOTHER_GENERATION]
        if not fixed:
            raise
        raise InvalidRequest(
            f"{', '.join(fixed)}: what is trained does not change under a run; labels, limits and zones do. "
            "Stop the run and resume it with the other spec and replace_spec. Nothing was changed.",
            {"fields": fixed},
            [(f"#/{name}", "needs a resume with replace_spec") for name in fixed],
        ) from None


@routes.on(
    "POST /v1/runs/{run_id}/purge",
    Scope.WRITE,
    files.PurgedRun,
    tag="runs",
    refuses=KEYED + "RUN_NOT_FOUND PURGE_REFUSED",
    **WITH_KEY,
)
async def purge_run(request: Request, run_id: str, body: bodies.PurgeBody) -> Response:
    """Delete all files of a run whose machines are gone; its history stays. Repeat it if it was cut off."""
    services, caller, once = services_of(request), caller_of(request), once_of(request, body.confirm)

    def respond(done: Purged) -> Reply:
        figures = {"deleted_files": done.files, "deleted_bytes": done.size_bytes}
        return Reply(200, dumps({**services.queries.view(done.run), **figures}))

    def work() -> Reply:
        if once is not None:
            return purge_once(services.parts, run_id, body.confirm, caller=caller, key=once, respond=respond)
        return respond(purge(services.parts, run_id, body.confirm, caller))

    return replied(await in_slow_thread(work))


@routes.on(
    "POST /v1/runs/stop", Scope.WRITE, plan.ManyDone, refuses="CURSOR_INVALID COUNT_DIFFERS", body_required=False
)
async def stop_runs(request: Request, query: plan.ManyParameters, body: plan.ManyBody) -> object:
    """Stop every run of a filter, 1000 at most in one request: each as a stop of it alone would."""
    return await _done(request, query, body, stop_many)


@routes.on(
    "POST /v1/runs/resume", Scope.WRITE, plan.ManyDone, refuses="CURSOR_INVALID COUNT_DIFFERS", body_required=False
)
async def resume_runs(request: Request, query: plan.ManyParameters, body: plan.ManyBody) -> object:
    """Resume every ended run of a filter with the spec that it has, 1000 at most in one request. Live runs and
    completed ones are left alone."""
    return await _done(request, query, body, resume_many)


async def _done(
    request: Request, query: plan.ManyParameters, body: plan.ManyBody, act: Callable[[Parts, ManyRequest, Caller], Json]
) -> Json:
    services, caller = services_of(request), caller_of(request)
    wanted = ManyRequest(run_filter(query, caller), query.page_size, query.cursor, body.dry_run, body.expect)
    return await run_in_threadpool(act, services.parts, wanted, caller)
