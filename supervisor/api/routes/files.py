"""Contents: the files of a run, the logs of its attempts, code bundles, and code that changes while its run lives.

Files: a list with checksums, and the bytes of each, whole or one range. Logs: a part, the lines that contain a text, or
the whole log as one file. An uploaded code bundle is written to a file without a name, which disappears with the
request.
"""

from __future__ import annotations

import base64
import re
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO
from urllib.parse import quote

from fastapi import Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import StreamingResponse

from supervisor.api.errors import UnsupportedMediaType, problem, request_id_of
from supervisor.api.shapes.bodies import PulledBody
from supervisor.api.shapes.parameters import FileParameters, LogParameters, SyncParameters
from supervisor.api.wire.deps import caller_of, in_slow_thread, services_of
from supervisor.api.wire.responses import json_response
from supervisor.api.wire.route import Routes
from supervisor.domain.callers import Scope
from supervisor.domain.errors import InvalidRequest, RangeRefused, Unavailable
from supervisor.services.files.files import FileList, list_files
from supervisor.services.files.filestream import CutShort, FileStream, open_file
from supervisor.services.logs.chunks import LogBytes
from supervisor.services.logs.logs import LogMatches, LogText
from supervisor.services.runs import code, synced
from supervisor.services.runs.actions import note_pull
from supervisor.services.runs.changing import change
from supervisor.services.runs.code import CodeShown
from supervisor.services.runs.purge import refuse_purged
from supervisor.services.runs.synced import CodeTree, RunCode
from supervisor.services.views.run_view import RunJson

routes = Routes("files")
BYTES = ("application/octet-stream",)
REFUSALS = "RUN_NOT_FOUND FILES_PURGED FILE_NOT_FOUND FILE_CHANGED RANGE_NOT_SATISFIABLE"
RANGES = ("Range", "If-Range")
FILE_HEADERS = ("ETag", "Accept-Ranges", "Content-Disposition", "Content-Range", "Repr-Digest")
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_REVISION = re.compile(r"[1-9][0-9]{0,8}\Z")
_ACCEPTED = ("application/gzip", "application/x-gzip")
_BUFFER_BYTES = 1 << 20


@routes.on("GET /v1/runs/{run_id}/files", Scope.READ, refuses="RUN_NOT_FOUND FILES_PURGED")
async def list_run_files(request: Request, run_id: str, query: FileParameters) -> FileList:
    """List the files of a run with sizes and checksums, in order of path."""
    services = services_of(request)

    def work() -> FileList:
        run = services.queries.find(run_id)
        refuse_purged(run)
        return list_files(services.parts.objects, run, query.kind, query.page_size, query.cursor or "")

    return await in_slow_thread(work)


@routes.on(
    "GET /v1/runs/{run_id}/files/{path:path}",
    Scope.READ,
    {},
    refuses=REFUSALS,
    media={200: BYTES, 206: BYTES},
    takes=RANGES,
    sends=FILE_HEADERS,
)
async def read_file(request: Request, run_id: str, path: str) -> Response:
    """Read a file of a run, or one range of its bytes."""
    return await _file(request, run_id, path, body=True)


@routes.on(
    "HEAD /v1/runs/{run_id}/files/{path:path}",
    Scope.READ,
    {},
    refuses=REFUSALS,
    media={200: (), 206: ()},
    takes=RANGES,
    sends=FILE_HEADERS,
)
async def look_at_file(request: Request, run_id: str, path: str) -> Response:
    """Read size, tag and checksum of a file of a run."""
    return await _file(request, run_id, path, body=False)


@routes.on("POST /v1/runs/{run_id}/pulled", Scope.WRITE, refuses="RUN_NOT_FOUND PULL_MISMATCH")
async def note_results_pulled(request: Request, run_id: str, body: PulledBody) -> RunJson:
    """Record that all results of a run were pulled and compared with their checksums."""
    services, caller = services_of(request), caller_of(request)

    def work() -> RunJson:
        run = change(services.parts, run_id, note_pull(body.results_sha256, body.files, caller))
        return services.queries.view(run)

    return await in_slow_thread(work)


