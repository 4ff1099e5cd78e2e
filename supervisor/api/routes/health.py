"""The supervisor itself: what it is, whether it is alive and ready, the doctor, the metrics, and two texts for
programs: the OpenAPI document and llms.txt.

A client can be generated from the supervisor that it will use. The document is made at the first request (about half a
second of CPU), and kept compressed: 50 kB instead of 700.
"""

from __future__ import annotations

import gzip
import hashlib
import threading
from dataclasses import dataclass
from pathlib import Path

from fastapi import FastAPI, Request, Response
from fastapi.concurrency import run_in_threadpool
from typing_extensions import TypedDict

from supervisor.api.document import build
from supervisor.api.document.build import document
from supervisor.api.shapes.parameters import DoctorParameters, ReadyParameters
from supervisor.api.wire.deps import Services, caller_of, in_slow_thread, limits_of, services_of
from supervisor.api.wire.responses import is_known, json_response
from supervisor.api.wire.route import Routes
from supervisor.domain.callers import Scope
from supervisor.services.access.tokens import Asker, asker_json
from supervisor.services.doctor.checkup import DoctorReport
from supervisor.services.doctor.doctor import examine
from supervisor.services.reading import scrape
from supervisor.services.reading.about import Meta, meta
from supervisor.services.reading.health import LoopShown, Ready, loop_json, readiness, readiness_json

routes = Routes("health")
LLMS = Path(build.__file__).with_name("llms.txt")  # docs/llms.txt is a link to it
_LOCK = threading.Lock()


class Live(TypedDict):
    live: bool


@routes.on("GET /livez", None)
async def live(request: Request) -> Live:
    """Respond while the process is alive, without the database."""
    return {"live": True}


@routes.on("GET /readyz", None, {200: Ready, 503: Ready})
async def ready(request: Request, query: ReadyParameters) -> Response:
    """Respond with 200 when the supervisor is ready, else with 503. `?verbose` shows each check."""
    verbose = query.verbose is not None
    services = services_of(request)
    readiness_view = readiness_json(await run_in_threadpool(readiness, services.parts, services.loop))
    if not verbose and readiness_view["ready"]:
        del readiness_view["checks"]
    return json_response(readiness_view, 200 if readiness_view["ready"] else 503)


@routes.on("GET /v1/meta", Scope.READ)
async def show_meta(request: Request) -> Meta:
    """Show version, features and limits, and what a run gets that names no provider, zone or shape."""
    services = services_of(request)
    return meta(services.parts, limits_of(services))


@routes.on("GET /v1/loop", Scope.READ)
async def show_loop(request: Request) -> LoopShown:
    """Show the state of the loop: its last tick, how long that took, the leases of this process, how many preemptions
    of the last 30 days lost no step, and how many past forecasts held."""
    services = services_of(request)
    saved = await run_in_threadpool(services.preemptions.read)
    held = await run_in_threadpool(services.calibration.read)
    return loop_json(services.loop(), services.parts.knobs.poll_interval_s, saved, held)


@routes.on("GET /v1/whoami", Scope.READ)
async def show_asker(request: Request) -> Asker:
    """Show the caller that the token of this request stands for, and its scopes."""
    services, caller = services_of(request), caller_of(request)
    return await run_in_threadpool(asker_json, services.parts, caller)


@routes.on("GET /v1/doctor", Scope.ADMIN)
async def doctor(request: Request, query: DoctorParameters) -> DoctorReport:
    """Check this computer, the cloud where there is one, the alert address, and machines that no run needs.

    Every check gives a line within four seconds; the line of a check that hangs says so.
    """
    services = services_of(request)
    return await in_slow_thread(
        examine, services.parts, services.around, services.loop, query.alert_test, services.billed.checks()
    )


@routes.on("GET /metrics", Scope.METRICS, {}, media={200: ("text/plain", "application/openmetrics-text")})
async def show_metrics(request: Request) -> Response:
    """Show all metrics, in the text format of Prometheus or, where `Accept` names it, in OpenMetrics.

    A part that is unavailable leaves its series out and sets `spot_scrape_part_up` to 0.
    """
    accept = request.headers.get("accept", "")
    body, media_type = await run_in_threadpool(_scrape, services_of(request), accept)
    return Response(body, 200, {"Content-Type": media_type, "Cache-Control": "no-store"})


def _scrape(services: Services, accept: str) -> tuple[bytes, str]:
    from supervisor.api.wire.exposition import render

    return render(accept, scrape.read(services.readings))


@dataclass(frozen=True, slots=True)
class _Packed:
    content: bytes
    tag: str


@routes.on("GET /openapi.json", Scope.READ, {}, hidden=True)
async def show_document(request: Request) -> Response:
    """Show this document. The setting `docs_public` shows it without a token."""
    packed: _Packed = await in_slow_thread(_packed, request.app)
    headers = {"ETag": packed.tag, "Vary": "Accept-Encoding", "Cache-Control": "no-cache"}
    if is_known(request.headers.getlist("if-none-match"), packed.tag):
        return Response(None, 304, headers)
    content = packed.content
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers["Content-Encoding"] = "gzip"
    else:
        content = await in_slow_thread(gzip.decompress, content)
    return Response(content, 200, headers, "application/json")


@routes.on("GET /llms.txt", None, {}, hidden=True)
async def show_commands(request: Request) -> Response:
    """Show all commands and tools for programs that read texts, as `spot docs llms` does. It holds nothing of this
    supervisor, so it needs no token."""
    text = await run_in_threadpool(LLMS.read_bytes)
    return Response(text, 200, {"Cache-Control": "no-cache"}, "text/plain; charset=utf-8")


def _packed(app: FastAPI) -> _Packed:
    with _LOCK:
        kept: _Packed | None = getattr(app.state, "document", None)
        if kept is None:
            text = document(app).encode()
            kept = _Packed(gzip.compress(text, 6, mtime=0), f'"{hashlib.sha256(text).hexdigest()[:16]}"')
            app.state.document = kept
        return kept
