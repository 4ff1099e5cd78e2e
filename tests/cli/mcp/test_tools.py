"""The table of the tools against the API's document: every request exists, its arguments too, and what only reads only
reads."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.cli.mcp.serving import offered
from supervisor.cli.mcp.tools import HEADERS, READ, SCHEMAS, TOOLS, WRITE, Tool
from tools.write_openapi import schemas

ROOT = Path(__file__).parents[3]
DOCUMENT = json.loads((ROOT / "openapi/openapi.json").read_text(encoding="utf-8"))
# POST with validate_only, and the comparison of forecasts: neither stores anything.
POSTS_THAT_READ = {"plan_run", "compare_plans"}


def problems(tools: dict[str, Tool], document: dict) -> list[str]:
    """Of requests that the API does not have, and of tools that claim to read and change something."""
    found = []
    for name, tool in tools.items():
        if not tool.operation:
            continue
        operations = [tool.operation, *(f"GET {path}" for path in tool.also.values())]
        for operation in operations:
            method, _, path = operation.partition(" ")
            if method.lower() not in document["paths"].get(path, {}):
                found.append(f"{name}: there is no {operation}")
        if not tool.write and not tool.operation.startswith("GET ") and name not in POSTS_THAT_READ:
            found.append(f"{name}: {tool.operation} changes something")
    return found


def test_each_tool_is_a_request_of_the_api() -> None:
    assert problems(TOOLS, DOCUMENT) == []
    assert READ.keys().isdisjoint(WRITE)
    assert [name for name, tool in TOOLS.items() if tool.write] == list(WRITE)


def test_a_request_that_does_not_exist_and_a_write_among_the_reads_would_be_found() -> None:
    gone = replace(READ["show_run"], operation="GET /v1/walks/{run_id}")
    stops = replace(WRITE["stop_run"], write=False)
    assert problems({"show_run": gone, "stop_run": stops}, DOCUMENT) == [
        "show_run: there is no GET /v1/walks/{run_id}",
        "stop_run: POST /v1/runs/{run_id}/stop changes something",
    ]


def test_the_schemas_are_those_of_the_api() -> None:
    assert SCHEMAS.read_text(encoding="utf-8") == schemas(DOCUMENT), "run: make openapi"


def test_an_argument_that_the_api_does_not_take_has_no_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TOOLS, "stop_run", replace(WRITE["stop_run"], takes=("run_id!", "gently")))
    with pytest.raises(KeyError):
        schemas(DOCUMENT)


def test_without_write_no_tool_is_offered_that_changes_something() -> None:
    assert [name for name, tool in offered(write=False).items() if tool.write] == []
    assert offered(write=True).keys() - offered(write=False).keys() == WRITE.keys()


def test_a_submit_and_a_plan_of_it_take_the_same_arguments() -> None:
    """Else a plan could not be submitted."""
    assert TOOLS["submit_run"].arguments.keys() - {"plan_id", *HEADERS} == TOOLS["plan_run"].arguments.keys()


@pytest.mark.parametrize("name", WRITE)
def test_a_tool_that_changes_something_says_what_it_costs_or_does(name: str) -> None:
    text = WRITE[name].text
    assert any(word in text for word in ("COSTS MONEY", "costs", "for good")), text
