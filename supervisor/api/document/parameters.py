"""The words of the document for parameters of paths and queries, and for headers of requests and responses.

A name means the same in every operation; a field's own description wins.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from supervisor.api.shapes.parameters import RUN_ID

_TEXTS = re.compile(r"{(\w+)}")
TEXT: Json = {"type": "string"}

TAKEN: Mapping[str, Json] = {
    "Idempotency-Key": {
        "description": "A repeat with the same key and body gets the first response again; kept 7 days.",
        "schema": {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[!-~]([ -~]*[!-~])?$"},
    },
    "Range": {"description": "One range of bytes; another form is ignored.", "schema": TEXT},
    "If-Range": {
        "description": "The ETag of the content of this range; where the content differs, the whole file is sent.",
        "schema": TEXT,
    },
    "If-Match": {
        "description": "The ETag that was read before, or `*`; 412 where the run has changed since, 428 without it.",
        "required": True,
        "schema": {"type": "string", "pattern": r'^(\*|(W/)?"[!#-~]*"(, *(W/)?"[!#-~]*")*)$'},
    },
    "If-None-Match": {
        "description": "An ETag that was read before; 304 without a body where it is still the same.",
        "schema": TEXT,
    },
    "X-Spot-If-Generation": {
        "description": "Only if the object has this generation; `0`: only if there is no object of this key.",
        "schema": {"type": "string", "pattern": "^[!-~]{1,100}$"},
    },
    "X-Spot-Metadata": {"description": "The object's metadata: names and texts, as JSON in ASCII.", "schema": TEXT},
    "Last-Event-ID": {
        "description": "Of a stream: the id of the last received event; the events after it are sent first.",
        "schema": TEXT,
    },
}

SENT: Mapping[str, Json] = {
    "Accept-Ranges": {"description": "`bytes`.", "schema": TEXT},
    "Cache-Control": {"description": "`no-store`: the response contains a secret.", "schema": TEXT},
    "Content-Disposition": {"description": "The file's own name.", "schema": TEXT},
    "Content-Range": {"description": "Of a 206: which bytes of how many.", "schema": TEXT},
    "ETag": {"description": "Differs for each content.", "schema": TEXT},
    "Idempotency-Replayed": {
        "description": "`true`: the response of an earlier request with the same key.",
        "schema": TEXT,
    },
    "Location": {"description": "Address of what was created.", "schema": TEXT},
    "Repr-Digest": {"description": "SHA-256 of the whole file where it is known (RFC 9530).", "schema": TEXT},
    "X-Spot-Generation": {"description": "The object's generation.", "schema": TEXT},
    "X-Spot-Metadata": {"description": "The object's metadata, as JSON in ASCII.", "schema": TEXT},
    "X-Spot-Updated": {"description": "When it was written, epoch seconds by the store's clock.", "schema": TEXT},
    "X-Next-Offset": {"description": "`next_offset` of the response.", "schema": TEXT},
}

ALWAYS: Mapping[str, Json] = {
    "X-Request-ID": {
        "description": "The id of this request in the supervisor's log: yours, if you sent one.",
        "schema": TEXT,
    }
}
# status -> headers of a refusal
REFUSALS: Mapping[int, Mapping[str, Json]] = {
    401: {"WWW-Authenticate": {"description": "`Bearer`.", "schema": TEXT}},
    429: {"Retry-After": {"description": "Seconds to wait.", "schema": {"type": "string"}}},
    503: {"Retry-After": {"description": "Seconds to wait.", "schema": {"type": "string"}}},
}


def parameters(names: tuple[str, ...]) -> list[Json]:
    return [{"name": name, "in": "header", "required": False, **TAKEN[name]} for name in names]


def response_headers(status: int, sends: tuple[str, ...]) -> Json:
    """`sends`: headers of the operation's good responses."""
    if status >= 400:
        return {**ALWAYS, **REFUSALS.get(status, {})}
    return {**ALWAYS, **{name: SENT[name] for name in sends}}


