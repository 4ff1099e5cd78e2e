"""Our own rules for the document, beside those of OpenAPI itself, which `make check-openapi` checks."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from supervisor.api.document.build import operations
from supervisor.api.errors import STATUS
from supervisor.api.server import create_app
from tests.api.recorder import COMMITTED

Json = dict[str, Any]
# Read, not made: each worker collects this file, and test_document.py compares the two.
TEXT = COMMITTED.read_text(encoding="utf-8")
DOCUMENT: Json = json.loads(TEXT)
NEEDED = {
    name: "pass" if operation.by_pass else operation.needs for name, operation in operations(create_app(None)).items()
}
CHANGING = ("post", "put", "patch", "delete")


def problems(told: Json) -> Iterator[str]:
    """Every rule that an operation breaks."""
    described = {tag["name"] for tag in told["tags"] if tag["description"]}
    for path, methods in told["paths"].items():
        for method, operation in methods.items():
            at = f"{method.upper()} {path}"
            yield from (f"{at}: {line}" for line in (*words(operation, described), *refusals(method, operation)))


def words(operation: Json, described: set[str]) -> Iterator[str]:
    if not re.fullmatch(r"[a-z]+(_[a-z]+)*", operation["operationId"]):
        yield "operationId"
    if len(operation["tags"]) != 1 or operation["tags"][0] not in described:
        yield "one tag that is described"
    if not operation["summary"] or not re.search(r"[.`]$", operation["description"]):
        yield "a summary and sentences"
    for parameter in operation["parameters"]:
        if not parameter.get("description"):
            yield f"parameter {parameter['name']} without words"
    for status, answer in operation["responses"].items():
        if not answer["description"]:
            yield f"answer {status} without words"
        if "X-Request-ID" not in answer["headers"]:
            yield f"answer {status} without its request id"


def refusals(method: str, operation: Json) -> Iterator[str]:
    """What each refusal is called, and that those are told which every operation of its kind may answer with."""
    told = operation["responses"]
    for status, answer in told.items():
        if status.startswith("4"):
            codes = answer["description"].split()
            if any(STATUS.get(code) != int(status) for code in codes):
                yield f"answer {status} names {', '.join(codes)}"
            if method != "head" and "application/problem+json" not in answer["content"]:
                yield f"answer {status} is no problem"
    scope = NEEDED.get(operation["operationId"])
    wanted_security = {None: [], "pass": [{"pass": []}]}.get(scope, [{"token": [str(scope)]}])
    if operation["security"] != wanted_security:
        yield "needs another scope"
    wanted = {"400", "422", *(("401", "403") if scope is not None else ())}
    wanted |= {"403"} if method in CHANGING else set()
    wanted |= {"413", "415"} if "requestBody" in operation else set()
    if missing := wanted - set(told):
        yield f"answers {', '.join(sorted(missing))} are missing"


def test_the_document_keeps_the_rules() -> None:
    assert list(problems(DOCUMENT)) == []


def test_the_whole_is_described() -> None:
    assert "must accept unknown words" in DOCUMENT["info"]["description"]
    assert DOCUMENT["servers"][0]["url"] == "http://127.0.0.1:8787"
    assert DOCUMENT["components"]["securitySchemes"]["token"]["scheme"] == "bearer"
    names = [operation["operationId"] for path in DOCUMENT["paths"].values() for operation in path.values()]
    assert len(names) == len(set(names))


BROKEN: dict[str, Callable[[Json], object]] = {
    "operationId": lambda o: o.update(operationId="Show-Run"),
    "one tag": lambda o: o.update(tags=["unheard"]),
    "a summary": lambda o: o.update(description="Show one run"),
    "parameter run_id": lambda o: o["parameters"][0].pop("description"),
    "answer 200 without words": lambda o: o["responses"]["200"].update(description=""),
    "answer 404 without its request id": lambda o: o["responses"]["404"]["headers"].clear(),
    "answer 404 names": lambda o: o["responses"]["404"].update(description="CONFLICT"),
    "answer 404 is no problem": lambda o: o["responses"]["404"]["content"].clear(),
    "needs another scope": lambda o: o.update(security=[]),
    "answers 401": lambda o: o["responses"].pop("401"),
}


@pytest.mark.parametrize("rule", BROKEN)
def test_a_rule_that_is_broken_is_found(rule: str) -> None:
    told = json.loads(TEXT)
    operation = told["paths"]["/v1/runs/{run_id}"]["get"]
    BROKEN[rule](operation)
    at = "GET /v1/runs/{run_id}: "
    assert [line for line in problems(told) if line.startswith(at + rule)]
