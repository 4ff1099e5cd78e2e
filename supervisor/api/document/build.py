"""The OpenAPI document: served at /openapi.json, written to openapi/openapi.json, and compared by a test.

It is built from the routes, each of which declares what it needs, takes and returns (api/wire/route), the recorded
examples, and the texts for the whole. Enums in responses may grow: clients must accept unknown words. examples.json
contains for each operation the body of one request, one response of each good status, the beginning of a stream, and
one refusal. They are real ones, which `make openapi` records with the tests' services.

The library's schemas are corrected in two points: names of a mapping must match their pattern, and titles that only
repeat the name of a field are left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import TypeAdapter

from supervisor.api.document import parameters as document_headers
from supervisor.api.document.parameters import path_parameters, query_parameters
from supervisor.api.errors import MEDIA_TYPE, STATUS, Problem
from supervisor.api.wire.route import Admitted, Operation, Shape
from supervisor.domain.callers import Scope

Json = dict[str, Any]

STORED = Path(__file__).with_name("examples.json")
REF = "#/components/schemas/{model}"
SUFFIX = "Json"  # of a TypedDict that would otherwise have the name of a noun of the domain
# Codes of every operation, of every operation with a token, with a body.
ANYWHERE = ("INVALID_REQUEST", "HOST_REFUSED", "INTERNAL", "UNAVAILABLE")
WITH_TOKEN = ("UNAUTHORIZED", "SCOPE_MISSING", "RATE_LIMITED")
WITH_BODY = ("INVALID_JSON", "BODY_TOO_LARGE", "UNSUPPORTED_MEDIA_TYPE")
CHANGING = ("post", "put", "patch", "delete")
_DESCRIPTIONS = {
    200: "Done; or nothing had to be done.",
    201: "Created.",
    202: "Accepted; the loop does it.",
    204: "Done; the response has no content.",
    206: "One range of it.",
    307: "Its bytes are at the address in `Location`, which needs no pass, and is good for this object and a while.",
    304: "The client has the current content.",
    503: "",
}

INFO = """\
Keeps trainings alive on spot machines: submit a run, and it is placed, watched, recovered after a
preemption and completed when its results are verified.

**Growth.** Clients must accept unknown words (statuses, causes, kinds, codes) and unknown fields in
responses: both may be added at any time. Unknown fields and parameters of a request are refused.

**Values.** Names are `snake_case`. Times are RFC 3339 in UTC with `Z`. Durations and ages end in `_s` and
are seconds. Money ends in `_usd` and is a decimal with at most 6 places; prices per hour end in
`_usd_per_h`. Sizes end in `_bytes`. What is not known is `null`, never 0.

**Refusals** are `application/problem+json` (RFC 9457). `code` is stable; `errors` points into the body
(`#/spec/zones`) or names the query parameter (`?page_size`); `meta` holds every value of the text. A refusal
never repeats what was sent.

**Retries.** After a response 429 or 503 the request can be repeated in `Retry-After` seconds. A submit can be
repeated with the same `Idempotency-Key`, or with a `run_id` of your choice.

**Lists** are pages: send `next_cursor` as `cursor` until it is null. A cursor is opaque and belongs to its
filters.

