"""The output of an attempt: a part of it, lines in which a text stands, or all of it as one file."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse

from supervisor.api.shapes.bodies import NoParameters, read_query
from supervisor.api.shapes.queries import LogParameters
from supervisor.api.wire.access import Admitted
from supervisor.api.wire.answers import json_answer
from supervisor.api.wire.deps import services_of
from supervisor.api.wire.threads import in_slow_thread
from supervisor.services.files.filestream import CutShort
from supervisor.services.logs.log_chunks import LogBytes

router = APIRouter(prefix="/v1/runs/{run_id}", tags=["runs"], route_class=Admitted)


@router.get("/logs")
async def read_log(request: Request, run_id: str) -> Response:
    """Read the log of an attempt from a byte offset, from a line or its last lines; ask again from next_offset to
    follow it. With `q` the lines in which a text stands."""
    query = read_query(LogParameters, request)
    part, logs = query.part, services_of(request).logs
    if query.q is not None:
        answer = await in_slow_thread(logs.search, run_id, query.attempt, query.q, query.ignore_case, part)
    else:
        answer = await in_slow_thread(logs.show, run_id, query.attempt, part)
    return json_answer(answer, headers={"X-Next-Offset": str(answer["next_offset"])})


@router.get("/attempts/{number}/log.txt")
async def download_log(request: Request, run_id: str, number: str) -> Response:
    """Download the log of an attempt as one file: all that it held when it was asked for."""
    read_query(NoParameters, request)
    opened = await in_slow_thread(services_of(request).logs.whole, run_id, number)
    name = f"{opened.run.run_id}-a{opened.number}.log"
    headers = {
        "Content-Length": str(opened.bytes.size),
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
    }
    return StreamingResponse(_whole(opened.bytes), 200, headers, "text/plain; charset=utf-8")


def _whole(log: LogBytes) -> Iterator[bytes]:
    """Raises CutShort: the connection is dropped, because the answer has begun."""
    left = log.size
    for piece in log.stream(0, log.size):
        left -= len(piece)
        yield piece
    if left:
        raise CutShort(f"{left} of {log.size} bytes of a log are missing")
