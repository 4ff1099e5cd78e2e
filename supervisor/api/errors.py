"""Problems (RFC 9457): every refusal has the same shape and a stable code, mapped to HTTP here and only here.

A problem repeats nothing of the request and shows nothing internal. The request id of an unexpected error leads to its
line in the log.
"""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from fastapi import Request, Response
from typing_extensions import TypedDict

from supervisor.domain.errors import SpotError
from supervisor.services.views.formats import dumps
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


class MalformedJson(SpotError, code="INVALID_JSON"):
    """The body is not JSON."""


class UnsupportedMediaType(SpotError, code="UNSUPPORTED_MEDIA_TYPE"):
    """The body has another media type, charset or encoding."""


class BodyTooLarge(SpotError, code="BODY_TOO_LARGE"):
    """The announced or the received body is too large."""


class InvalidHttp(SpotError, code="INVALID_HTTP"):
    """The bytes are not HTTP, or can be read in two ways; their connection is closed."""


class HeadTooLarge(SpotError, code="HEAD_TOO_LARGE"):
    """The address and the headers together."""


class HostRefused(SpotError, code="HOST_REFUSED"):
    """Not a name of this computer: the request may come from a page of another site (DNS rebinding)."""


class OriginRefused(SpotError, code="ORIGIN_REFUSED"):
    """A page of another site sent this through the user's browser."""


class AddressUnknown(SpotError, code="NOT_FOUND"):
    """No route has this path."""


class MethodNotAllowed(SpotError, code="METHOD_NOT_ALLOWED"):
    """A route has this path, but not this method."""


class RateLimited(SpotError, code="RATE_LIMITED"):
    """Too many requests with one token, or from one address without a valid token; nothing was done."""


class ScopeMissing(SpotError, code="SCOPE_MISSING"):
    """The token is valid, but has not the needed scope, which the text names."""


class VersionNeeded(SpotError, code="PRECONDITION_REQUIRED"):
    """A change must name the version of the run that the client has seen; this one names none."""


class StreamsFull(SpotError, code="STREAMS_FULL"):
    """All streams of this server are open."""


class TooManyStreams(SpotError, code="TOO_MANY_STREAMS"):
    """One token has too many open streams."""


_CODES: Mapping[int, str] = {
    400: "CURSOR_INVALID INVALID_JSON INVALID_HTTP HOST_REFUSED",
    401: "UNAUTHORIZED PASS_EXPIRED",
    403: "FORBIDDEN SCOPE_MISSING NONCE_REFUSED DEV_REFUSED ORIGIN_REFUSED TICKET_REFUSED PASS_REFUSED",
    404: "RUN_NOT_FOUND OLD_RUN_NOT_FOUND TOKEN_NOT_FOUND WEBHOOK_NOT_FOUND DELIVERY_NOT_FOUND "
    "EVIDENCE_NOT_FOUND INCIDENT_NOT_FOUND BASE_NOT_FOUND CODE_NOT_FOUND FILE_NOT_FOUND COMMAND_NOT_FOUND "
    "OBJECT_MISSING NOT_FOUND",
    405: "METHOD_NOT_ALLOWED",
    409: "CONFLICT RUN_ACTIVE TOO_MANY_WEBHOOKS OLD_RUN_ALIVE OLD_RUN_THERE IMPORT_RUNNING RUN_COMPLETED "
    "CHECK_NOT_WAIVABLE RUN_ID_TAKEN TOO_MANY_ACTIVE_RUNS OVER_DAY_CAP OVER_RUN_CAP PLAN_REQUIRED "
    "PLAN_REFUSED PLAN_PRICE_ABOVE RUN_STOPPING RUN_ENDED SPEC_DIFFERS COUNT_DIFFERS CELL_FIXED "
    "STOP_NEWER PURGE_REFUSED PURGE_RUNNING NOTHING_TO_RETRY NOTHING_TO_DRILL NOTHING_KEPT NOTHING_TO_APPROVE "
    "APPROVAL_MISMATCH VERB_NOT_OFFERED PULL_REQUIRED PULL_MISMATCH FILE_CHANGED NOT_SUPPORTED CONFIRM_NEEDED "
    "IDEMPOTENCY_KEY_IN_FLIGHT INCIDENT_CLOSED SYNC_CONFLICT COMMAND_REFUSED BASE_NOT_READY BASE_IN_USE "
    "TICKET_USED LAUNCH_OVER HANDOVER_REFUSED NOTHING_TO_PASTE",
    410: "FILES_PURGED TICKET_EXPIRED",
    412: "PRECONDITION_FAILED",
    413: "BODY_TOO_LARGE",
    415: "UNSUPPORTED_MEDIA_TYPE",
    416: "RANGE_NOT_SATISFIABLE",
    422: "INVALID_REQUEST INVALID_TIMEOUTS PRICE_UNKNOWN DATA_ELSEWHERE SECRET_IN_SPEC CODE_REFUSED "
    "AFTER_UNKNOWN AFTER_CYCLE SPEND_UNBOUNDED URL_REFUSED OLD_RUN_UNREADABLE IDEMPOTENCY_KEY_REUSED",
    428: "PRECONDITION_REQUIRED",
    429: "RATE_LIMITED TOO_MANY_STREAMS",
    431: "HEAD_TOO_LARGE",
    500: "INTERNAL",
    503: "UNAVAILABLE SCHEMA_MISMATCH STREAMS_FULL STORE_UNAVAILABLE",
    507: "STORE_FULL",
}
STATUS: Mapping[str, int] = {code: status for status, codes in _CODES.items() for code in codes.split()}
RETRY_AFTER_S = 2


def problem(error: SpotError, path: str, request_id: str) -> Response:
    """The response of one refusal. `path`: of the request."""
    status = STATUS.get(error.code, 500)
    metrics.REFUSALS.add(error.code)
    body: Problem = {
        "type": TYPE + error.code,
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": error.detail,
        "instance": path,
        "code": error.code,
        "errors": [{"pointer": pointer, "detail": reason} for pointer, reason in error.errors],
        "meta": error.meta,
        "request_id": request_id,
    }
    headers = {}
    if status in (429, 503) or error.code == "IDEMPOTENCY_KEY_IN_FLIGHT":
        headers["Retry-After"] = str(error.meta.get("retry_after_s", RETRY_AFTER_S))
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return Response(dumps(body), status, headers, MEDIA_TYPE)


def request_id_of(request: Request) -> str:
    """Set by the middleware for every request."""
    return str(request.scope.get("spot_request_id", ""))
