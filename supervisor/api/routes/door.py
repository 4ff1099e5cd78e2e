"""The door: machines without a key reach the objects of their run here, with a pass.

The bytes of an object pass in pieces, in memory of a bounded size, and in threads of the door alone: a slow store or a
slow client takes none from the rest of the API. Only so many transfers are open at once; a further one is refused, and
its agent repeats it. Where the object store can be reached from outside, many bytes go past this process: the answer is
an address there.

A pass is checked by its signature before anything is read. What a store says reaches no client in its own words.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import IO, ParamSpec, TypeVar

from fastapi import Request, Response
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Send
from starlette.types import Scope as AsgiScope
from typing_extensions import TypedDict

from supervisor.api.errors import BodyTooLarge, UnsupportedMediaType, problem, request_id_of
from supervisor.api.shapes.bodies import UploadBody
from supervisor.api.shapes.parameters import ObjectParameters
from supervisor.api.wire.deps import door_of, in_door_thread, services_of, transfers_of
from supervisor.api.wire.middleware import OBJECT_MAX_BYTES
from supervisor.api.wire.responses import json_response
from supervisor.api.wire.route import Routes
from supervisor.domain.errors import (
    InvalidRequest,
    ObjectDiffers,
    ObjectsAway,
    ObjectsFull,
    ObjectUnknown,
    PassRefused,
    RangeRefused,
)
from supervisor.ports.objectstore import (
    MAX_PAGE,
    ObjectInfo,
    ObjectMissing,
    ObjectStore,
    PreconditionFailed,
    StoreFull,
    StoreUnavailable,
)
from supervisor.services.access.claims import Door
from supervisor.services.access.passes import Grant, Verb, is_code, most_bytes, opens, opens_prefix, read_pass
from supervisor.services.files.filestream import FileStream, open_object
from supervisor.telemetry import logs as telemetry

LOG = logging.getLogger(__name__)
routes = Routes("agent")

MEMORY_BYTES = 1 << 20  # of one transfer; a longer body goes to a file
SMALL_BYTES = 8 << 20  # the most that goes through this process to a store that can be reached from outside
FAR_BYTES = 1 << 20  # a longer object is read there
ADDRESS_S = 3600.0
RESERVE_BYTES = 256 << 20  # of the data folder's disk: no body may take the room of the database
NOT_STORED = {"Cache-Control": "no-store"}
BYTES = "application/octet-stream"
REFUSALS = "PASS_REFUSED PASS_EXPIRED OBJECT_MISSING STORE_UNAVAILABLE NOT_FOUND"
OBJECT_HEADERS = ("X-Spot-Generation", "X-Spot-Updated", "X-Spot-Metadata")
_GENERATION = re.compile(r"[!-~]{1,100}\Z")

Given = ParamSpec("Given")
Result = TypeVar("Result")


class ObjectJson(TypedDict):
    """`updated`: epoch seconds by the store's clock."""

    key: str
    size: int
    generation: str
    updated: float
    metadata: dict[str, str]


class ObjectList(TypedDict):
    """In order of the keys; fewer than `limit`: the last page. `server_time`: the store's clock, epoch seconds."""

    objects: list[ObjectJson]
    server_time: float


class UploadBegun(TypedDict):
    """`url`: all bytes are PUT there, without the pass; null: to the object itself."""

    url: str | None


# --- objects ----------------------------------------------------------------------------------------------------------


@routes.on("GET /v1/door/{run_id}/objects", None, refuses=REFUSALS, by_pass=True)
async def list_objects(request: Request, run_id: str, query: ObjectParameters) -> ObjectList:
    """List objects of a run in order of their keys."""
    door, _ = _granted(request, run_id)
    if not opens_prefix(run_id, query.prefix):
        raise PassRefused("The pass does not open this prefix.")

    def work() -> ObjectList:
        rows: list[ObjectJson] = []
        server_time = 0.0
        for page in door.parts.objects.pages(query.prefix, MAX_PAGE):
            server_time = page.server_time
            rows += (_shown(info) for info in page.objects if info.key > query.after)
            if len(rows) >= query.limit:
                break
        return {"objects": rows[: query.limit], "server_time": server_time}

    with transfers_of(request).transfer(run_id):  # a store lists from its beginning, so many at once are work for many
        return await _answer_of(work)


@routes.on(
    "HEAD /v1/door/{run_id}/objects/{key:path}",
    None,
    {},
    media={200: ()},
    refuses=REFUSALS,
    sends=OBJECT_HEADERS,
    by_pass=True,
)
async def look_at_object(request: Request, run_id: str, key: str) -> Response:
    """Read size, generation and metadata of an object of a run."""
    door, _ = await _opened(request, run_id, Verb.READ, key)
    info = await _answer_of(door.parts.objects.stat, key)
    return Response(None, 200, {**_headers(info), "Content-Length": str(info.size)}, BYTES)


