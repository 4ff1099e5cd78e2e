"""The API for people, from its OpenAPI document: all operations by subject, and one operation in detail.

The document names each shape once and refers to it. The page of an operation shows the shapes that it uses as tables,
in the order of the references.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import Response

from supervisor.dashboard import rendering
from supervisor.dashboard.public_api import Api, Refused

Json = Mapping[str, Any]

SHAPES = "#/components/schemas/"


class Operation(NamedTuple):
    """One method of one address. `description`: paragraphs; the first says what it does. `scope`: what its token needs;
    "" = no token is needed."""

    name: str
    method: str
    path: str
    tag: str
    description: tuple[str, ...]
    scope: str
    raw: Json


class Field(NamedTuple):
    name: str
    type_text: str
    required: bool
    description: str


class Shape(NamedTuple):
    name: str
    description: str
    fields: list[Field]


class Message(NamedTuple):
    """A request body (`status` is "") or a response. `example`: JSON or text; "" = none."""

    status: str
    description: str
    media_type: str
    type_text: str
    example: str


async def show(request: Request, api: Api) -> Response:
    """Raises SignInNeeded, Refused."""
    document = await api.get("/openapi.json")
    operations = operations_of(document)
    tags = [(tag, [operation for operation in operations if operation.tag == tag["name"]]) for tag in document["tags"]]
    return await rendering.page(
        request, "docs.html", info=document["info"], tags=tags, prose=prose, paragraphs=paragraphs
    )


async def download(request: Request, api: Api) -> Response:
    """The document itself, for a browser, which has no token in a header. Raises SignInNeeded, Refused."""
    return Response((await api.call("GET", "/openapi.json")).body, media_type="application/json")


async def show_operation(request: Request, api: Api) -> Response:
    """Raises SignInNeeded, Refused."""
    document, name = await api.get("/openapi.json"), request.path_params["operation"]
    operation = next((candidate for candidate in operations_of(document) if candidate.name == name), None)
    if operation is None:
        raise Refused(404, {"code": "NOT_FOUND", "detail": "The API has no operation of this name."})
    return await rendering.page(
        request,
        "docs_operation.html",
        operation=operation,
        parameters=[
            _field(f"{parameter['name']} ({parameter['in']})", parameter["schema"], parameter)
            for parameter in operation.raw.get("parameters", ())
        ],
        messages=messages(operation),
        shapes=shapes(operation, document),
        prose=prose,
    )


def operations_of(document: Json) -> list[Operation]:
    """In the order of the document."""
    return [
        Operation(
            raw["operationId"], method.upper(), path, raw["tags"][0], paragraphs(raw["description"]), _scope(raw), raw
        )
        for path, methods in document["paths"].items()
        for method, raw in methods.items()
    ]


def _scope(raw: Json) -> str:
    return ", ".join(scope for way in raw.get("security", ()) for scopes in way.values() for scope in scopes)


def paragraphs(text: str) -> tuple[str, ...]:
    return tuple(text.split("\n\n"))


def prose(text: str) -> Markup:
    """The Markdown of the document, which is only `code` and **bold**."""
    coded = re.sub(r"`([^`]+)`", r"<code>\1</code>", str(escape(text)))
    return Markup(re.sub(r"\*\*([^*]+)\*\*", r"<strong>\1</strong>", coded))  # noqa: S704 - escaped above


def messages(operation: Operation) -> list[Message]:
    """The request body, where there is one, and each response."""
    rows = list(_contents("", "", operation.raw.get("requestBody", {})))
    for status, answer in operation.raw["responses"].items():
        contents = list(_contents(status, answer["description"], answer))
        rows += contents or [Message(status, answer["description"], "", "", "")]
    return rows


def _contents(status: str, description: str, part: Json) -> Iterator[Message]:
    for media_type, content in part.get("content", {}).items():
        example = content.get("example", "")
        text = example if isinstance(example, str) else json.dumps(example, indent=2, ensure_ascii=False)
        yield Message(status, description, media_type, type_text(content["schema"]), text)


def shapes(operation: Operation, document: Json) -> list[Shape]:
    """The shapes of the body and the responses, each once; the shape of a refusal is the same everywhere and last."""
    schemas: Json = document["components"]["schemas"]
    pending, names = [operation.raw], dict[str, None]()
    while pending:
        for name in _references(pending.pop(0)):
            if name not in names:
                names[name] = None
                pending.append(schemas[name])
    return [_shape(name, schemas[name]) for name in sorted(names, key=lambda name: name.startswith("Problem"))]


def _references(part: object) -> Iterator[str]:
    if isinstance(part, Mapping):
        for key, value in part.items():
            if key == "$ref":
                yield str(value).removeprefix(SHAPES)
            elif key not in ("example", "examples"):
                yield from _references(value)
    elif isinstance(part, list):
        for value in part:
            yield from _references(value)


def _shape(name: str, schema: Json) -> Shape:
    required = schema.get("required", ())
    fields = [
        _field(field, part, {**part, "required": field in required})
        for field, part in schema.get("properties", {}).items()
    ]
    return Shape(name, schema.get("description", ""), fields)


def _field(name: str, schema: Json, raw: Json) -> Field:
    return Field(name, type_text(schema), bool(raw.get("required")), raw.get("description", ""))


def type_text(schema: Json) -> str:
    """A type in a few words: `string or null`, `list of Offer`, `one of a, b`."""
    if "$ref" in schema:
        return str(schema["$ref"]).removeprefix(SHAPES)
    if "enum" in schema:
        return "one of " + ", ".join(json.dumps(word) for word in schema["enum"])
    choices = schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf")
    if choices:
        return " or ".join(dict.fromkeys(type_text(choice) for choice in choices))
    kind = schema.get("type", "any value")
    if kind == "array":
        return f"list of {type_text(schema.get('items', {}))}"
    if kind == "object" and isinstance(schema.get("additionalProperties"), Mapping):
        return f"object of {type_text(schema['additionalProperties'])}"
    return f"{kind} ({schema['format']})" if "format" in schema else str(kind)
