"""Runs: submit, list, and show the spec, the attempts, the evidence and the cost of each.

Each route calls one service. Reads of an object store or a cloud run in threads of their own.
"""

from __future__ import annotations

from functools import partial

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool

from supervisor.api.shapes import bodies, parameters
from supervisor.api.shapes.parameters import epoch
from supervisor.api.wire.deps import caller_of, in_slow_thread, services_of
from supervisor.api.wire.responses import SNIFFED, json_response, kept_response, key_of, run_unless_known
from supervisor.api.wire.route import KEYED, SPEC, Routes
from supervisor.domain.callers import Scope
from supervisor.domain.errors import InvalidRequest
from supervisor.services.gates.gates import RunGates, show_gates
from supervisor.services.machines.incidents import list_incidents
from supervisor.services.migration.importing import ImportedRun, ImportRequest, import_run
from supervisor.services.plan import spec_view
from supervisor.services.plan.forecasting import ForecastShown
from supervisor.services.plan.plan import Variations, WhatIf, plan, what_if
from supervisor.services.plan.plan_view import Plan
from supervisor.services.plan.spec_view import LaunchShown, RunSpecShown
from supervisor.services.reading import console, diagnosis, evidence
from supervisor.services.reading.billed import BilledList
from supervisor.services.reading.billed import csv_text as billed_text
from supervisor.services.reading.console import ConsoleText, MachineLogin, machine_login
from supervisor.services.reading.cost import CostList, RunCost, cost_page, run_cost
from supervisor.services.reading.diagnosis import Diagnosis
from supervisor.services.reading.evidence import Evidence, RunFacts
from supervisor.services.reading.ledger import By, Completion, LedgerList, csv_text, show_completion, show_ledger
from supervisor.services.reading.queries import RunList, ShownRun
from supervisor.services.reading.teardown import TeardownShown, teardown_json
from supervisor.services.runs.pasting import NotebookCell, notebook_cell
from supervisor.services.runs.smoked import smoke_run
from supervisor.services.runs.submit import SubmitRequest, SubmittedRun, submit
from supervisor.services.runs.waiving import WaiveRequest, check_waivable
from supervisor.services.views.attempt_view import AttemptList

routes = Routes("runs")
INCIDENTS_SHOWN = 3  # in a list of runs


@routes.on(
    "POST /v1/runs",
    Scope.WRITE,
    {201: SubmittedRun, 200: SubmittedRun},
    also=Plan,
    refuses=SPEC + KEYED + "RUN_ACTIVE RUN_ID_TAKEN OLD_RUN_THERE CHECK_NOT_WAIVABLE",
    takes=("Idempotency-Key",),
    sends=("Location", "ETag", "Idempotency-Replayed"),
)
async def submit_run(request: Request, query: parameters.SubmitParameters, body: bodies.SubmitBody) -> Plan | Response:
    """Submit a run, or repeat the submit of the run with this run_id; with validate_only show what that would do."""
    if query.code_follows and not query.validate_only:
        reason = "code_follows has a meaning with validate_only alone"
        raise InvalidRequest(f"The query is refused: ? {reason}.", {"count": 1}, [("?", reason)])
    submission = SubmitRequest(
        spec=body.spec.as_spec(),
        run_id=body.run_id,
        replace_spec=body.replace_spec,
        rerun=body.rerun,
        ignore_old=body.ignore_old,
        plan_id=body.plan_id,
        key=key_of(request),
        waive=tuple(WaiveRequest(each.check, each.reason.strip()) for each in body.waive),
        smoke=None if body.smoke is None else smoke_run(body.smoke.model_dump()),
    )
    for position, each in enumerate(submission.waive):
        check_waivable(each.check, f"#/waive/{position}/check")
    services, caller = services_of(request), caller_of(request)
    if query.validate_only:
        return await in_slow_thread(plan, services.parts, services.plan_sources, submission, caller, query.code_follows)
    # A chosen name is looked up in the object store: a bucket may be slow, a folder is not.
    reads_bucket = body.run_id is not None and not services.parts.objects.url.startswith("file:")
    in_thread = in_slow_thread if reads_bucket else run_in_threadpool
    return kept_response(await in_thread(submit, services.parts, submission, caller))


