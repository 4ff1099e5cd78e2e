"""Problems (RFC 9457): every refusal has the same shape and a stable code, mapped to HTTP here and only here.

Nothing that was sent is repeated, and nothing internal is told: an unforeseen error has a request id by which its log
line is found.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus

from fastapi import Request, Response

from supervisor.domain.errors import SpotError
from supervisor.services.views.run_view import dumps
from supervisor.telemetry import metrics

TYPE = "urn:spot-supervisor:problem:"
MEDIA_TYPE = "application/problem+json"


class MalformedJson(SpotError):
    code = "INVALID_JSON"


class UnsupportedMediaType(SpotError):
    code = "UNSUPPORTED_MEDIA_TYPE"


class BodyTooLarge(SpotError):
    code = "BODY_TOO_LARGE"


class InvalidHttp(SpotError):
    """What came is no HTTP, or could be read in two ways; its connection is closed."""

    code = "INVALID_HTTP"


class HeadTooLarge(SpotError):
    """The address and the headers together."""

    code = "HEAD_TOO_LARGE"


class HostRefused(SpotError):
    """Not a name of this computer: a page of another site may stand behind it (DNS rebinding)."""

    code = "HOST_REFUSED"


class RateLimited(SpotError):
    """Too many requests of one token, or from one address without a valid one; nothing was done."""

    code = "RATE_LIMITED"


class StreamsFull(SpotError):
    code = "STREAMS_FULL"


class TooManyStreams(SpotError):
    """Of one token."""

    code = "TOO_MANY_STREAMS"


class ScopeMissing(SpotError):
    """The token is valid, and may not do this; the text names the scope."""

    code = "SCOPE_MISSING"


class VersionNeeded(SpotError):
    """A change says which version of the run it is meant for; this one does not."""

    code = "PRECONDITION_REQUIRED"


class OriginRefused(SpotError):
    """A page of another site sent this through the user's browser."""

    code = "ORIGIN_REFUSED"


STATUS: Mapping[str, int] = {
    "INVALID_REQUEST": 422,
    "INVALID_TIMEOUTS": 422,
    "PRICE_UNKNOWN": 422,
    "DATA_ELSEWHERE": 422,
    "SECRET_IN_SPEC": 422,
    "CODE_REFUSED": 422,
    "URL_REFUSED": 422,
    "OLD_RUN_UNREADABLE": 422,
    "IDEMPOTENCY_KEY_REUSED": 422,
    "CURSOR_INVALID": 400,
    "INVALID_JSON": 400,
    "INVALID_HTTP": 400,
    "HOST_REFUSED": 400,
    "UNAUTHORIZED": 401,
    "FORBIDDEN": 403,
    "SCOPE_MISSING": 403,
    "NONCE_REFUSED": 403,
    "DEV_REFUSED": 403,
    "ORIGIN_REFUSED": 403,
    "RUN_NOT_FOUND": 404,
    "OLD_RUN_NOT_FOUND": 404,
    "TOKEN_NOT_FOUND": 404,
    "WEBHOOK_NOT_FOUND": 404,
    "DELIVERY_NOT_FOUND": 404,
    "EVIDENCE_NOT_FOUND": 404,
    "CODE_NOT_FOUND": 404,
    "FILE_NOT_FOUND": 404,
    "NOT_FOUND": 404,
    "METHOD_NOT_ALLOWED": 405,
    "CONFLICT": 409,
    "RUN_ACTIVE": 409,
    "TOO_MANY_WEBHOOKS": 409,
    "OLD_RUN_ALIVE": 409,
    "OLD_RUN_THERE": 409,
    "IMPORT_RUNNING": 409,
    "RUN_COMPLETED": 409,
    "RUN_ID_TAKEN": 409,
    "TOO_MANY_ACTIVE_RUNS": 409,
    "RUN_STOPPING": 409,
    "RUN_ENDED": 409,
    "SPEC_DIFFERS": 409,
    "COUNT_DIFFERS": 409,
    "CELL_FIXED": 409,
    "STOP_NEWER": 409,
    "PURGE_REFUSED": 409,
    "PURGE_RUNNING": 409,
    "NOTHING_TO_RETRY": 409,
    "NOTHING_TO_APPROVE": 409,
    "APPROVAL_MISMATCH": 409,
    "PULL_REQUIRED": 409,
    "PULL_MISMATCH": 409,
    "FILE_CHANGED": 409,
    "NOT_SUPPORTED": 409,
    "CONFIRM_NEEDED": 409,
    "IDEMPOTENCY_KEY_IN_FLIGHT": 409,
    "FILES_PURGED": 410,
    "PRECONDITION_FAILED": 412,
    "BODY_TOO_LARGE": 413,
    "RANGE_NOT_SATISFIABLE": 416,
    "UNSUPPORTED_MEDIA_TYPE": 415,
    "PRECONDITION_REQUIRED": 428,
    "RATE_LIMITED": 429,
    "HEAD_TOO_LARGE": 431,
    "TOO_MANY_STREAMS": 429,
    "INTERNAL": 500,
    "UNAVAILABLE": 503,
    "SCHEMA_MISMATCH": 503,
    "STREAMS_FULL": 503,
}
RETRY_AFTER_S = 2


def problem(
    code: str,
    detail: str,
    path: str,
    request_id: str,
    meta: Mapping[str, object] | None = None,
    errors: Sequence[tuple[str, str]] = (),
) -> Response:
    """The answer that tells of one refusal. `path`: of the request; `errors`: (pointer, what is wrong there)."""
    status = STATUS.get(code, 500)
    metrics.REFUSALS.add(code)
    body = {
        "type": TYPE + code,
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": detail,
        "instance": path,
        "code": code,
        "errors": [{"pointer": pointer, "detail": reason} for pointer, reason in errors],
        "meta": dict(meta or {}),
        "request_id": request_id,
    }
    headers = {}
    if status in (429, 503) or code == "IDEMPOTENCY_KEY_IN_FLIGHT":
        headers["Retry-After"] = str((meta or {}).get("retry_after_s", RETRY_AFTER_S))
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return Response(dumps(body), status, headers, MEDIA_TYPE)


def problem_of(error: SpotError, path: str, request_id: str) -> Response:
    return problem(error.code, error.detail, path, request_id, error.meta, error.errors)


def request_id_of(request: Request) -> str:
    """Set by the outer door for every request."""
    return str(request.scope.get("spot_request_id", ""))