@routes.on(
    "GET /v1/door/{run_id}/objects/{key:path}",
    None,
    {},
    media={200: (BYTES,), 206: (BYTES,), 307: ()},
    refuses=f"{REFUSALS} RANGE_NOT_SATISFIABLE",
    takes=("Range",),
    sends=(*OBJECT_HEADERS, "Content-Range", "Location"),
    by_pass=True,
)
async def read_object(request: Request, run_id: str, key: str) -> Response:
    """Read an object of a run, or one range of its bytes. A client follows the address of a 307 without the pass, and
    with the same range."""
    door, _ = await _opened(request, run_id, Verb.READ, key)
    with ExitStack() as held:
        held.enter_context(transfers_of(request).transfer(run_id))
        elsewhere = await _answer_of(_address, door, key)
        if elsewhere is not None:
            return Response(None, 307, elsewhere)
        try:
            stream = await _answer_of(_stream, door.parts.objects, key, request.headers.get("range", ""))
        except RangeRefused as error:
            refusal = problem(error, request.url.path, request_id_of(request))
            refusal.headers["Content-Range"] = f"bytes */{error.meta['size']}"
            return refusal
        return _Sent(stream, held.pop_all().close)


def _address(door: Door, key: str) -> dict[str, str] | None:
    """Headers that lead to a long object where it lies; None = it is read here."""
    if door.reachable is None:
        return None
    info = door.parts.objects.stat(key)
    address = None if info.size <= FAR_BYTES else door.reachable.address_to_read(info, ADDRESS_S)
    return None if address is None else {"Location": address, **_headers(info), **NOT_STORED}


def _stream(objects: ObjectStore, key: str, range_: str) -> FileStream:
    stream = open_object(objects, key, range_=range_)
    if stream is None:
        raise StoreUnavailable(f"{key} is replaced faster than it can be opened")
    return stream


class _Sent(StreamingResponse):
    """`release` is called when the response is over, also where its client has left before the first piece."""

    def __init__(self, stream: FileStream, release: Callable[[], None]) -> None:
        headers = {**_headers(stream.info), "Content-Length": str(stream.end - stream.begin)}
        if stream.part:
            headers["Content-Range"] = f"bytes {stream.begin}-{stream.end - 1}/{stream.size}"
        super().__init__(_pieces(stream.chunks), 206 if stream.part else 200, headers, BYTES)
        self._release = release

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._release()


async def _pieces(chunks: Iterator[bytes]) -> AsyncIterator[bytes]:
    while (piece := await in_door_thread(next, chunks, None)) is not None:
        yield piece


@routes.on(
    "PUT /v1/door/{run_id}/objects/{key:path}",
    None,
    refuses=f"{REFUSALS} PRECONDITION_FAILED BODY_TOO_LARGE UNSUPPORTED_MEDIA_TYPE STORE_FULL",
    raw_body=BYTES,
    takes=("X-Spot-If-Generation", "X-Spot-Metadata"),
    by_pass=True,
)
async def write_object(request: Request, run_id: str, key: str) -> ObjectJson:
    """Write an object of a run as a whole. To a bucket at most 8 MiB go this way."""
    door, _ = await _opened(request, run_id, Verb.WRITE, key)
    if_generation, metadata = _condition(request), _metadata(request)
    most = min(OBJECT_MAX_BYTES if door.reachable is None else SMALL_BYTES, most_bytes(run_id, key) or OBJECT_MAX_BYTES)
    objects = door.parts.objects
    with transfers_of(request).transfer(run_id):
        async with _received(request, most) as content:
            if isinstance(content, bytes):
                return _shown(await _answer_of(objects.put, key, content, if_generation, metadata))
            if not metadata:
                return _shown(await _answer_of(objects.put_file, key, content, if_generation))
            if content.stat().st_size > SMALL_BYTES:
                raise InvalidRequest(f"An object with metadata has at most {SMALL_BYTES} bytes.")
            data = await in_door_thread(content.read_bytes)
            return _shown(await _answer_of(objects.put, key, data, if_generation, metadata))


@asynccontextmanager
async def _received(request: Request, most: int) -> AsyncIterator[bytes | Path]:
    """The body: its bytes, or a file without a name in the data folder. Raises BodyTooLarge, UnsupportedMediaType,
    ObjectsFull."""
    if request.headers.get("content-encoding", "identity") != "identity":
        raise UnsupportedMediaType("An object must be sent as it is, not compressed.", {"accepted": BYTES})
    announced = request.headers.get("content-length", "")
    if announced.isdigit() and int(announced) > most:
        raise _too_large(most)
    buffer, size = bytearray(), 0
    with ExitStack() as opened:
        file: IO[bytes] | None = None
        async for piece in request.stream():
            size += len(piece)
            if size > most:
                raise _too_large(most)
            buffer += piece
            if len(buffer) > MEMORY_BYTES:
                with _on_disk():
                    if file is None:
                        folder = services_of(request).around.data_dir
                        file = opened.enter_context(tempfile.TemporaryFile(dir=folder))
                    await in_door_thread(_append, file, bytes(buffer))
                buffer.clear()
        if file is None:
            yield bytes(buffer)
            return
        with _on_disk():
            await in_door_thread(_append, file, bytes(buffer))
        yield Path(f"/proc/self/fd/{file.fileno()}")


