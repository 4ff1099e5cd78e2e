"""The files of a run: a list with checksums, and each of them as bytes, whole or from an offset on."""

from __future__ import annotations

import base64
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse

from supervisor.api.errors import problem_of, request_id_of
from supervisor.api.shapes.bodies import NoParameters, read_body, read_query
from supervisor.api.shapes.runs.files import FileParameters, PulledBody
from supervisor.api.wire.access import Admitted
from supervisor.api.wire.answers import json_answer
from supervisor.api.wire.deps import caller_of, services_of
from supervisor.api.wire.threads import in_slow_thread
from supervisor.domain.errors import RangeRefused
from supervisor.services.files.files import list_files
from supervisor.services.files.filestream import FileStream, open_file
from supervisor.services.runs.pulled import note_pull
from supervisor.services.runs.purge import refuse_purged

router = APIRouter(prefix="/v1/runs/{run_id}", tags=["files"], route_class=Admitted)


@router.get("/files")
async def list_run_files(request: Request, run_id: str) -> Response:
    """List the files of a run with sizes and checksums, in order of path."""
    query = read_query(FileParameters, request)
    services = services_of(request)

    def work() -> object:
        run = services.queries.find(run_id)
        refuse_purged(run)
        return list_files(services.parts.objects, run, query.kind, query.page_size, query.cursor or "")

    return json_answer(await in_slow_thread(work))


@router.get("/files/{path:path}")
async def read_file(request: Request, run_id: str, path: str) -> Response:
    """Read a file of a run, or one range of its bytes."""
    return await _file(request, run_id, path, body=True)


@router.head("/files/{path:path}")
async def look_at_file(request: Request, run_id: str, path: str) -> Response:
    """Size, tag and checksum of a file of a run."""
    return await _file(request, run_id, path, body=False)


@router.post("/pulled")
async def note_results_pulled(request: Request, run_id: str) -> Response:
    """Note that all results of a run were pulled and compared with their checksums."""
    read_query(NoParameters, request)
    body = await read_body(PulledBody, request)
    services, caller = services_of(request), caller_of(request)

    def work() -> object:
        run = note_pull(services.parts, run_id, body.results_sha256, body.files, caller)
        return services.queries.view(run)

    return json_answer(await in_slow_thread(work))


async def _file(request: Request, run_id: str, path: str, body: bool) -> Response:
    read_query(NoParameters, request)
    services = services_of(request)
    range_, if_range = request.headers.get("range", ""), request.headers.get("if-range", "")

    def work() -> FileStream:
        run = services.queries.find(run_id)
        refuse_purged(run)
        return open_file(services.parts.objects, run, path, range_=range_, if_range=if_range, body=body)

    try:
        found = await in_slow_thread(work)
    except RangeRefused as error:
        refusal = problem_of(error, request.url.path, request_id_of(request))
        refusal.headers["Content-Range"] = f"bytes */{error.meta['size']}"
        return refusal
    status = 206 if found.part else 200
    if not body:
        return Response(None, status, _headers(found), "application/octet-stream")
    return StreamingResponse(found.chunks, status, _headers(found), "application/octet-stream")


def _headers(found: FileStream) -> dict[str, str]:
    headers = {
        "Content-Length": str(found.end - found.begin),
        "Accept-Ranges": "bytes",
        "ETag": found.tag,
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(found.name, safe='')}",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
    }
    if found.part:
        headers["Content-Range"] = f"bytes {found.begin}-{found.end - 1}/{found.size}"
    if found.sha256 is not None:
        digest = base64.b64encode(bytes.fromhex(found.sha256)).decode()
        headers["Repr-Digest"] = f"sha-256=:{digest}:"
    return headers
