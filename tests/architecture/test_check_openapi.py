"""What breaks a client is found: each rule on a small document, changed in one place."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tools.checks.openapi import breaking, check, contract, mark, release

Json = dict[str, Any]
RUN = {
    "type": "object",
    "required": ["id", "cost"],
    "properties": {
        "id": {"type": "string"},
        "cost": {"anyOf": [{"type": "number"}, {"type": "null"}]},
        "description": {"type": "string", "description": "A field that is named like a word of OpenAPI."},
        "parts": {"type": "array", "items": {"$ref": "#/components/schemas/Run"}},
    },
}
BODY = {
    "type": "object",
    "additionalProperties": False,
    "required": ["command"],
    "properties": {
        "command": {"type": "string", "maxLength": 100},
        "after": {"type": "string", "enum": ["release", "keep"], "default": "release"},
        "steps": {"anyOf": [{"type": "number", "minimum": 0}, {"type": "null"}]},
        "limits": {"type": "object", "default": {"cost": None}},
    },
}
OPERATION = {
    "operationId": "submit",
    "security": [{"token": ["runs:write"]}],
    "parameters": [{"in": "query", "name": "dry", "required": False, "schema": {"type": "boolean"}}],
    "requestBody": {
        "required": True,
        "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Body"}}},
    },
    "responses": {
        "201": {
            "description": "Created.",
            "headers": {"Location": {"schema": {"type": "string"}}},
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Run"}}},
        }
    },
}
SMALL = {
    "openapi": "3.1.0",
    "info": {"title": "small", "version": "1"},
    "paths": {"/v1/runs": {"post": OPERATION}},
    "components": {
        "schemas": {"Run": RUN, "Body": BODY},
        "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
    },
}


def changed(change: Callable[[Json, Json, Json], object]) -> list[str]:
    """The problems after `change` of the operation, the body and the response."""
    now = copy.deepcopy(SMALL)
    operation, schemas = now["paths"]["/v1/runs"]["post"], now["components"]["schemas"]
    change(operation, schemas["Body"], schemas["Run"])
    return breaking(contract(SMALL), now)


BREAKING: dict[str, Callable[[Json, Json, Json], object]] = {
    "operationId": lambda o, b, a: o.update(operationId="create"),
    "scope": lambda o, b, a: o.update(security=[{"token": ["admin"]}]),
    "parameter dry is gone": lambda o, b, a: o["parameters"].clear(),
    "parameter dry is now required": lambda o, b, a: o["parameters"][0].update(required=True),
    "parameter key is now required": lambda o, b, a: o["parameters"].append(
        {"in": "header", "name": "key", "required": True, "schema": {}}
    ),
    "parameter dry: the type": lambda o, b, a: o["parameters"][0].update(schema={"type": "integer"}),
    "the response 201 is gone": lambda o, b, a: o["responses"].clear(),
    "no longer carries Location": lambda o, b, a: o["responses"]["201"]["headers"].clear(),
    "is no longer application/json": lambda o, b, a: o["responses"]["201"].pop("content"),
    "body of application/json": lambda o, b, a: o.pop("requestBody"),
    "after: no longer accepted: keep": lambda o, b, a: b["properties"]["after"]["enum"].remove("keep"),
    "after: the meaning": lambda o, b, a: b["properties"]["after"].update(default="keep"),
    "limits: the meaning": lambda o, b, a: b["properties"]["limits"].update(default={"cost": 1}),
    "after: is now required": lambda o, b, a: b["required"].append("after"),
    "new: is now required": lambda o, b, a: (b["properties"].update(new={}), b["required"].append("new")),
    "steps: is no longer accepted": lambda o, b, a: b["properties"].pop("steps"),
    "command: maxLength": lambda o, b, a: b["properties"]["command"].update(maxLength=99),
    "command: minLength": lambda o, b, a: b["properties"]["command"].update(minLength=1),
    "command: pattern": lambda o, b, a: b["properties"]["command"].update(pattern="^a"),
    "command: only certain words": lambda o, b, a: b["properties"]["command"].update(enum=["a"]),
    "steps: the type null": lambda o, b, a: b["properties"]["steps"]["anyOf"].pop(),
    "steps: minimum": lambda o, b, a: b["properties"]["steps"]["anyOf"][0].update(minimum=1),
    "steps: the type number": lambda o, b, a: b["properties"]["steps"]["anyOf"][0].update(type="integer"),
    "cost: is gone": lambda o, b, a: (a["properties"].pop("cost"), a["required"].remove("cost")),
    "cost: may now be left out": lambda o, b, a: a["required"].remove("cost"),
    "id: may now be null": lambda o, b, a: a["properties"]["id"].update(type=["string", "null"]),
    "cost: may now be string": lambda o, b, a: a["properties"]["cost"]["anyOf"].append({"type": "string"}),
    "id: the format": lambda o, b, a: a["properties"]["id"].update(format="uuid"),
    "parts: may now be object": lambda o, b, a: a["properties"]["parts"].update(type="object"),
    "description: is gone": lambda o, b, a: a["properties"].pop("description"),
}


@pytest.mark.parametrize("problem", BREAKING)
def test_what_breaks_a_client_is_found(problem: str) -> None:
    complaints = changed(BREAKING[problem])
    assert any(problem in line for line in complaints), complaints
    assert all(line.startswith("POST /v1/runs: ") for line in complaints)


HARMLESS: dict[str, Callable[[Json, Json, Json], object]] = {
    "nothing": lambda o, b, a: None,
    "a field more in the answer": lambda o, b, a: a["properties"].update(more={"type": "string"}),
    "a field more that may be left out": lambda o, b, a: b["properties"].update(more={"type": "string"}),
    "a field more in an object that may be left out": lambda o, b, a: b["properties"]["limits"].update(
        default={"cost": None, "time": None}
    ),
    "a word more": lambda o, b, a: b["properties"]["after"]["enum"].append("ask"),
    "a wider bound": lambda o, b, a: b["properties"]["command"].update(maxLength=101),
    "a type more in a body": lambda o, b, a: b["properties"]["command"].update(type=["string", "null"]),
    "a type less in an answer": lambda o, b, a: a["properties"]["cost"]["anyOf"].pop(),
    "a parameter more": lambda o, b, a: o["parameters"].append({"in": "query", "name": "q", "schema": {}}),
    "a refusal more": lambda o, b, a: o["responses"].update({"409": {"description": "CONFLICT"}}),
    "other words": lambda o, b, a: o.update(summary="Submit", description="Submits.", tags=["runs"]),
}


@pytest.mark.parametrize("change", HARMLESS)
def test_what_clients_must_bear_is_not_called_breaking(change: str) -> None:
    assert changed(HARMLESS[change]) == []


def test_an_address_and_a_method_that_are_gone_are_found() -> None:
    assert breaking(SMALL, {**SMALL, "paths": {}}) == ["POST /v1/runs: is gone"]
    assert breaking(SMALL, {**SMALL, "paths": {"/v1/runs": {"get": OPERATION}}}) == ["POST /v1/runs: is gone"]


def house(folder: Path, document: Json) -> Path:
    (folder / "openapi").mkdir()
    (folder / "openapi" / "openapi.json").write_text(json.dumps(document), encoding="utf-8")
    release(folder)
    released = (folder / "openapi" / "released.json").read_text(encoding="utf-8")
    (folder / "CHANGELOG.md").write_text(f"- First ({mark(released)}).", encoding="utf-8")
    return folder


def test_a_release_counts_only_with_a_line_in_the_changelog(tmp_path: Path) -> None:
    root = house(tmp_path, SMALL)
    assert check(root) == []
    (root / "openapi" / "openapi.json").write_text(json.dumps({**SMALL, "paths": {}}), encoding="utf-8")
    assert check(root) == ["openapi/openapi.json: POST /v1/runs: is gone"]
    release(root)
    [problem] = check(root)
    assert problem.startswith("CHANGELOG.md: no line describes the change")


def test_a_document_that_is_not_openapi_is_told(tmp_path: Path) -> None:
    root = house(tmp_path, SMALL)
    broken = copy.deepcopy(SMALL)
    del broken["paths"]["/v1/runs"]["post"]["responses"]["201"]["description"]
    (root / "openapi" / "openapi.json").write_text(json.dumps(broken), encoding="utf-8")
    assert any("description" in problem for problem in check(root))