def _too_large(most: int) -> BodyTooLarge:
    return BodyTooLarge(f"An object has at most {most} bytes here.", {"max_bytes": most})


def _append(file: IO[bytes], piece: bytes) -> None:
    """OSError where too little of the disk would be left."""
    disk = os.fstatvfs(file.fileno())
    if disk.f_bavail * disk.f_frsize < RESERVE_BYTES + len(piece):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    file.write(piece)
    file.flush()


@contextmanager
def _on_disk() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        LOG.warning("An object could not be received: %s", error.strerror, extra={telemetry.ACTION: "door"})
        raise ObjectsFull("The supervisor's disk cannot take this object now; nothing was changed.") from None


@routes.on(
    "POST /v1/door/{run_id}/uploads",
    None,
    {200: UploadBegun},
    body=UploadBody,
    refuses=f"{REFUSALS} PRECONDITION_FAILED",
    sends=("Cache-Control",),
    by_pass=True,
)
async def begin_upload(request: Request, run_id: str, body: UploadBody) -> Response:
    """Begin an upload of an object of a run that goes past the supervisor, to the bucket itself."""
    door, _ = await _opened(request, run_id, Verb.WRITE, body.key)
    most = most_bytes(run_id, body.key)
    if most is not None and body.size > most:
        raise _too_large(most)
    url = None
    if door.reachable is not None:
        url = await _answer_of(door.reachable.begin_upload, body.key, body.size, body.if_generation, body.metadata)
    return json_response(UploadBegun(url=url), 200, NOT_STORED)


@routes.on(
    "DELETE /v1/door/{run_id}/objects/{key:path}",
    None,
    {},
    media={204: ()},
    refuses=f"{REFUSALS} PRECONDITION_FAILED",
    takes=("X-Spot-If-Generation",),
    by_pass=True,
)
async def delete_object(request: Request, run_id: str, key: str) -> Response:
    """Delete an object of a run."""
    door, _ = await _opened(request, run_id, Verb.DELETE, key)
    if not await _answer_of(door.parts.objects.delete, key, _condition(request)):
        raise ObjectUnknown("There is no object of this key.")
    return Response(None, 204)


# --- inside -----------------------------------------------------------------------------------------------------------


def _granted(request: Request, run_id: str) -> tuple[Door, Grant]:
    """Raises PassRefused, PassExpired."""
    door = door_of(request)
    grant = read_pass(door.book.signer, request.headers.get("authorization", ""), run_id, door.parts.clock.now())
    door.book.saw(grant)
    return door, grant


async def _opened(request: Request, run_id: str, verb: Verb, key: str) -> tuple[Door, Grant]:
    """Raises PassRefused, PassExpired, StoreDown."""
    door, grant = _granted(request, run_id)
    run = await in_door_thread(door.parts.store.find, run_id) if is_code(key) else None
    if not opens(run_id, verb, key, None if run is None else run.policy.code):
        raise PassRefused("The pass does not open this object.")
    return door, grant


async def _answer_of(work: Callable[Given, Result], *args: Given.args, **named: Given.kwargs) -> Result:
    """The same for a call of the object store, with its errors in the words of the door."""
    try:
        return await in_door_thread(work, *args, **named)
    except ObjectMissing:
        raise ObjectUnknown("There is no object of this key.") from None
    except PreconditionFailed:
        raise ObjectDiffers("The object has another generation; nothing was changed.") from None
    except StoreUnavailable as error:
        fields = {telemetry.ACTION: "door", telemetry.DETAIL: type(error).__name__}
        LOG.warning("The object store was unavailable: %s", error, extra=fields)
        if isinstance(error, StoreFull):
            raise ObjectsFull("The object store has no space for this; nothing was changed.") from None
        raise ObjectsAway("The object store is unavailable. The request can be repeated.") from None
    except ValueError:
        raise InvalidRequest("No object can have this key, condition or metadata.") from None


def _condition(request: Request) -> str | None:
    given = request.headers.get("x-spot-if-generation")
    if given is not None and _GENERATION.match(given) is None:
        raise ObjectDiffers("X-Spot-If-Generation is no generation; nothing was changed.")
    return given


def _metadata(request: Request) -> Mapping[str, str]:
    try:
        given = json.loads(request.headers.get("x-spot-metadata") or "{}")
    except (ValueError, RecursionError):
        given = None
    if not isinstance(given, dict) or not all(isinstance(value, str) for value in given.values()):
        raise InvalidRequest("X-Spot-Metadata must be JSON: texts by name.")
    return given


def _shown(info: ObjectInfo) -> ObjectJson:
    return {
        "key": info.key,
        "size": info.size,
        "generation": info.generation,
        "updated": info.updated,
        "metadata": dict(info.metadata),
    }


def _headers(info: ObjectInfo) -> dict[str, str]:
    return {
        "X-Spot-Generation": info.generation,
        "X-Spot-Updated": repr(info.updated),
        "X-Spot-Metadata": json.dumps(dict(info.metadata)),
        "Cache-Control": "no-store",
        "X-Content-Type-Options": "nosniff",
    }
