"""The header Idempotency-Key: read from a request, and the answer that was kept for it, sent."""

from __future__ import annotations

from fastapi import Request, Response

from supervisor.api.wire import etags
from supervisor.api.wire.deps import caller_of
from supervisor.domain.errors import InvalidRequest
from supervisor.services.runs.keys import Once, Reply, once, scope_of

HEADER = "Idempotency-Key"


def key_of(request: Request) -> str | None:
    """Raises InvalidRequest where it is given twice."""
    given = request.headers.getlist(HEADER)
    if len(given) > 1:
        raise InvalidRequest(f"{HEADER} is given twice.")
    return given[0] if given else None


def once_of(request: Request, payload: object) -> Once | None:
    """None: the request has no key. `payload`: all that its body asks for, as JSON values. Raises InvalidRequest."""
    operation = f"{request.method} {request.url.path}"
    return once(key_of(request), scope_of(caller_of(request), operation), payload)


def replied(reply: Reply) -> Response:
    """An answer that is kept: the text of a run."""
    tag = etags.of(reply.body) if reply.version is None else etags.make(reply.version, reply.body)
    headers = {"ETag": tag}
    if reply.location:
        headers["Location"] = reply.location
    if reply.replayed:
        headers["Idempotency-Replayed"] = "true"
    return Response(reply.body, reply.status, headers, "application/json")
