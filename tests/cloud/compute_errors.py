"""How Compute Engine says no: an HTTP status with `errors[].reason`, or a finished operation that carries a code.

The two are different things. The first means that nothing was begun; the second comes minutes later, under HTTP 200.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

from tests.cloud.web import Response

GOOGLE = "https://www.googleapis.com/compute/v1"  # in every link of a response, whatever the endpoint is
REASONS = {
    400: "invalid",
    401: "authError",
    403: "rateLimitExceeded",
    404: "notFound",
    409: "alreadyExists",
    412: "conditionNotMet",
    429: "rateLimitExceeded",
    500: "internalError",
    502: "backendError",
    503: "backendError",
    504: "backendError",
}
_USAGE = {"rateLimitExceeded", "quotaExceeded", "userRateLimitExceeded"}
_PACIFIC = timezone(timedelta(hours=-8))


class ApiError(Exception):
    """An HTTP error; nothing was done."""

    def __init__(self, status: int, message: str, reason: str | None = None) -> None:
        super().__init__(message)
        self.status, self.message, self.reason = status, message, reason or REASONS.get(status, "invalid")

    def response(self) -> Response:
        domain = "usageLimits" if self.reason in _USAGE else "global"
        one: dict[str, str] = {"message": self.message, "domain": domain, "reason": self.reason}
        if self.status == 401:
            one |= {"location": "Authorization", "locationType": "header"}
        return Response(self.status, {"error": {"code": self.status, "message": self.message, "errors": [one]}})


class OperationFailure(Exception):
    """What a finished operation carries. `code` as in error.errors[].code."""

    def __init__(
        self, code: str, message: str, status: int = 400, details: list[Mapping[str, Any]] | None = None
    ) -> None:
        super().__init__(message)
        self.code, self.message, self.status, self.details = code, message, status, details

    @property
    def http_message(self) -> str:
        return {403: "FORBIDDEN", 404: "NOT FOUND", 503: "SERVICE UNAVAILABLE"}.get(self.status, "BAD REQUEST")

    def body(self) -> dict[str, Any]:
        one: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.details:
            one["errorDetails"] = self.details
        return {"errors": [one]}


def not_found(link: str) -> ApiError:
    """`link`: projects/P/..."""
    return ApiError(404, "The resource '%s' was not found" % link)


def invalid(field: str, value: object, why: str) -> ApiError:
    return ApiError(400, "Invalid value for field '%s': '%s'. %s" % (field, value, why))


def rfc3339(at: float) -> str:
    """Google writes Pacific time with its offset, in milliseconds."""
    return datetime.fromtimestamp(at, UTC).astimezone(_PACIFIC).isoformat(timespec="milliseconds")
