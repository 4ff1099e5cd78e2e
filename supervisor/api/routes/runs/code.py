"""Code bundles: ask for one, store one. The body is written to a file without a name, which goes with the request."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from typing import IO

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool

from supervisor.api.errors import UnsupportedMediaType
from supervisor.api.shapes.bodies import NoParameters, read_query
from supervisor.api.wire.access import Admitted
from supervisor.api.wire.answers import json_answer
from supervisor.api.wire.deps import caller_of, services_of
from supervisor.api.wire.threads import in_slow_thread
from supervisor.domain.errors import InvalidRequest, Unavailable
from supervisor.services.runs import code

router = APIRouter(prefix="/v1/code", tags=["code"], route_class=Admitted)
_SHA256 = re.compile(r"[0-9a-f]{64}\Z")
_ACCEPTED = ("application/gzip", "application/x-gzip")
_BUFFER_BYTES = 1 << 20


@router.get("/{sha256}")
async def show_code(request: Request, sha256: str) -> Response:
    """Show a stored code bundle."""
    read_query(NoParameters, request)
    return json_answer(await in_slow_thread(code.show, services_of(request).parts, _named(sha256)))


@router.put("/{sha256}", status_code=201)
async def store_code(request: Request, sha256: str) -> Response:
    """Store a code bundle: a tar inside a gzip, named by the SHA-256 of the tar. It is checked before it is stored."""
    read_query(NoParameters, request)
    name, services, caller = _named(sha256), services_of(request), caller_of(request)
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in _ACCEPTED:
        raise UnsupportedMediaType("The body must be application/gzip.", {"accepted": _ACCEPTED[0]})
    # In the data folder, because a temporary folder may be memory; without a name, so that nothing is left behind.
    try:
        with tempfile.TemporaryFile(dir=services.around.data_dir) as file:
            await _received(request, file)
            path = Path(f"/proc/self/fd/{file.fileno()}")
            answer, created = await in_slow_thread(code.keep, services.parts, name, path, caller)
    except OSError as error:
        text = f"The bundle could not be received ({error.strerror}); nothing was stored."
        raise Unavailable(f"{text} Free some space, then repeat it.", {"part": "data folder"}) from error
    return json_answer(answer, 201 if created else 200)


async def _received(request: Request, file: IO[bytes]) -> None:
    """The outer door bounds its size."""
    waiting, size = [], 0
    async for piece in request.stream():
        waiting.append(piece)
        size += len(piece)
        if size >= _BUFFER_BYTES:
            await run_in_threadpool(file.write, b"".join(waiting))
            waiting, size = [], 0
    await run_in_threadpool(file.write, b"".join(waiting))
    await run_in_threadpool(file.flush)


def _named(sha256: str) -> str:
    if not _SHA256.match(sha256):
        raise InvalidRequest("A code bundle is named by 64 hexadecimal digits (lower case).")
    return sha256
