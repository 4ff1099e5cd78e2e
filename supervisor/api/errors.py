"""Problems (RFC 9457): every refusal has the same shape and a stable code, mapped to HTTP here and only here.

A problem repeats nothing of the request and shows nothing internal. The request id of an unexpected error leads to its
line in the log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from http import HTTPStatus

from fastapi import Request, Response
from typing_extensions import TypedDict

from supervisor.domain.errors import SpotError
from supervisor.services.views.run_view import dumps
from supervisor.telemetry import metrics

TYPE = "urn:spot-supervisor:problem:"
MEDIA_TYPE = "application/problem+json"


class ProblemError(TypedDict):
    pointer: str
    detail: str


class Problem(TypedDict):
    """RFC 9457. `code` is stable; `meta` holds every value of the text."""

    type: str
    title: str
    status: int
    detail: str
    instance: str
    code: str
    errors: list[ProblemError]
    meta: dict[str, object]
    request_id: str


class MalformedJson(SpotError):
    code = "INVALID_JSON"


class UnsupportedMediaType(SpotError):
    code = "UNSUPPORTED_MEDIA_TYPE"


class BodyTooLarge(SpotError):
    code = "BODY_TOO_LARGE"


class InvalidHttp(SpotError):
    """The bytes are not HTTP, or can be read in two ways; their connection is closed."""

    code = "INVALID_HTTP"


class HeadTooLarge(SpotError):
    """The address and the headers together."""

    code = "HEAD_TOO_LARGE"


class HostRefused(SpotError):
    """Not a name of this computer: the request may come from a page of another site (DNS rebinding)."""

    code = "HOST_REFUSED"


class RateLimited(SpotError):
    """Too many requests with one token, or from one address without a valid token; nothing was done."""

    code = "RATE_LIMITED"


class StreamsFull(SpotError):
    code = "STREAMS_FULL"


class TooManyStreams(SpotError):
    """Of one token."""

    code = "TOO_MANY_STREAMS"


class ScopeMissing(SpotError):
    """The token is valid, but has not the needed scope, which the text names."""

    code = "SCOPE_MISSING"


class VersionNeeded(SpotError):
    """A change must name the version of the run that the client has seen; this one names none."""

    code = "PRECONDITION_REQUIRED"


class OriginRefused(SpotError):
    """A page of another site sent this through the user's browser."""

    code = "ORIGIN_REFUSED"


_CODES: Mapping[int, str] = {
    400: "CURSOR_INVALID INVALID_JSON INVALID_HTTP HOST_REFUSED",
    401: "UNAUTHORIZED",
    403: "FORBIDDEN SCOPE_MISSING NONCE_REFUSED DEV_REFUSED ORIGIN_REFUSED",
    404: "RUN_NOT_FOUND OLD_RUN_NOT_FOUND TOKEN_NOT_FOUND WEBHOOK_NOT_FOUND DELIVERY_NOT_FOUND "
    "EVIDENCE_NOT_FOUND CODE_NOT_FOUND FILE_NOT_FOUND NOT_FOUND",
    405: "METHOD_NOT_ALLOWED",
    409: "CONFLICT RUN_ACTIVE TOO_MANY_WEBHOOKS OLD_RUN_ALIVE OLD_RUN_THERE IMPORT_RUNNING RUN_COMPLETED "
    "RUN_ID_TAKEN TOO_MANY_ACTIVE_RUNS RUN_STOPPING RUN_ENDED SPEC_DIFFERS COUNT_DIFFERS CELL_FIXED "
    "STOP_NEWER PURGE_REFUSED PURGE_RUNNING NOTHING_TO_RETRY NOTHING_TO_APPROVE APPROVAL_MISMATCH "
    "PULL_REQUIRED PULL_MISMATCH FILE_CHANGED NOT_SUPPORTED CONFIRM_NEEDED IDEMPOTENCY_KEY_IN_FLIGHT",
    410: "FILES_PURGED",
    412: "PRECONDITION_FAILED",
    413: "BODY_TOO_LARGE",
    415: "UNSUPPORTED_MEDIA_TYPE",
    416: "RANGE_NOT_SATISFIABLE",
    422: "INVALID_REQUEST INVALID_TIMEOUTS PRICE_UNKNOWN DATA_ELSEWHERE SECRET_IN_SPEC CODE_REFUSED "
    "URL_REFUSED OLD_RUN_UNREADABLE IDEMPOTENCY_KEY_REUSED",
    428: "PRECONDITION_REQUIRED",
    429: "RATE_LIMITED TOO_MANY_STREAMS",
    431: "HEAD_TOO_LARGE",
    500: "INTERNAL",
    503: "UNAVAILABLE SCHEMA_MISMATCH STREAMS_FULL",
}
STATUS: Mapping[str, int] = {code: status for status, codes in _CODES.items() for code in codes.split()}
RETRY_AFTER_S = 2


def problem(
    code: str,
    detail: str,
    path: str,
    request_id: str,
    *,
    meta: Mapping[str, object] | None = None,
    errors: Sequence[tuple[str, str]] = (),
) -> Response:
    """The response of one refusal. `path`: of the request. `errors`: (pointer, what is wrong there)."""
    status = STATUS.get(code, 500)
    metrics.REFUSALS.add(code)
    body: Problem = {
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
    return problem(error.code, error.detail, path, request_id, meta=error.meta, errors=error.errors)


def request_id_of(request: Request) -> str:
    """Set by the middleware for every request."""
    return str(request.scope.get("spot_request_id", ""))
