"""The OpenAPI document: served at /openapi.json, written to openapi/openapi.json, and compared by a test.

It is put together from the routes, each of which declares what it needs, takes and gives (api/wire/route), the recorded
examples, and the words for the whole. Words of enums that clients meet may grow: clients must accept unknown ones.
examples.json holds for each operation the body of one request, one answer of each good status, the beginning of a
stream, and one refusal: real ones, recorded by `make openapi` on the tests' bed.

The framework's models say two things less exactly than they check them; both are told here: the names of a mapping
must have their form, and titles that only repeat a field's name are noise.
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

INFO = """\
Keeps trainings alive on spot machines: submit a run, and it is placed, watched, recovered after a
preemption and completed when its results are verified.

**Growing.** Clients must accept unknown words (statuses, causes, kinds, codes) and unknown fields in
answers: both may be added at any time. Unknown fields and parameters of a request are refused.

**Values.** Names are `snake_case`. Times are RFC 3339 in UTC with `Z`. Durations and ages end in `_s` and
are seconds. Money ends in `_usd` and is a decimal with at most 6 places; prices per hour end in
`_usd_per_h`. Sizes end in `_bytes`. What is not known is `null`, never 0.

**Refusals** are `application/problem+json` (RFC 9457). `code` is stable; `errors` points into the body
(`#/spec/zones`) or names the query parameter (`?page_size`); `meta` holds every value of the text. What was
sent is never repeated.

**Repeating.** A request that was answered 429 or 503 can be repeated after `Retry-After` seconds. A submit
can be repeated with the same `Idempotency-Key`, or with a `run_id` of your choice.

**Lists** are pages: give `next_cursor` back as `cursor` until it is null. A cursor is opaque and belongs to
its filters.

