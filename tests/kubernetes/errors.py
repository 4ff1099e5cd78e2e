"""What the API says instead of an object: Kubernetes' Status, with its words, reasons and codes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.kubernetes.kinds import Kind

TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)
REQUIRED, INVALID, UNSUPPORTED, FORBIDDEN, TOO_LONG, DUPLICATE, NOT_FOUND = (
    "FieldValueRequired", "FieldValueInvalid", "FieldValueNotSupported", "FieldValueForbidden", "FieldValueTooLong",
    "FieldValueDuplicate", "FieldValueNotFound",
)  # fmt: skip


@dataclass(frozen=True)
class Cause:
    """One field of an invalid object. `text`: such as `Invalid value: "A": must be ...`."""

    reason: str
    field: str
    text: str


class ApiError(Exception):
    """`proceed`: a continue token of an inconsistent list."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: Mapping[str, Any] | None = None,
        *,
        proceed: str = "",
        retry_after_s: int = 0,
    ) -> None:
        super().__init__(message)
        self.code, self.reason, self.message, self.details = code, reason, message, dict(details or {})
        self.proceed, self.retry_after_s = proceed, retry_after_s

    def body(self) -> dict[str, Any]:
        details = {**self.details, **({"retryAfterSeconds": self.retry_after_s} if self.retry_after_s else {})}
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {"continue": self.proceed} if self.proceed else {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            **({"details": details} if details else {}),
            "code": self.code,
        }

    def headers(self) -> dict[str, str]:
        return {"Retry-After": str(self.retry_after_s)} if self.retry_after_s else {}


def _details(kind: Kind, name: str) -> dict[str, Any]:
    return {**({"name": name} if name else {}), **({"group": kind.group} if kind.group else {}), "kind": kind.plural}


def not_found(kind: Kind, name: str) -> ApiError:
    return ApiError(404, "NotFound", f'{kind.qualified} "{name}" not found', _details(kind, name))


def already_exists(kind: Kind, name: str) -> ApiError:
    return ApiError(409, "AlreadyExists", f'{kind.qualified} "{name}" already exists', _details(kind, name))


def conflict(kind: Kind, name: str, why: str) -> ApiError:
    text = f'Operation cannot be fulfilled on {kind.qualified} "{name}": {why}'
    return ApiError(409, "Conflict", text, _details(kind, name))


def forbidden(kind: Kind, name: str, why: str) -> ApiError:
    subject = f'{kind.qualified} "{name}"' if name else kind.qualified
    return ApiError(403, "Forbidden", f"{subject} is forbidden: {why}", _details(kind, name))


def invalid(kind: Kind, name: str, causes: Sequence[Cause]) -> ApiError:
    texts = [f"{cause.field}: {cause.text}" for cause in causes]
    whole = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    details = {
        "name": name,
        **({"group": kind.group} if kind.group else {}),
        "kind": kind.kind,
        "causes": [{"reason": cause.reason, "message": cause.text, "field": cause.field} for cause in causes],
    }
    return ApiError(422, "Invalid", f'{kind.kind_qualified} "{name}" is invalid: {whole}', details)


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def expired(proceed: str) -> ApiError:
    return ApiError(410, "Expired", TOO_OLD, proceed=proceed)


def unauthorized() -> ApiError:
    return ApiError(401, "Unauthorized", "Unauthorized")


def internal(message: str) -> ApiError:
    return ApiError(500, "InternalError", f"Internal error occurred: {message}")


def busy(retry_after_s: int = 1) -> ApiError:
    text = "The server has received too many requests and has asked us to try again later"
    return ApiError(429, "TooManyRequests", text, retry_after_s=retry_after_s)


def unavailable() -> ApiError:
    text = "the server is currently unable to handle the request"
    return ApiError(503, "ServiceUnavailable", text, retry_after_s=1)
