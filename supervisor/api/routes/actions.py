"""Actions on existing runs: stop, resume, retry, drill, approve, change, purge; stop and resume also on all runs of a
filter.

The status is 202 where the loop has work to do, and 200 where nothing changes. A change of labels, limits or zones
names the version of the run that the client has seen, and is refused when the run has changed since.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple
from functools import partial
from typing import Any

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool

from supervisor.api.errors import VersionNeeded
from supervisor.api.shapes import bodies
from supervisor.api.shapes.bodies import MERGE_PATCH, ChangeBody
from supervisor.api.shapes.parameters import ManyParameters
from supervisor.api.shapes.run_spec import RunSpec
from supervisor.api.wire.deps import caller_of, in_slow_thread, services_of
from supervisor.api.wire.reading import JSON, read_body
from supervisor.api.wire.responses import kept_response, key_of_request, parse_tags, run_response, versions
from supervisor.api.wire.route import KEYED, SPEC, WITH_KEY, Routes
from supervisor.domain.callers import Caller, Scope
from supervisor.domain.errors import InvalidRequest
from supervisor.domain.run import Run
from supervisor.services.parts import Parts
from supervisor.services.reading.teardown import offered_verbs
from supervisor.services.runs.actions import (
    ApproveRequest,
    WriteOffRequest,
    approve,
    delete_kept,
    drill,
    retry,
    stop,
    write_off,
)
from supervisor.services.runs.altering import alter
from supervisor.services.runs.changing import Action, Update, change, change_once
from supervisor.services.runs.keys import Reply
from supervisor.services.runs.many import ManyDone, ManyRequest, resume_many, stop_many
from supervisor.services.runs.policy import warnings_of
from supervisor.services.runs.purge import Purged, purge, purge_once
from supervisor.services.runs.resume import ResumeRequest, resume, resume_once
from supervisor.services.runs.submit import SubmittedRun
from supervisor.services.runs.waiving import WaiveRequest, waive
from supervisor.services.views.formats import dumps
from supervisor.services.views.run_view import RunJson

routes = Routes("actions")
OF_ANOTHER_GENERATION = {"spec", *RunSpec.model_fields} - set(ChangeBody.model_fields)


class ChangedRun(RunJson):
    """`before`, `after`: the values before and after the change, by name (`limits.budget_usd`, `labels.team`, `zones`);
    empty where nothing differs. `warnings`: what the change causes at once."""

    warnings: Sequence[str]
    before: Mapping[str, Any]
    after: Mapping[str, Any]


class PurgedRun(RunJson):
    """`deleted_files`, `deleted_bytes`: by this request. An earlier request that was interrupted may have deleted
    others."""

    deleted_files: int
    deleted_bytes: int


@routes.on(
    "POST /v1/runs/{run_id}/stop",
    Scope.WRITE,
    {202: RunJson, 200: RunJson},
    refuses=KEYED + "RUN_NOT_FOUND",
    **WITH_KEY,
)
async def stop_run(request: Request, run_id: str) -> Response:
    """Stop a run. Its checkpoint is saved first, then its machine is released."""
    return await _acted(request, run_id, stop(caller_of(request)), None, ended=200)


@routes.on(
    "POST /v1/runs/{run_id}/retry",
    Scope.WRITE,
    {202: RunJson},
    refuses=KEYED + "RUN_NOT_FOUND NOTHING_TO_RETRY",
    **WITH_KEY,
)
async def retry_run(request: Request, run_id: str) -> Response:
    """Request the machine of a waiting run now, without the rest of its backoff. A run that waits for the answer of
    a person goes on."""
    return await _acted(request, run_id, retry(services_of(request).parts, caller_of(request)), None)


@routes.on(
    "POST /v1/runs/{run_id}/machine/delete",
    Scope.WRITE,
    {202: RunJson},
    refuses=KEYED + "RUN_NOT_FOUND NOTHING_KEPT",
    **WITH_KEY,
)
async def delete_kept_machine(request: Request, run_id: str) -> Response:
    """Delete the machine that the run keeps switched off. A live run goes on from its checkpoint on a new one."""
    return await _acted(request, run_id, delete_kept(caller_of(request)), None)


@routes.on(
    "POST /v1/runs/{run_id}/drill",
    Scope.WRITE,
    {202: RunJson},
    refuses=KEYED + "RUN_NOT_FOUND NOTHING_TO_DRILL",
    **WITH_KEY,
)
async def drill_run(request: Request, run_id: str) -> Response:
    """Drill the training: as at a preemption notice it is asked to leave, saved, restored on the same machine, and
    measured. `drill` of the run has the result. While one goes on, a repeat changes nothing."""
    return await _acted(request, run_id, drill(caller_of(request)), None)


@routes.on(
    "POST /v1/runs/{run_id}/approve",
    Scope.WRITE,
    {202: RunJson},
    refuses=KEYED + "RUN_NOT_FOUND NOTHING_TO_APPROVE APPROVAL_MISMATCH VERB_NOT_OFFERED PULL_REQUIRED",
    **WITH_KEY,
)
async def approve_run(request: Request, run_id: str, body: bodies.ApproveBody) -> Response:
    """Approve how the machine of a finished run is given back, confirm that its host is billed no more, or give up
    results that cannot be verified."""
    approval = ApproveRequest(
        body.machine_id,
        body.results_sha256 or "",
        (body.accept_loss or "").strip(),
        body.verb or "",
        body.meter_stopped,
    )
    verbs = partial(offered_verbs, services_of(request).parts)
    return await _acted(request, run_id, approve(approval, caller_of(request), verbs), astuple(approval))


@routes.on(
    "POST /v1/runs/{run_id}/write-off",
    Scope.WRITE,
    {200: RunJson},
    refuses="RUN_NOT_FOUND NOTHING_TO_APPROVE APPROVAL_MISMATCH UNAVAILABLE",
    sends=("ETag",),
)
async def write_off_machine(request: Request, run_id: str, body: bodies.WriteOffBody) -> Response:
    """The machine of the run, which cannot be read, counts as lost. The run goes on from the last checkpoint in the
    object store. A repeat changes nothing."""
    services, caller = services_of(request), caller_of(request)
    what = WriteOffRequest(body.machine_id or "", body.reason.strip())
    run = await in_slow_thread(write_off, services.parts, run_id, what, caller)
    return run_response(await run_in_threadpool(services.queries.view, run))


@routes.on(
    "POST /v1/runs/{run_id}/gates/waivers",
    Scope.WRITE,
    {200: RunJson},
    refuses="RUN_NOT_FOUND CHECK_NOT_WAIVABLE",
    sends=("ETag",),
)
async def waive_check(request: Request, run_id: str, body: bodies.WaiveBody) -> Response:
    """Let a run go on in spite of a warning or a fail of one check of G0 to G4, with a reason for its history. A repeat
    changes nothing."""
    services = services_of(request)
    action = waive(WaiveRequest(body.check, body.reason.strip()), caller_of(request))
    run = await run_in_threadpool(change, services.parts, run_id, action)
    return run_response(await run_in_threadpool(services.queries.view, run))


async def _acted(request: Request, run_id: str, action: Action, payload: object, ended: int = 202) -> Response:
    """`payload`: everything in the body, as JSON values. `ended`: the status for a run that has ended."""
    services, key = services_of(request), key_of_request(request, payload)

    def respond(update: Update) -> Reply:
        return reply(update.run, update.labels)

    def reply(run: Run, labels: Mapping[str, str] | None = None) -> Reply:
        return Reply(ended if run.terminal else 202, dumps(services.queries.view(run, labels)), version=run.version)

    def work() -> Reply:
        if key is not None:
            return change_once(services.parts, run_id, action, key, respond)
        return reply(change(services.parts, run_id, action))

    return kept_response(await run_in_threadpool(work))


@routes.on(
    "POST /v1/runs/{run_id}/resume",
    Scope.WRITE,
    {202: SubmittedRun, 200: SubmittedRun},
    refuses=SPEC + KEYED + "RUN_NOT_FOUND RUN_ACTIVE CONFLICT",
    body_required=False,
    **WITH_KEY,
)
async def resume_run(request: Request, run_id: str, body: bodies.ResumeBody) -> Response:
    """Resume an ended run from its newest checkpoint as its next generation."""
    spec = body.spec.as_spec() if body.spec is not None else None
    resumption = ResumeRequest(caller_of(request), spec, body.replace_spec, body.rerun)
    services, key = services_of(request), key_of_request(request, [spec, body.replace_spec, body.rerun])

    def respond(resumed: Update) -> Reply:
        resumed_run: SubmittedRun = {
            **services.queries.view(resumed.run, resumed.labels),
            "warnings": warnings_of(resumed.spec or {}, *services.parts.traits_of(resumed.run)),
            "differs": resumed.differs,
        }
        return Reply(202 if resumed.changed else 200, dumps(resumed_run))

    def work() -> Reply:
        if key is not None:
            return resume_once(services.parts, run_id, resumption, key, respond)
        return respond(resume(services.parts, run_id, resumption))

    return kept_response(await run_in_threadpool(work))


@routes.on(
    "PATCH /v1/runs/{run_id}",
    Scope.WRITE,
    {200: ChangedRun},
    body=ChangeBody,
    refuses="RUN_NOT_FOUND PRECONDITION_FAILED PRECONDITION_REQUIRED RUN_ENDED INVALID_TIMEOUTS PRICE_UNKNOWN "
    "DATA_ELSEWHERE SECRET_IN_SPEC AFTER_UNKNOWN AFTER_CYCLE SPEND_UNBOUNDED OVER_DAY_CAP OVER_RUN_CAP PLAN_REQUIRED "
    "FORBIDDEN",
    takes=("If-Match",),
    sends=("ETag",),
    json_types=(JSON, MERGE_PATCH),
)
async def change_run(request: Request, run_id: str) -> Response:
    """Change labels, limits, zones of later attempts, max_parallel, after, priority or min_run_s of a run, by a JSON
    merge patch. `If-Match` names the version that you have seen. A change of the training itself needs a resume with
    replace_spec."""
    versions = _versions(request)
    body = await _body(request)
    services, caller = services_of(request), caller_of(request)

    def work() -> ChangedRun:
        try:
            done = alter(services.parts, run_id, body.as_patch(), versions, caller)
        except InvalidRequest as error:
            error.errors = tuple((pointer.replace("#/spec/", "#/", 1), why) for pointer, why in error.errors)
            raise
        return {
            **services.queries.view(done.run),
            "warnings": done.warnings,
            "before": done.before,
            "after": done.after,
        }

    return run_response(await run_in_threadpool(work))


def _versions(request: Request) -> frozenset[int] | None:
    """Raises VersionNeeded, InvalidRequest. None = any version may be changed."""
    lines = request.headers.getlist("if-match")
    if not lines:
        raise VersionNeeded(
            "Send the ETag of the run that you have read as If-Match, so that the change of another person is not "
            "overwritten. `If-Match: *` changes any version."
        )
    tags = parse_tags(lines)
    if tags is None:
        raise InvalidRequest("If-Match is neither a list of entity tags in quotes nor `*`.")
    return versions(tags)


async def _body(request: Request) -> ChangeBody:
    """Raises InvalidRequest and its subclasses, with advice for a field that cannot change under a run."""
    try:
        return await read_body(ChangeBody, request, kind=MERGE_PATCH)
    except InvalidRequest as error:
        names = [pointer[2:].partition("/")[0] for pointer, _ in error.errors]
        fixed = [name for name in dict.fromkeys(names) if name in OF_ANOTHER_GENERATION]
        if not fixed:
            raise
        raise InvalidRequest(
            f"{', '.join(fixed)}: the training does not change under a run; labels, limits, zones, max_parallel, "
            "after, priority and min_run_s do. Nothing was changed. Stop the run and resume it with the other spec and "
            "replace_spec.",
            {"fields": fixed},
            [(f"#/{name}", "needs a resume with replace_spec") for name in fixed],
        ) from None


@routes.on(
    "POST /v1/runs/{run_id}/purge",
    Scope.WRITE,
    {200: PurgedRun},
    tag="runs",
    refuses=KEYED + "RUN_NOT_FOUND PURGE_REFUSED",
    **WITH_KEY,
)
async def purge_run(request: Request, run_id: str, body: bodies.PurgeBody) -> Response:
    """Delete all files of a run whose machines are gone. Its history stays. If interrupted, repeat the request."""
    services, caller, key = services_of(request), caller_of(request), key_of_request(request, body.confirm)

    def respond(done: Purged) -> Reply:
        purged_run: PurgedRun = {
            **services.queries.view(done.run),
            "deleted_files": done.files,
            "deleted_bytes": done.size_bytes,
        }
        return Reply(200, dumps(purged_run))

    def work() -> Reply:
        if key is not None:
            return purge_once(services.parts, run_id, body.confirm, caller=caller, key=key, respond=respond)
        return respond(purge(services.parts, run_id, body.confirm, caller))

    return kept_response(await in_slow_thread(work))


@routes.on("POST /v1/runs/stop", Scope.WRITE, refuses="CURSOR_INVALID COUNT_DIFFERS", body_required=False)
async def stop_runs(request: Request, query: ManyParameters, body: bodies.ManyBody) -> ManyDone:
    """Stop every run of a filter, 1000 at most in one request. Each is stopped as by a request for it alone."""
    return await _acted_on_many(request, query, body, stop_many)


@routes.on("POST /v1/runs/resume", Scope.WRITE, refuses="CURSOR_INVALID COUNT_DIFFERS", body_required=False)
async def resume_runs(request: Request, query: ManyParameters, body: bodies.ManyBody) -> ManyDone:
    """Resume every ended run of a filter with the spec that it has, 1000 at most in one request. Live runs and
    completed runs do not change."""
    return await _acted_on_many(request, query, body, resume_many)


async def _acted_on_many(
    request: Request,
    query: ManyParameters,
    body: bodies.ManyBody,
    act: Callable[[Parts, ManyRequest, Caller], ManyDone],
) -> ManyDone:
    services, caller = services_of(request), caller_of(request)
    filtered = ManyRequest(query.run_filter(caller), query.page_size, query.cursor, body.dry_run, body.expect)
    return await run_in_threadpool(act, services.parts, filtered, caller)
