"""Runs of the older shell runner, taken over."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from supervisor.api.shapes.bodies import NoParameters, read_body, read_query
from supervisor.api.shapes.system.imports import ImportBody
from supervisor.api.wire.access import Admitted
from supervisor.api.wire.answers import json_answer
from supervisor.api.wire.deps import caller_of, services_of
from supervisor.api.wire.threads import in_slow_thread
from supervisor.services.migration.importing import ImportRequest, import_run

router = APIRouter(prefix="/v1", tags=["runs"], route_class=Admitted)


@router.post("/imports", status_code=201)
async def import_old_run(request: Request) -> Response:
    """Make a stopped run of one of the older shell runner, with its checkpoint and history. The old folder is only
    read. The same request again gives the same run; a large checkpoint takes minutes."""
    read_query(NoParameters, request)
    body = await read_body(ImportBody, request)
    spec = body.spec.as_spec() if body.spec is not None else None
    wish = ImportRequest(body.url, body.run_id, spec, body.dry_run)
    status, answer = await in_slow_thread(import_run, services_of(request).parts, wish, caller_of(request))
    return json_answer(answer, status)
