"""The OpenAPI document: served at /openapi.json, written to openapi/openapi.json, and compared by a test.

It is put together from the routes, the table of operations (api/operations), the scopes (api/access), the recorded
examples, and the words for the whole (api/document_words). Words of enums that clients meet may grow: clients must
accept unknown ones.
"""

from __future__ import annotations

import json
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel

from supervisor.api.document import examples
from supervisor.api.document import headers as document_headers
from supervisor.api.document import words as document_words
from supervisor.api.document.operation import Operation
from supervisor.api.document.operations import OPERATIONS
from supervisor.api.document.parameters import path_parameters, query_parameters
from supervisor.api.document.schemas import components, reference
from supervisor.api.errors import MEDIA_TYPE, STATUS
from supervisor.api.shapes import answers as schemas
from supervisor.api.wire.access import NEEDED

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
    examples.put_into(told, name)


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