**Tokens.** `Authorization: Bearer sup_…`. Each operation names the scope that it needs; `admin` includes
all. Another owner's run is answered as one that does not exist.
"""

SERVERS: list[Json] = [
    {"url": "http://127.0.0.1:8787", "description": "A supervisor of this computer, as `spot serve` starts it."}
]

TAGS: list[Json] = [
    {"name": "runs", "description": "Submit runs; look at them, their history, costs and output."},
    {"name": "actions", "description": "Wishes for runs that exist: stop, resume, approve."},
    {"name": "files", "description": "What a run has left in the object store."},
    {"name": "code", "description": "Code bundles, named by their content."},
    {"name": "machines", "description": "The machines that there are now, and the release of those that serve nobody."},
    {"name": "prices", "description": "What machines cost per hour."},
    {"name": "events", "description": "What has happened, as lists and as live streams."},
    {"name": "tokens", "description": "Who may ask: tokens with scopes and an owner."},
    {"name": "webhooks", "description": "Who is told: endpoints, deliveries and their replay."},
    {"name": "health", "description": "The supervisor itself: is it alive, is it fit for work, what is it."},
    {"name": "agent", "description": "For the agent beside a training, not for people."},
    {"name": "dev", "description": "Disasters on request, to see a run survive them."},
]

SECURITY_SCHEMES: Json = {
    "token": {
        "type": "http",
        "scheme": "bearer",
        "description": "A token of `spot token create`, or the admin token that the first start writes into the data "
        "folder. Scopes: " + ", ".join(f"`{scope}`" for scope in Scope) + ". A server on loopback that was started "
        "with `--insecure-loopback` asks for none.",
    }
}


def security(scope: Scope | None) -> list[Json]:
    """What one operation needs. An empty list: nobody is asked."""
    return [] if scope is None else [{"token": [str(scope)]}]


REF = "#/components/schemas/{model}"
SUFFIX = "Json"  # of a TypedDict that would otherwise have the name of its noun in the domain


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
        return [_exact(one) for one in part]
    if not isinstance(part, dict):
        return part
    told = {key: _exact(value) for key, value in part.items() if not (key == "title" and isinstance(value, str))}
    if "$ref" in told:
        told["$ref"] = told["$ref"].removesuffix(SUFFIX)
    if "patternProperties" in told and "additionalProperties" not in told:
        [(pattern, value)] = told.pop("patternProperties").items()
        told["additionalProperties"] = value
        told["propertyNames"] = {**told.get("propertyNames", {}), "pattern": pattern}
    return told


STORED = Path(__file__).with_name("examples.json")


@cache
def _all() -> Json:
    found: Json = json.loads(STORED.read_text(encoding="utf-8")) if STORED.exists() else {}
    return found


def put_into(told: Json, operation: str) -> None:
    """The examples of one operation, beside the schemas that they follow."""
    example = _all().get(operation, {})
    if "request" in example:
        for content in told["requestBody"]["content"].values():
            content["example"] = example["request"]
    for status, answer in example.get("answers", {}).items():
        _put(told["responses"].get(status, {}), answer)
    if "stream" in example:
        _put(told["responses"]["200"], example["stream"])
    refusal = example.get("refusal")
    if refusal is not None:
        _put(told["responses"].get(str(refusal["status"]), {}), refusal)


def _put(answer: Json, value: object) -> None:
    """A text is an example of a stream or of a page of text, all else of JSON."""
    for media_type, content in answer.get("content", {}).items():
        if media_type.startswith("text/") == isinstance(value, str) and value is not None:
            content["example"] = value


ANYWHERE = ("INVALID_REQUEST", "HOST_REFUSED", "INTERNAL", "UNAVAILABLE")
WITH_TOKEN = ("UNAUTHORIZED", "SCOPE_MISSING", "RATE_LIMITED")
WITH_BODY = ("INVALID_JSON", "BODY_TOO_LARGE", "UNSUPPORTED_MEDIA_TYPE")
CHANGING = ("post", "put", "patch", "delete")


def operations(app: FastAPI) -> dict[str, Operation]:
    """What the document tells of, by name."""
    routes = (route for route in app.routes if isinstance(route, Admitted))
    return {route.name: route.operation for route in routes if not route.operation.hidden}


def document(app: FastAPI) -> str:
    """The document of the API that `app` serves, as it is committed: JSON text with a line break at its end."""
    shown = operations(app)
    whole: Json = get_openapi(title=app.title, version=app.version, routes=app.routes)
    whole["info"]["description"] = INFO
    whole["servers"] = SERVERS
    shapes: set[Shape] = {Problem}.union(*(operation.shapes for operation in shown.values()))
    whole["components"] = {"schemas": components(shapes), "securitySchemes": SECURITY_SCHEMES}
    used = set()
    for path in whole["paths"].values():
        for method, entry in path.items():
            _tell(entry, method, shown[entry["operationId"]])
            used |= set(entry["tags"])
    whole["tags"] = [tag for tag in TAGS if tag["name"] in used]
    return json.dumps(whole, indent=1, sort_keys=True) + "\n"


def _tell(entry: Json, method: str, operation: Operation) -> None:
    name = entry["operationId"]
    entry["summary"], entry["description"] = name.replace("_", " ").capitalize(), entry.get("description", "")
    entry["security"] = security(operation.needs)
    entry["parameters"] = [
        *path_parameters(entry.get("parameters", [])),
        *query_parameters(operation.query),
        *document_headers.parameters(operation.takes),
    ]
    if operation.body is not None:
        content = {kind: one for name in operation.json_types for kind, one in _content(operation.body, name).items()}
        entry["requestBody"] = {"required": operation.body_required, "content": content}
    if operation.raw_body:
        binary = {operation.raw_body: {"schema": {"type": "string", "format": "binary"}}}
        entry["requestBody"] = {"required": True, "content": binary}
    answers = _good_answers(operation)
    _add_refusals(answers, _codes(operation, method))
    for status, answer in answers.items():
        answer["headers"] = document_headers.answer_headers(int(status), operation.sends)
    entry["responses"] = dict(sorted(answers.items()))
    put_into(entry, name)


def _codes(operation: Operation, method: str) -> list[str]:
    """Every code that the operation may refuse with."""
    codes = [*ANYWHERE, *operation.refuses.split()]
    if operation.needs is not None:
        codes += [code for code in WITH_TOKEN if code in STATUS]
    if method in CHANGING:
        codes += ["ORIGIN_REFUSED", *(WITH_BODY if operation.body is not None else [])]
    return list(dict.fromkeys(codes))


def _good_answers(operation: Operation) -> Json:
    answers: Json = {}
    for number in sorted({*operation.responses, *operation.media}):
        content = _content(operation.responses[number]) if number in operation.responses else {}
        for media_type in operation.media.get(number, ()):
            kind = {} if media_type.startswith("text/") else {"format": "binary"}
            content[media_type] = {"schema": {"type": "string", **kind}}
        answers[str(number)] = {"description": _DESCRIBED[number], **({"content": content} if content else {})}
    if operation.also is not None:
        told_so = answers["200"]["content"]["application/json"]
        other = _content(operation.also)["application/json"]["schema"]
        told_so["schema"] = {"anyOf": [told_so["schema"], other]}
    return answers


def _add_refusals(answers: Json, codes: list[str]) -> None:
    for code in codes:
        refusal = {"description": "", "content": _content(Problem, MEDIA_TYPE)}
        answer = answers.setdefault(str(STATUS[code]), refusal)
        answer["content"] |= _content(Problem, MEDIA_TYPE)  # 503 of /readyz is an answer, too
        answer["description"] = (answer["description"] + " " + code).strip()


_DESCRIBED = {
    200: "Done; or nothing had to be done.",
    201: "Created.",
    202: "Accepted; the loop does it.",
    204: "Done; there is nothing to tell.",
    206: "One range of it.",
    304: "It is still what you have.",
    503: "",
}


def _content(shape: Shape, media_type: str = "application/json") -> Json:
    return {media_type: {"schema": reference(shape)}}
