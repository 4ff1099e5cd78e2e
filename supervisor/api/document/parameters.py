"""What the parameters mean. A name means the same in every operation that has it; a field's own words come first.

The headers that the document tells of: those that requests may carry, and those that answers do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from supervisor.api.shapes.parameters import RUN_ID

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


Json = dict[str, Any]

PATHS: Mapping[str, tuple[str, Json]] = {
    "run_id": ("The run.", {"type": "string", "pattern": RUN_ID, "maxLength": 63}),
    "webhook_id": ("The webhook.", {"type": "string", "pattern": "^(wh-[0-9a-f]{12}|settings)$"}),
    "delivery_id": ("The delivery.", {"type": "integer", "minimum": 1, "maximum": 2**62}),
    "token_id": ("The token.", {"type": "string", "pattern": "^tok-[0-9a-f]{12}$"}),
    "number": ("Number of an attempt, from 1 on.", {"type": "integer", "minimum": 1, "maximum": 10**9}),
    "sha256": ("SHA-256 of the bundle's tar, in lower case.", {"type": "string", "pattern": "^[0-9a-f]{64}$"}),
    "path": ("Relative to the run's folder, as a list of files tells it.", {"type": "string", "minLength": 1}),
}
_QUERY: Mapping[str, str] = {
    "actor": "Only what this actor did.",
    "after": "Only what came after this one.",
    "attempt": "Number of the attempt; without it the newest.",
    "code_follows": "Of a plan: the code bundle will be stored with the submit, so it need not be there now.",
    "created_after": "Only runs that were submitted later.",
    "cursor": "`next_cursor` of the page before.",
    "label": "`KEY=VALUE`; may be given several times, and all must fit.",
    "limit": "At most so many.",
    "lines": "At most so many lines.",
    "newest_first": "Turns the order.",
    "offset": "From this byte on.",
    "owner": "Only runs of this owner.",
    "q": "Only runs with this text in their id.",
    "since": "Only what came later than this time.",
    "source": "The machine's console, or what the cloud's log service kept of it.",
    "status": "Only runs of this status; may be given several times.",
    "until": "Only what came before this time.",
    "validate_only": "Tell the plan, and do nothing of it.",
    "verbose": "Tell every check, also where all is well.",
    "zone": "Only runs whose newest attempt is in this zone.",
}


def path_parameters(told: list[Json]) -> list[Json]:
    """The framework's parameters of a path, with what they mean."""
    return [_path(one) for one in told]


def _path(one: Json) -> Json:
    if one["in"] != "path" or one["name"] not in PATHS:
        return one
    text, schema = PATHS[one["name"]]
    return {**one, "description": text, "schema": schema}


def query_parameters(model: type[BaseModel] | None) -> list[Json]:
    """Query parameters. Null is a default of ours and nothing that a query can say."""
    if model is None:
        return []
    properties = model.model_json_schema().get("properties", {})
    return [_query(name, _without_null(schema)) for name, schema in properties.items()]


def _query(name: str, schema: Json) -> Json:
    text = schema.pop("description", None) or _QUERY.get(name, "")
    return {"name": name, "in": "query", "required": False, "description": text, "schema": schema}


def _without_null(part: Json) -> Json:
    told = {key: value for key, value in part.items() if value is not None and key != "title"}
    others = [one for one in told.pop("anyOf", []) if one != {"type": "null"}]
    return {**told, **others[0]} if len(others) == 1 else {**told, **({"anyOf": others} if others else {})}