@routes.on("POST /v1/what-if", Scope.WRITE, refuses=SPEC)
async def forecast_variations(request: Request, body: bodies.WhatIfBody) -> WhatIf:
    """Show what a run would cost and when it would end with other zones, deadlines, shapes or markets. At most 24
    combinations; nothing is made or started."""
    variations = Variations(
        zones=tuple(each if isinstance(each, int) else tuple(each) for each in body.zones),
        deadlines=tuple(epoch(each) for each in body.deadlines),
        shapes=tuple(map(tuple, body.shapes)),
        markets=tuple(body.markets),
    )
    submission = SubmitRequest(spec=body.spec.as_spec(), run_id=None)
    return await in_slow_thread(what_if, services_of(request).parts, submission, variations, caller_of(request))


@routes.on(
    "POST /v1/imports",
    Scope.WRITE,
    {201: ImportedRun, 200: ImportedRun},
    refuses="OLD_RUN_NOT_FOUND OLD_RUN_UNREADABLE OLD_RUN_ALIVE IMPORT_RUNNING RUN_ID_TAKEN CONFLICT "
    "SECRET_IN_SPEC INVALID_TIMEOUTS PRICE_UNKNOWN",
)
async def import_old_run(request: Request, body: bodies.ImportBody) -> Response:
    """Make a stopped run from a run of the older shell runner, with its checkpoint and history. The old folder is only
    read. A repeat of the request gives the same run. A large checkpoint takes minutes."""
    spec = body.spec.as_spec() if body.spec is not None else None
    old_run = ImportRequest(body.url, body.run_id, spec, body.dry_run)
    status, imported = await in_slow_thread(import_run, services_of(request).parts, old_run, caller_of(request))
    return json_response(imported, status)


@routes.on("GET /v1/runs", Scope.READ, refuses="CURSOR_INVALID")
async def list_runs(request: Request, query: parameters.RunListParameters) -> RunList:
    """List runs, newest first, with counts by status under the same filter."""
    queries, where = services_of(request).queries, query.run_filter(caller_of(request))
    page = (where, query.page_size, query.cursor, "sparkline" in query.include)
    parts, caller = services_of(request).parts, caller_of(request)

    def work() -> RunList:
        listing = queries.page(*page)
        if query.incidents:
            listing["incidents"] = list_incidents(parts, caller, False, INCIDENTS_SHOWN)["incidents"]
        return listing

    return await run_in_threadpool(work)


@routes.on(
    "GET /v1/runs/{run_id}",
    Scope.READ,
    {200: ShownRun},
    refuses="RUN_NOT_FOUND",
    media={304: ()},
    takes=("If-None-Match",),
    sends=("ETag",),
)
async def show_run(request: Request, run_id: str) -> Response:
    """Show one run."""
    return run_unless_known(request, await run_in_threadpool(services_of(request).queries.show, run_id))


@routes.on("GET /v1/runs/{run_id}/attempts", Scope.READ, refuses="RUN_NOT_FOUND")
async def list_attempts(request: Request, run_id: str) -> AttemptList:
    """List the attempts of a run with causes, times, steps and costs, and the tries that brought no machine."""
    return await run_in_threadpool(services_of(request).queries.attempts, run_id)


@routes.on("GET /v1/runs/{run_id}/gates", Scope.READ, refuses="RUN_NOT_FOUND")
async def list_gates(request: Request, run_id: str) -> RunGates:
    """List the gates of a run with the verdict of each check, its fact and its fix; and what was waived."""
    services = services_of(request)
    return await run_in_threadpool(show_gates, services.parts, services.queries, services.loop, run_id)