async def _file(request: Request, run_id: str, path: str, body: bool) -> Response:
    services = services_of(request)
    range_, if_range = request.headers.get("range", ""), request.headers.get("if-range", "")

    def work() -> FileStream:
        run = services.queries.find(run_id)
        refuse_purged(run)
        return open_file(services.parts.objects, run, path, range_=range_, if_range=if_range, body=body)

    try:
        stream = await in_slow_thread(work)
    except RangeRefused as error:
        refusal = problem(error, request.url.path, request_id_of(request))
        refusal.headers["Content-Range"] = f"bytes */{error.meta['size']}"
        return refusal
    status, headers = 206 if stream.part else 200, _headers(stream)
    if not body:
        return Response(None, status, headers, BYTES[0])
    return StreamingResponse(stream.chunks, status, headers, BYTES[0])


def _headers(stream: FileStream) -> dict[str, str]:
    headers = {
        "Content-Length": str(stream.end - stream.begin),
        "Accept-Ranges": "bytes",
        "ETag": stream.tag,
        **_saved_as(stream.name),
    }
    if stream.part:
        headers["Content-Range"] = f"bytes {stream.begin}-{stream.end - 1}/{stream.size}"
    if stream.sha256 is not None:
        digest = base64.b64encode(bytes.fromhex(stream.sha256)).decode()
        headers["Repr-Digest"] = f"sha-256=:{digest}:"
    return headers


@routes.on(
    "GET /v1/runs/{run_id}/logs",
    Scope.READ,
    {200: LogText},
    also=LogMatches,
    tag="runs",
    refuses="RUN_NOT_FOUND FILES_PURGED",
    sends=("X-Next-Offset",),
)
async def read_log(request: Request, run_id: str, query: LogParameters) -> Response:
    """Read the log of an attempt from a byte offset, from a line, or its last lines. Repeat the request from
    next_offset to follow it. With `q` only the lines that contain a text."""
    part, logs = query.part, services_of(request).logs
    log: LogText | LogMatches
    if query.q is not None:
        log = await in_slow_thread(logs.search, run_id, query.attempt, query.q, query.ignore_case, part)
    else:
        log = await in_slow_thread(logs.show, run_id, query.attempt, part)
    return json_response(log, headers={"X-Next-Offset": str(log["next_offset"])})


@routes.on(
    "GET /v1/runs/{run_id}/attempts/{number}/log.txt",
    Scope.READ,
    {},
    tag="runs",
    refuses="RUN_NOT_FOUND FILES_PURGED",
    media={200: ("text/plain",)},
    sends=("Content-Disposition",),
)
async def download_log(request: Request, run_id: str, number: str) -> Response:
    """Download the log of an attempt as one file: all that it contains at the time of the request."""
    opened = await in_slow_thread(services_of(request).logs.whole, run_id, number)
    name = f"{opened.run.run_id}-a{opened.number}.log"
    headers = {"Content-Length": str(opened.bytes.size), **_saved_as(name)}
    return StreamingResponse(_whole(opened.bytes), 200, headers, "text/plain; charset=utf-8")


def _saved_as(name: str) -> dict[str, str]:
    return {
        "Content-Disposition": f"attachment; filename*=UTF-8''{quote(name, safe='')}",
        "X-Content-Type-Options": "nosniff",
        "Cache-Control": "no-store",
    }


def _whole(log: LogBytes) -> Iterator[bytes]:
    """Raises CutShort: the connection is dropped, because the response has started."""
    left = log.size
    for piece in log.stream(0, log.size):
        left -= len(piece)
        yield piece
    if left:
        raise CutShort(f"{left} of {log.size} bytes of a log are missing")


@routes.on("GET /v1/code/{sha256}", Scope.READ, tag="code", refuses="CODE_NOT_FOUND")
async def show_code(request: Request, sha256: str) -> CodeShown:
    """Show a stored code bundle."""
    return await in_slow_thread(code.show, services_of(request).parts, _named(sha256))


