"""The OpenAPI document: served at /openapi.json, written to openapi/openapi.json, and compared by a test.

It is put together from the routes, the table of operations (operations), the scopes (api/wire/access), the recorded
examples, and the words for the whole (words). Words of enums that clients meet may grow: clients must accept unknown
ones. examples.json holds for each operation the body of one request, one answer of each good status, the beginning of a
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
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from supervisor.api.document import parameters as document_headers
from supervisor.api.document import words as document_words
from supervisor.api.document.operation import Operation
from supervisor.api.document.operations import OPERATIONS
from supervisor.api.document.parameters import path_parameters, query_parameters
from supervisor.api.errors import MEDIA_TYPE, STATUS
from supervisor.api.shapes import answers as schemas
from supervisor.api.wire.access import NEEDED

REF = "#/components/schemas/{model}"


def components(models: Iterable[type[BaseModel]]) -> Json:
    """name → JSON schema, of these models and of what they are made of."""
    by_name = sorted(set(models), key=lambda model: model.__name__)
    _, shared = models_json_schema([(model, "validation") for model in by_name], ref_template=REF)
    return {name: _exact(schema) for name, schema in shared["$defs"].items()}


def reference(model: type[BaseModel]) -> Json:
    return {"$ref": REF.format(model=model.__name__)}


def _exact(part: Any) -> Any:
    if isinstance(part, list):
        return [_exact(one) for one in part]
    if not isinstance(part, dict):
        return part
    told = {
        key: _exact(value) for key, value in part.items() if not (key == "title" and isinstance(value, str))
    }
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


__all__ = ["OPERATIONS", "document"]
Json = dict[str, Any]

ANYWHERE = ("INVALID_REQUEST", "HOST_REFUSED", "INTERNAL", "UNAVAILABLE")
WITH_TOKEN = ("UNAUTHORIZED", "SCOPE_MISSING", "RATE_LIMITED")
WITH_BODY = ("INVALID_JSON", "BODY_TOO_LARGE", "UNSUPPORTED_MEDIA_TYPE")
CHANGING = ("post", "put", "patch", "delete")


def document(app: FastAPI) -> str:
    """The document of the API that `app` serves, as it is committed: JSON text with a line break at its end."""
    found: Json = get_openapi(title=app.title, version=app.version, routes=app.routes)
    found["info"]["description"] = document_words.INFO
    found["servers"] = document_words.SERVERS
    models = {schemas.Problem}.union(*(told.models for told in OPERATIONS.values()))
    found["components"] = {
        "schemas": components(models),
        "securitySchemes": document_words.SECURITY_SCHEMES,
    }
    used = set()
    for path in found["paths"].values():
        for method, told in path.items():
            name = told["operationId"] = _name(told["operationId"], method)
            _tell(told, method, name)
            used |= set(told["tags"])
    found["tags"] = [tag for tag in document_words.TAGS if tag["name"] in used]
    return json.dumps(found, indent=1, sort_keys=True) + "\n"


def _name(generated: str, method: str) -> str:
    """The framework appends path and method to the function's name."""
    return next(name for name in sorted(OPERATIONS, key=len, reverse=True) if generated.startswith(name))


def _tell(told: Json, method: str, name: str) -> None:
    operation = OPERATIONS[name]
    told["summary"], told["description"] = name.replace("_", " ").capitalize(), told.get("description", "")
    told["security"] = document_words.security(NEEDED[name])
    told["parameters"] = [
        *path_parameters(told.get("parameters", [])),
        *query_parameters(operation.query),
        *document_headers.parameters(operation.takes),
    ]
    if operation.body is not None:
        content = {
            kind: one for name in operation.json_types for kind, one in _content(operation.body, name).items()
        }
        told["requestBody"] = {"required": operation.body_required, "content": content}
    if operation.raw_body:
        binary = {operation.raw_body: {"schema": {"type": "string", "format": "binary"}}}
        told["requestBody"] = {"required": True, "content": binary}
    answers = _good_answers(operation)
    _add_refusals(answers, _codes(operation, method, name))
    for status, answer in answers.items():
        answer["headers"] = document_headers.answer_headers(int(status), operation.sends)
    told["responses"] = dict(sorted(answers.items()))
    put_into(told, name)


def _codes(operation: Operation, method: str, name: str) -> list[str]:
    """Every code that the operation may refuse with."""
    codes = [*ANYWHERE, *operation.codes]
    if NEEDED[name] is not None:
        codes += [code for code in WITH_TOKEN if code in STATUS]
    if method in CHANGING:
        codes += ["ORIGIN_REFUSED", *(WITH_BODY if operation.body is not None else [])]
    return list(dict.fromkeys(codes))


def _good_answers(operation: Operation) -> Json:
    answers: Json = {}
    for number in sorted({*operation.answers, *operation.media}):
        content = _content(operation.answers[number]) if number in operation.answers else {}
        for media_type in operation.media.get(number, ()):
            kind = {} if media_type.startswith("text/") else {"format": "binary"}
            content[media_type] = {"schema": {"type": "string", **kind}}
        answers[str(number)] = {
            "description": _DESCRIBED[number],
            **({"content": content} if content else {}),
        }
    if operation.also is not None:
        told_so = answers["200"]["content"]["application/json"]
        other = _content(operation.also)["application/json"]["schema"]
        told_so["schema"] = {"anyOf": [told_so["schema"], other]}
    return answers


def _add_refusals(answers: Json, codes: list[str]) -> None:
    for code in codes:
        refusal = {"description": "", "content": _content(schemas.Problem, MEDIA_TYPE)}
        answer = answers.setdefault(str(STATUS[code]), refusal)
        answer["content"] |= _content(schemas.Problem, MEDIA_TYPE)  # 503 of /readyz is an answer, too
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


def _content(model: type[BaseModel], media_type: str = "application/json") -> Json:
    return {media_type: {"schema": reference(model)}}