@routes.on("GET /v1/runs/{run_id}/forecast", Scope.READ, refuses="RUN_NOT_FOUND")
async def show_forecast(request: Request, run_id: str) -> ForecastShown:
    """Show what a run will cost and when it ends, from a simulation of this run, with what is assumed. It takes up to
    two seconds, and is made once a minute at most."""
    return await in_slow_thread(services_of(request).forecasts.of, run_id)


@routes.on("GET /v1/runs/{run_id}/teardown", Scope.READ, refuses="RUN_NOT_FOUND")
async def show_teardown(request: Request, run_id: str) -> TeardownShown:
    """Show how the machine of a run is given back: each verb with what it stops and leaves, and what was approved."""
    services = services_of(request)
    return await run_in_threadpool(lambda: teardown_json(services.parts, services.queries.find(run_id)))


@routes.on("GET /v1/runs/{run_id}/spec", Scope.READ, refuses="RUN_NOT_FOUND")
async def show_spec(request: Request, run_id: str) -> RunSpecShown:
    """Show the spec of a run, as a submit takes it."""
    services = services_of(request)
    return await run_in_threadpool(spec_view.show_spec, services.parts, services.queries, run_id)


@routes.on("GET /v1/runs/{run_id}/launch", Scope.READ, refuses="RUN_NOT_FOUND")
async def show_launch(request: Request, run_id: str) -> LaunchShown:
    """Show what the newest machine of a run is started with: the request, its start-up script, the job."""
    services = services_of(request)
    preview = services.plan_sources.preview
    return await run_in_threadpool(spec_view.show_launch, services.parts, services.queries, preview, run_id)


@routes.on("GET /v1/runs/{run_id}/cell", Scope.WRITE, refuses="RUN_NOT_FOUND NOTHING_TO_PASTE UNAVAILABLE")
async def show_cell(request: Request, run_id: str) -> NotebookCell:
    """Show the notebook cell that starts the machine of a waiting run. Its ticket is good for one claim."""
    return await run_in_threadpool(notebook_cell, services_of(request).parts, run_id)


@routes.on("GET /v1/runs/{run_id}/facts", Scope.READ, refuses="RUN_NOT_FOUND")
async def show_facts(request: Request, run_id: str) -> RunFacts:
    """Show what each attempt ran on (code, versions, packages, GPUs, seeds, tracker) and where attempts differ."""
    services = services_of(request)
    return await in_slow_thread(evidence.show_facts, services.parts, services.queries, run_id)


@routes.on(
    "GET /v1/runs/{run_id}/attempts/{number}/evidence",
    Scope.READ,
    refuses="RUN_NOT_FOUND EVIDENCE_NOT_FOUND FILES_PURGED",
)
async def show_evidence(request: Request, run_id: str, number: str) -> Evidence:
    """Show the evidence of an attempt that is over: why it ended, the readings behind that, its last output."""
    services = services_of(request)
    return await in_slow_thread(evidence.show_evidence, services.parts, services.queries, run_id, number=number)


@routes.on("GET /v1/runs/{run_id}/diagnosis", Scope.READ, refuses="RUN_NOT_FOUND EVIDENCE_NOT_FOUND FILES_PURGED")
async def show_diagnosis(request: Request, run_id: str, query: parameters.DiagnosisParameters) -> Diagnosis:
    """Show what the end of an attempt means: cause, certainty, the evidence that proves it, what helps, and whether it
    was restarted. Of an attempt that goes on, what is unusual. Nothing acts on this response."""
    services = services_of(request)
    return await in_slow_thread(
        diagnosis.show_diagnosis, services.parts, services.queries, run_id, number=query.attempt
    )