**Tokens.** `Authorization: Bearer sup_…`. Each operation names the scope that it needs; `admin` includes
all. A run of another owner is refused like a run that does not exist.
"""

SERVERS: list[Json] = [
    {"url": "http://127.0.0.1:8787", "description": "A supervisor of this computer, as `spot serve` starts it."}
]

TAGS: list[Json] = [
    {"name": "runs", "description": "Submit runs; look at them, their history, costs and output."},
    {"name": "actions", "description": "Actions on existing runs: stop, resume, approve."},
    {"name": "files", "description": "What a run has left in the object store."},
    {"name": "commands", "description": "Commands beside a training, and the code that its machine has changed."},
    {"name": "code", "description": "Code bundles, named by their content."},
    {"name": "machines", "description": "The existing machines, and the release of machines that no run needs."},
    {"name": "bases", "description": "What prepares machines: scripts with a name, and images of prepared disks."},
    {"name": "prices", "description": "What machines cost per hour."},
    {"name": "events", "description": "The history, as lists and as live streams."},
    {"name": "tokens", "description": "Access to the API: tokens with scopes and an owner."},
    {"name": "webhooks", "description": "Receivers of announcements: endpoints, deliveries and their replay."},
    {"name": "health", "description": "The supervisor itself: is it alive, is it ready, what is it."},
    {"name": "agent", "description": "For the agent beside a training, not for people."},
    {"name": "dev", "description": "Disasters on request, to see a run survive them."},
]

SECURITY_SCHEMES: Json = {
    "token": {
        "type": "http",
        "scheme": "bearer",
        "description": "A token of `spot token create`, or the admin token that the first start writes into the data "
        "folder. Scopes: " + ", ".join(f"`{scope}`" for scope in Scope) + ". A server on loopback that was started "
        "with `--insecure-loopback` needs none.",
    },
    "pass": {
        "type": "http",
        "scheme": "bearer",
        "description": "The pass of a launch, for the objects of its run. A claim and a beat with `?pass=1` give one.",
    },
}


def security(scope: Scope | None) -> list[Json]:
    """What one operation needs. An empty list: no token."""
    return [] if scope is None else [{"token": [str(scope)]}]


def components(shapes: Iterable[Shape]) -> Json:
    """Name -> JSON schema, of these shapes and of their parts."""
    by_name = sorted(shapes, key=name_of)
    _, shared = TypeAdapter.json_schemas(
        [(name_of(shape), "validation", TypeAdapter(shape)) for shape in by_name], ref_template=REF
    )
    return {name.removesuffix(SUFFIX): _exact(schema) for name, schema in shared["$defs"].items()}


def name_of(shape: Shape) -> str:
    return str(shape.__name__).removesuffix(SUFFIX)


def reference(shape: Shape) -> Json:
    return {"$ref": REF.format(model=name_of(shape))}


def _exact(part: Any) -> Any:
    if isinstance(part, list):
        return [_exact(item) for item in part]
    if not isinstance(part, dict):
        return part
    schema = {key: _exact(value) for key, value in part.items() if not (key == "title" and isinstance(value, str))}
    if "$ref" in schema:
        schema["$ref"] = schema["$ref"].removesuffix(SUFFIX)
    if "patternProperties" in schema and "additionalProperties" not in schema:
        [(pattern, value)] = schema.pop("patternProperties").items()
        schema["additionalProperties"] = value
        schema["propertyNames"] = {**schema.get("propertyNames", {}), "pattern": pattern}
    return schema


@cache
def _examples() -> Json:
    examples: Json = json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else {}
    return examples


def _add_examples(entry: Json, name: str) -> None:
    """Beside the schemas that they follow."""
    example = _examples().get(name, {})
    if "request" in example:
        for content in entry["requestBody"]["content"].values():
            content["example"] = example["request"]
    responses = {**example.get("answers", {})}
    if "refusal" in example:
        responses[str(example["refusal"]["status"])] = example["refusal"]
    for status, value in responses.items():
        _add_example(entry["responses"].get(status, {}), value)
    if "stream" in example:
        _add_example(entry["responses"]["200"], example["stream"])


def _add_example(response: Json, value: object) -> None:
    """A text is an example of a stream or of a page of text, any other value of JSON."""
    for media_type, content in response.get("content", {}).items():
        if media_type.startswith("text/") == isinstance(value, str) and value is not None:
            content["example"] = value


def operations(app: FastAPI) -> dict[str, Operation]:
    """The documented ones, by name."""
    routes = (route for route in app.routes if isinstance(route, Admitted))
    return {route.name: route.operation for route in routes if not route.operation.hidden}


def document(app: FastAPI) -> str:
    """Of the API that `app` serves, as it is committed: JSON text with a line break at its end."""
    shown = operations(app)
    whole: Json = get_openapi(title=app.title, version=app.version, routes=app.routes)
    whole["info"]["description"] = INFO
    whole["servers"] = SERVERS
    shapes: set[Shape] = {Problem}.union(*(operation.shapes for operation in shown.values()))
    whole["components"] = {"schemas": components(shapes), "securitySchemes": SECURITY_SCHEMES}
    used = set()
    for path, entries in whole["paths"].items():
        for method, entry in entries.items():
            _complete(entry, method, shown[entry["operationId"]])
            entry["parameters"] = [*path_parameters(path), *entry["parameters"]]
            used |= set(entry["tags"])
    whole["tags"] = [tag for tag in TAGS if tag["name"] in used]
    return json.dumps(whole, indent=1, sort_keys=True) + "\n"


def _complete(entry: Json, method: str, operation: Operation) -> None:
    name = entry["operationId"]
    entry["summary"], entry["description"] = name.replace("_", " ").capitalize(), entry.get("description", "")
    entry["security"] = [{"pass": []}] if operation.by_pass else security(operation.needs)
    entry["parameters"] = [*query_parameters(operation.query), *document_headers.parameters(operation.takes)]
    if operation.body is not None:
        content: Json = {}
        for media_type in operation.json_types:
            content |= _content(operation.body, media_type)
        entry["requestBody"] = {"required": operation.body_required, "content": content}
    if operation.raw_body:
        binary = {operation.raw_body: {"schema": {"type": "string", "format": "binary"}}}
        entry["requestBody"] = {"required": True, "content": binary}
    responses = _good_responses(operation)
    _add_refusals(responses, _codes(operation, method))
    for status, response in responses.items():
        response["headers"] = document_headers.response_headers(int(status), operation.sends)
    entry["responses"] = dict(sorted(responses.items()))
    _add_examples(entry, name)


def _codes(operation: Operation, method: str) -> list[str]:
    """Every code that the operation may refuse with."""
    codes = [*ANYWHERE, *operation.refuses.split()]
    if operation.needs is not None:
        codes += [code for code in WITH_TOKEN if code in STATUS]
    if method in CHANGING:
        codes += ["ORIGIN_REFUSED", *(WITH_BODY if operation.body is not None else [])]
    return list(dict.fromkeys(codes))


def _good_responses(operation: Operation) -> Json:
    responses: Json = {}
    for number in sorted({*operation.responses, *operation.media}):
        content = _content(operation.responses[number]) if number in operation.responses else {}
        for media_type in operation.media.get(number, ()):
            kind = {} if media_type.startswith("text/") else {"format": "binary"}
            content[media_type] = {"schema": {"type": "string", **kind}}
        responses[str(number)] = {"description": _DESCRIPTIONS[number], **({"content": content} if content else {})}
    if operation.also is not None:
        json_content = responses["200"]["content"]["application/json"]
        json_content["schema"] = {"anyOf": [json_content["schema"], reference(operation.also)]}
    return responses


def _add_refusals(responses: Json, codes: list[str]) -> None:
    for code in codes:
        response = responses.setdefault(str(STATUS[code]), {"description": "", "content": {}})
        response["content"] |= _content(Problem, MEDIA_TYPE)  # beside the JSON of a 503 of /readyz
        response["description"] = f"{response['description']} {code}".strip()


def _content(shape: Shape, media_type: str = "application/json") -> Json:
    return {media_type: {"schema": reference(shape)}}