@routes.on(
    "PUT /v1/code/{sha256}",
    Scope.WRITE,
    {200: CodeShown, 201: CodeShown},
    tag="code",
    refuses="CODE_REFUSED ORIGIN_REFUSED BODY_TOO_LARGE UNSUPPORTED_MEDIA_TYPE",
    raw_body="application/gzip",
)
async def store_code(request: Request, sha256: str) -> Response:
    """Store a code bundle: a tar inside a gzip, named by the SHA-256 of the tar, and checked before it is stored."""
    name, services, caller = _named(sha256), services_of(request), caller_of(request)
    async with _received(request) as path:
        bundle, created = await in_slow_thread(code.keep, services.parts, name, path, caller)
    return json_response(bundle, 201 if created else 200)


@routes.on("GET /v1/runs/{run_id}/code", Scope.READ, tag="code", refuses="RUN_NOT_FOUND NOT_SUPPORTED")
async def show_run_code(request: Request, run_id: str) -> RunCode:
    """Show the revision of a run's code, and with which one each attempt began."""
    shown = await in_slow_thread(synced.show_synced, services_of(request).parts, run_id)
    services_of(request).inbox.order(run_id, 0)  # who looks is about to send, or waits until it is applied
    return shown


@routes.on(
    "GET /v1/runs/{run_id}/code/files", Scope.READ, tag="code", refuses="RUN_NOT_FOUND NOT_SUPPORTED CODE_NOT_FOUND"
)
async def list_run_code(request: Request, run_id: str) -> CodeTree:
    """List the files of the newest revision of a run's code, with their checksums."""
    return await in_slow_thread(synced.show_tree, services_of(request).parts, run_id)


@routes.on(
    "PUT /v1/runs/{run_id}/code/{revision}",
    Scope.WRITE,
    {200: RunCode},
    tag="code",
    refuses="RUN_NOT_FOUND RUN_ENDED NOT_SUPPORTED SYNC_CONFLICT CODE_REFUSED CODE_NOT_FOUND ORIGIN_REFUSED "
    "BODY_TOO_LARGE UNSUPPORTED_MEDIA_TYPE",
    raw_body="application/gzip",
)
async def sync_run_code(request: Request, run_id: str, revision: str, query: SyncParameters) -> Response:
    """Change the code of a live run: a delta in a tar inside a gzip, which begins with its list. Its machine applies
    it, and the next attempt starts from it."""
    if not _REVISION.match(revision):
        raise InvalidRequest("A revision is a whole number from 1 on.")
    services, caller = services_of(request), caller_of(request)

    def work(path: Path) -> RunCode:
        orders = synced.sync(services.parts, run_id, int(revision), path, git=query.git, caller=caller)
        services.inbox.order(run_id, orders.number)
        return synced.show_synced(services.parts, run_id)

    async with _received(request) as path:
        return json_response(await in_slow_thread(work, path))


@asynccontextmanager
async def _received(request: Request) -> AsyncIterator[Path]:
    """The path of the body, a file in the data folder, because a temporary folder may be in memory; without a name, so
    that nothing is left behind. Raises UnsupportedMediaType, Unavailable."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in _ACCEPTED:
        raise UnsupportedMediaType("The body must be application/gzip.", {"accepted": _ACCEPTED[0]})
    try:
        with tempfile.TemporaryFile(dir=services_of(request).around.data_dir) as file:
            await _write(request, file)
            yield Path(f"/proc/self/fd/{file.fileno()}")
    except OSError as error:
        text = f"The bundle could not be received ({error.strerror}); nothing was stored."
        raise Unavailable(f"{text} Free some space, then repeat it.", {"part": "data folder"}) from error


async def _write(request: Request, file: IO[bytes]) -> None:
    """The middleware limits its size."""
    buffer = bytearray()
    async for piece in request.stream():
        buffer += piece
        if len(buffer) >= _BUFFER_BYTES:
            await run_in_threadpool(file.write, bytes(buffer))
            buffer.clear()
    await run_in_threadpool(file.write, bytes(buffer))
    await run_in_threadpool(file.flush)


def _named(sha256: str) -> str:
    if not _SHA256.match(sha256):
        raise InvalidRequest("A code bundle is named by 64 hexadecimal digits (lower case).")
    return sha256