@routes.on(
    "GET /v1/runs/{run_id}/console", Scope.READ, refuses="RUN_NOT_FOUND EVIDENCE_NOT_FOUND FILES_PURGED NOT_SUPPORTED"
)
async def show_console(request: Request, run_id: str, query: parameters.ConsoleParameters) -> ConsoleText:
    """Show the end of the console of a machine: read now while the machine exists, else as it was kept. With `after`
    the output after that offset, of an existing machine; with `source=cloud_logging` what the log service kept."""
    services = services_of(request)
    number = query.attempt
    if query.source == console.CLOUD_LOGGING:
        read = partial(console.archived_console, since=epoch(query.since), lines=query.lines)
    elif query.after is not None:
        read = partial(console.follow_console, after=query.after, limit=query.limit)
    else:
        read = partial(console.show_console, limit=query.limit)
    return await in_slow_thread(read, services.parts, services.queries, run_id, number=number)


@routes.on("GET /v1/runs/{run_id}/login", Scope.READ, refuses="RUN_NOT_FOUND EVIDENCE_NOT_FOUND UNAVAILABLE")
async def show_login(request: Request, run_id: str) -> MachineLogin:
    """Show the command that opens a shell on the machine of a live run, and the machine's folder there."""
    services = services_of(request)
    return await run_in_threadpool(machine_login, services.parts, services.queries, run_id)


@routes.on("GET /v1/cost", Scope.READ, refuses="CURSOR_INVALID")
async def list_costs(request: Request, query: parameters.ListParameters) -> CostList:
    """List the costs of runs and the sizes of their files, newest first."""
    services = services_of(request)
    parts, queries, caller = services.parts, services.queries, caller_of(request)
    where = query.run_filter(caller)
    return await in_slow_thread(
        cost_page, parts, queries, where, page_size=query.page_size, cursor=query.cursor, with_code=caller.admin
    )


@routes.on("GET /v1/ledger", Scope.READ, {200: LedgerList}, media={200: ("text/csv",)}, sends=("Content-Disposition",))
async def list_ledger(request: Request, query: parameters.LedgerParameters) -> Response:
    """List what the billed seconds and dollars were for, by run, group, owner or month: each in exactly one class."""
    services, where = services_of(request), query.run_filter(caller_of(request))
    answer = await in_slow_thread(
        show_ledger, services.parts, services.queries, where, By(query.by), epoch(query.since)
    )
    if not _wants_csv(request, query.format):
        return json_response(answer, 200)
    return _csv(csv_text(answer), f"ledger-by-{query.by}.csv")


@routes.on(
    "GET /v1/ledger/billed",
    Scope.ADMIN,
    {200: BilledList},
    refuses="NOT_SUPPORTED UNAVAILABLE",
    media={200: ("text/csv",)},
    sends=("Content-Disposition",),
)
async def list_billed(request: Request, query: parameters.BilledParameters) -> Response:
    """List what machines have cost by our figures and by the platform's bill, by day and run, with the reason of each
    difference and the billed machines that we do not know. A read of the bill costs money: it is used for a day."""
    answer = await in_slow_thread(services_of(request).billed.show, epoch(query.since), again=query.again)
    if not _wants_csv(request, query.format):
        return json_response(answer, 200)
    return _csv(billed_text(answer), "billed.csv")


def _wants_csv(request: Request, form: str) -> bool:
    return form == "csv" or "text/csv" in request.headers.get("accept", "")


def _csv(text: str, name: str) -> Response:
    saved_as = {"Content-Disposition": f"attachment; filename={name}", **SNIFFED}
    return Response(text, 200, saved_as, "text/csv; charset=utf-8")


@routes.on("GET /v1/completion", Scope.READ)
async def show_completion_ratio(request: Request, query: parameters.CompletionParameters) -> Completion:
    """Show how many runs have reached their own end, of those whose own code could; with the cause of each miss."""
    services, where = services_of(request), query.run_filter(caller_of(request))
    return await in_slow_thread(show_completion, services.parts, where, epoch(query.since))


@routes.on("GET /v1/runs/{run_id}/cost", Scope.READ, refuses="RUN_NOT_FOUND")
async def show_cost(request: Request, run_id: str) -> RunCost:
    """Show the cost of one run and the size of its files."""
    services = services_of(request)
    return await in_slow_thread(run_cost, services.parts, services.queries, run_id)
