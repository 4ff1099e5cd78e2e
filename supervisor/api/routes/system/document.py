"""The OpenAPI document, so that clients can be generated from the supervisor they will talk to.

Made at the first request (about half a second of CPU), kept packed: 50 kB instead of 700.
"""

from __future__ import annotations

import gzip
import hashlib
import threading
from dataclasses import dataclass

from fastapi import APIRouter, FastAPI, Request, Response

from supervisor.api.document.build import document
from supervisor.api.shapes.bodies import NoParameters, read_query
from supervisor.api.wire import etags
from supervisor.api.wire.access import Admitted
from supervisor.api.wire.threads import in_slow_thread

router = APIRouter(tags=["health"], route_class=Admitted)
_LOCK = threading.Lock()


@dataclass(frozen=True, slots=True)
class _Packed:
    content: bytes
    tag: str


@router.get("/openapi.json", include_in_schema=False)
async def show_document(request: Request) -> Response:
    """Answer this document. The setting `docs_public` shows it without a token."""
    read_query(NoParameters, request)
    packed: _Packed = await in_slow_thread(_packed, request.app)
    headers = {"ETag": packed.tag, "Vary": "Accept-Encoding", "Cache-Control": "no-cache"}
    if etags.is_known(request.headers.getlist("if-none-match"), packed.tag):
        return Response(None, 304, headers)
    content = packed.content
    if "gzip" in request.headers.get("accept-encoding", ""):
        headers["Content-Encoding"] = "gzip"
    else:
        content = await in_slow_thread(gzip.decompress, content)
    return Response(content, 200, headers, "application/json")


def _packed(app: FastAPI) -> _Packed:
    with _LOCK:
        kept: _Packed | None = getattr(app.state, "document", None)
        if kept is None:
            text = document(app).encode()
            kept = _Packed(gzip.compress(text, 6, mtime=0), f'"{hashlib.sha256(text).hexdigest()[:16]}"')
            app.state.document = kept
        return kept
