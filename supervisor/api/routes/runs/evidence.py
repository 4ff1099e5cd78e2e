"""Why an attempt ended, and what its machine says."""

from __future__ import annotations

from functools import partial

from fastapi import APIRouter, Request, Response

from supervisor.api.shapes.bodies import ConsoleParameters, NoParameters, epoch, read_query
from supervisor.api.wire.access import Admitted
from supervisor.api.wire.answers import json_answer
from supervisor.api.wire.deps import services_of
from supervisor.api.wire.threads import in_slow_thread
from supervisor.services.reading.console import CLOUD_LOGGING, archived_console, follow_console
from supervisor.services.reading.console import show_console as console_of
from supervisor.services.reading.evidence import show_evidence as evidence_of

router = APIRouter(prefix="/v1", tags=["runs"], route_class=Admitted)


@router.get("/runs/{run_id}/attempts/{number}/evidence")
async def show_evidence(request: Request, run_id: str, number: str) -> Response:
    """Show what was kept of an attempt that is over: why it ended, on what that rests, its last words."""
    read_query(NoParameters, request)
    services = services_of(request)
    return json_answer(
        await in_slow_thread(evidence_of, services.parts, services.queries, run_id, number=number)
    )


@router.get("/runs/{run_id}/console")
async def show_console(request: Request, run_id: str) -> Response:
    """Show the end of what a machine wrote to its console: now while it lives, else what was kept of it. With `after`
    what came after that offset, of a machine that lives; with `source=cloud_logging` what the log service kept."""
    query, services = read_query(ConsoleParameters, request), services_of(request)
    number = query.attempt
    if query.source == CLOUD_LOGGING:
        read = partial(archived_console, since=epoch(query.since), lines=query.lines)
    elif query.after is not None:
        read = partial(follow_console, after=query.after, limit=query.limit)
    else:
        read = partial(console_of, limit=query.limit)
    return json_answer(await in_slow_thread(read, services.parts, services.queries, run_id, number=number))