Json = dict[str, Any]

PATHS: Mapping[str, tuple[str, Json]] = {
    "run_id": ("The run.", {"type": "string", "pattern": RUN_ID, "maxLength": 63}),
    "webhook_id": ("The webhook.", {"type": "string", "pattern": "^(wh-[0-9a-f]{12}|settings)$"}),
    "delivery_id": ("The delivery.", {"type": "integer", "minimum": 1, "maximum": 2**62}),
    "incident_id": ("The incident.", {"type": "integer", "minimum": 1, "maximum": 2**62}),
    "base_name": ("The base, with its version.", {"type": "string", "pattern": "^[a-z][a-z0-9-]*$", "maxLength": 63}),
    "token_id": ("The token.", {"type": "string", "pattern": "^tok-[0-9a-f]{12}$"}),
    "number": ("Number of an attempt, from 1 on.", {"type": "integer", "minimum": 1, "maximum": 10**9}),
    "sha256": ("SHA-256 of the bundle's tar, in lower case.", {"type": "string", "pattern": "^[0-9a-f]{64}$"}),
    "revision": ("The revision that this delta makes.", {"type": "integer", "minimum": 1, "maximum": 10**9 - 1}),
    "command_id": ("The command.", {"type": "string", "pattern": "^[0-9a-f]{16}$"}),
    "key": ("The key of the object, as in a listing.", {"type": "string", "minLength": 1, "maxLength": 512}),
    "path": ("Relative to the run's folder, as in the list of files.", {"type": "string", "minLength": 1}),
}
_QUERY: Mapping[str, str] = {
    "actor": "Only actions of this actor.",
    "after": "Only what came after this one.",
    "attempt": "Number of the attempt; without it the newest.",
    "code_follows": "Of a plan: the code bundle will be stored with the submit, so it need not exist now.",
    "created_after": "Only runs that were submitted later.",
    "cursor": "`next_cursor` of the page before.",
    "label": "`KEY=VALUE`; may be given several times, and all must match.",
    "limit": "At most so many.",
    "lines": "At most so many lines.",
    "newest_first": "Reverses the order.",
    "offset": "From this byte on.",
    "group": "Only runs of this group.",
    "owner": "Only runs of this owner.",
    "q": "Only runs with this text in their id.",
    "since": "Only what came later than this time.",
    "source": "The machine's console, or what the cloud's log service kept of it.",
    "status": "Only runs of this status; may be given several times.",
    "until": "Only what came before this time.",
    "validate_only": "Respond with the plan, and do nothing of it.",
    "verbose": "Show every check, also where all are ok.",
    "zone": "Only runs whose newest attempt is in this zone.",
}


def path_parameters(path: str) -> list[Json]:
    """The texts in a path, with their meaning."""
    return [_path(name, *PATHS[name]) for name in _TEXTS.findall(path)]


def _path(name: str, text: str, schema: Json) -> Json:
    return {"name": name, "in": "path", "required": True, "description": text, "schema": schema}


def query_parameters(model: type[BaseModel] | None) -> list[Json]:
    """Without null, which a query cannot contain."""
    if model is None:
        return []
    properties = model.model_json_schema().get("properties", {})
    return [_query(name, _without_null(schema)) for name, schema in properties.items()]


def _query(name: str, schema: Json) -> Json:
    text = schema.pop("description", None) or _QUERY.get(name, "")
    return {"name": name, "in": "query", "required": False, "description": text, "schema": schema}


def _without_null(part: Json) -> Json:
    schema = {key: value for key, value in part.items() if value is not None and key != "title"}
    others = [choice for choice in schema.pop("anyOf", []) if choice != {"type": "null"}]
    return {**schema, **others[0]} if len(others) == 1 else {**schema, **({"anyOf": others} if others else {})}
