"""The headers that the document tells of: those that requests may carry, and those that answers do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]
TEXT: Json = {"type": "string"}

TAKEN: Mapping[str, Json] = {
    "Idempotency-Key": {
        "description": "Repeat a request with the same key and body, and the first answer comes again; kept 7 days.",
        "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]([ -~]*[!-~])?$"},
    },
    "Range": {"description": "One range of bytes; another form is ignored.", "schema": TEXT},
    "If-Range": {
        "description": "The ETag of the content that the range is of; of another content the whole file is given.",
        "schema": TEXT,
    },
    "If-Match": {
        "description": "The ETag that was read before, or `*`; 412 where the run has changed since, 428 without.",
        "required": True,
        "schema": {"type": "string", "pattern": r'^(\*|(W/)?"[!#-~]*"(, *(W/)?"[!#-~]*")*)$'},
    },
    "If-None-Match": {
        "description": "An ETag that was read before; 304 without a body where it is still the same.",
        "schema": TEXT,
    },
    "Last-Event-ID": {
        "description": "Of a stream: the id of the last event that was received; those after it are told first.",
        "schema": TEXT,
    },
}

SENT: Mapping[str, Json] = {
    "Accept-Ranges": {"description": "`bytes`.", "schema": TEXT},
    "Cache-Control": {"description": "`no-store`: the answer holds a secret.", "schema": TEXT},
    "Content-Disposition": {"description": "The file's own name.", "schema": TEXT},
    "Content-Range": {"description": "Of a 206: which bytes of how many.", "schema": TEXT},
    "ETag": {"description": "Differs for each content.", "schema": TEXT},
    "Idempotency-Replayed": {
        "description": "`true`: the answer of an earlier request with the same key.",
        "schema": TEXT,
    },
    "Location": {"description": "Address of what was made.", "schema": TEXT},
    "Repr-Digest": {"description": "SHA-256 of the whole file where it is known (RFC 9530).", "schema": TEXT},
    "X-Next-Offset": {"description": "`next_offset` of the answer.", "schema": TEXT},
}

ALWAYS: Mapping[str, Json] = {
    "X-Request-ID": {
        "description": "The id under which the supervisor's log has this request: yours, if you sent one.",
        "schema": TEXT,
    }
}
# status → what a refusal with it carries
REFUSALS: Mapping[int, Mapping[str, Json]] = {
    401: {"WWW-Authenticate": {"description": "`Bearer`.", "schema": TEXT}},
    429: {"Retry-After": {"description": "Seconds to wait.", "schema": {"type": "string"}}},
    503: {"Retry-After": {"description": "Seconds to wait.", "schema": {"type": "string"}}},
}


def parameters(names: tuple[str, ...]) -> list[Json]:
    return [{"name": name, "in": "header", "required": False, **TAKEN[name]} for name in names]


def answer_headers(status: int, sends: tuple[str, ...]) -> Json:
    """Headers of one answer. `sends`: those of the operation's good answers."""
    if status >= 400:
        return {**ALWAYS, **REFUSALS.get(status, {})}
    return {**ALWAYS, **{name: SENT[name] for name in sends}}
