"""Runs: submit, list, look. Each route parses, calls one service and shapes the answer."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool

from supervisor.api.routes.runs.stream_answer import open_stream, refuse_of_streams, wants_stream
from supervisor.api.shapes.bodies import (
    AllEventParameters,
    EventParameters,
    NoParameters,
    RunEventParameters,
    RunListParameters,
    SubmitBody,
    epoch,
    read_body,
    read_query,
    run_filter,
)
from supervisor.api.shapes.submit_query import SubmitParameters
from supervisor.api.wire.access import Admitted
from supervisor.api.wire.answers import json_answer, run_unless_known
from supervisor.api.wire.deps import caller_of, services_of
from supervisor.api.wire.keys import key_of, replied
from supervisor.api.wire.threads import in_slow_thread
from supervisor.services.plan.plan import plan
from supervisor.services.reading.queries import Only
from supervisor.services.runs.submit import SubmitRequest, submit

router = APIRouter(prefix="/v1", tags=["runs"], route_class=Admitted)


@router.post("/runs", status_code=201)
async def submit_run(request: Request) -> Response:
    """Submit a run, or ask again for one that is known by its run_id; with validate_only tell what that would do."""
    query = read_query(SubmitParameters, request)
    body = await read_body(SubmitBody, request)
    wish = SubmitRequest(
        spec=body.spec.as_spec(),
        run_id=body.run_id,
        replace_spec=body.replace_spec,
        rerun=body.rerun,
        ignore_old=body.ignore_old,
        key=key_of(request),
    )
    services, caller = services_of(request), caller_of(request)
    if query.validate_only:
        return json_answer(
            await in_slow_thread(plan, services.parts, services.asking, wish, caller, query.code_follows)
        )
    # A name of one's own is looked up in the store: a bucket may take its time, a folder does not.
    asks_bucket = body.run_id is not None and not services.parts.objects.url.startswith("file:")
    in_thread = in_slow_thread if asks_bucket else run_in_threadpool
    return replied(await in_thread(submit, services.parts, wish, caller))


@router.get("/runs")
async def list_runs(request: Request) -> Response:
    """List runs, newest first, with counts by status under the same filter."""
    query = read_query(RunListParameters, request)
    queries, where = services_of(request).queries, run_filter(query, caller_of(request))
    page = (where, query.page_size, query.cursor, "sparkline" in query.include)
    return json_answer(await run_in_threadpool(queries.page, *page))


@router.get("/runs/{run_id}")
async def show_run(request: Request, run_id: str) -> Response:
    """Show one run."""
    read_query(NoParameters, request)
    return run_unless_known(request, await run_in_threadpool(services_of(request).queries.show, run_id))


@router.get("/runs/{run_id}/attempts")
async def list_attempts(request: Request, run_id: str) -> Response:
    """List the attempts of a run with causes, times, steps and costs, and the tries that brought no machine."""
    read_query(NoParameters, request)
    return json_answer(await run_in_threadpool(services_of(request).queries.attempts, run_id))


@router.get("/runs/{run_id}/events")
async def list_run_events(request: Request, run_id: str) -> Response:
    """List the history of a run; with `cloud=true` also what the cloud itself recorded of its machines. With
    `Accept: text/event-stream` a stream that goes on: docs/api.md#live-events."""
    query = read_query(RunEventParameters, request)
    if wants_stream(request):
        await run_in_threadpool(services_of(request).queries.find, run_id)
        return open_stream(request, query, run_id)
    return await _events(request, run_id, query, query.cloud)


@router.get("/events")
async def list_events(request: Request) -> Response:
    """List the history of all runs and of the supervisor itself; without admin, that of one's own runs. With
    `Accept: text/event-stream` a stream that goes on: docs/api.md#live-events."""
    query = read_query(AllEventParameters, request)
    if wants_stream(request):
        return open_stream(request, query, None, caller_of(request).sees(query.owner))
    return await _events(request, None, query, owner=caller_of(request).sees(query.owner))


async def _events(
    request: Request,
    run_id: str | None,
    query: EventParameters,
    cloud: bool = False,
    owner: str | None = None,
) -> Response:
    refuse_of_streams(query)
    events, since = services_of(request).queries.events, epoch(query.since)
    page = (run_id, query.after, query.limit, query.newest_first, since)
    only = Only(owner, query.actor, query.before)
    threads = in_slow_thread if cloud else run_in_threadpool  # the cloud is asked for its own
    return json_answer(await threads(events, *page, cloud, only))
