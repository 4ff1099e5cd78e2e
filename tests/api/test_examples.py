"""Every operation of the document has examples, and they are today's responses."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from supervisor.api.document.build import STORED
from tests.api.recorder import COMMITTED, same
from tests.api.scenes import record

Json = dict[str, Any]
# Read, not made: each worker collects this file, and test_document.py compares the two.
DOCUMENT: Json = json.loads(COMMITTED.read_text(encoding="utf-8"))
OPERATIONS: dict[str, tuple[str, Json]] = {
    told["operationId"]: (method, told) for methods in DOCUMENT["paths"].values() for method, told in methods.items()
}
UNHURRIED = {"doctor"}  # looks at this computer: which lines there are is not ours to say


def contents(told: Json) -> Iterator[tuple[str, Json]]:
    """(where, what is sent) of the body and of every answer."""
    for media_type, content in told.get("requestBody", {}).get("content", {}).items():
        yield f"body {media_type}", content
    for status, answer in told["responses"].items():
        for media_type, content in answer.get("content", {}).items():
            yield f"{status} {media_type}", content


def missing(name: str, method: str, told: Json) -> list[str]:
    """What should have an example and has none. HEAD has no bodies; of bytes no example is needed."""
    if method == "head":
        return []
    found = [
        f"{name}: {where}"
        for where, content in contents(told)
        if where.startswith(("body", "2")) and content["schema"].get("format") != "binary" and "example" not in content
    ]
    refused = any("example" in content for where, content in contents(told) if where.startswith("4"))
    return found if refused else [*found, f"{name}: no refusal"]


def wrong(told: Json) -> list[str]:
    """Examples that break their schema."""
    found = []
    for where, content in contents(told):
        if "example" in content:
            schema = {**content["schema"], "components": DOCUMENT["components"]}
            errors = Draft202012Validator(schema).iter_errors(content["example"])
            found += [f"{where}: {error.json_path} {error.message[:200]}" for error in errors]
    return found


def test_every_operation_has_a_request_its_responses_and_a_refusal() -> None:
    assert [line for name, (method, told) in OPERATIONS.items() for line in missing(name, method, told)] == []


@pytest.mark.parametrize("name", sorted(OPERATIONS))
def test_examples_follow_their_schemas(name: str) -> None:
    assert wrong(OPERATIONS[name][1]) == []


def test_an_example_that_breaks_its_schema_or_is_missing_would_be_seen() -> None:
    method, told = copy.deepcopy(OPERATIONS["show_run"])
    content = told["responses"]["200"]["content"]["application/json"]
    content["example"]["version"] = "one"
    assert [line.split()[2] for line in wrong(told)] == ["$.version"]
    del content["example"]
    assert missing("show_run", method, told) == ["show_run: 200 application/json"]


def test_the_stored_examples_are_todays_responses() -> None:
    stored, now = json.loads(STORED.read_text(encoding="utf-8")), record()
    assert stored.keys() == now.keys(), "run `make openapi`"
    assert [name for name in now if name not in UNHURRIED and not same(stored[name], now[name])] == []


def test_a_response_that_has_gained_or_lost_a_field_would_be_seen() -> None:
    old = {"runs": [{"id": "a", "cost": None}], "next": None}
    assert same(old, {"runs": [{"id": "b", "cost": 2}, {"id": "c", "cost": 2}], "next": "x"})
    assert not same(old, {"runs": [{"id": "b", "cost": 2, "more": 1}], "next": "x"})
    assert not same(old, {"runs": [{"id": "b"}], "next": "x"})
    assert not same(old, {"runs": [{"id": 1, "cost": None}], "next": "x"})


def test_examples_name_no_strange_hosts_and_no_keys() -> None:
    text = STORED.read_text(encoding="utf-8")
    hosts = set(re.findall(r"(?:https?|gs)://([^/\"\s]+)", text))
    assert {host for host in hosts if not host.startswith("127.0.0.1")} <= {
        "my-bucket", "old-bucket", "example.com", "hooks.example.com",
    }  # fmt: skip
    assert re.findall(r"\b(?:sup|whsec)_[A-Za-z0-9+/=_-]{24,}", text) == []
    assert re.findall(r"\b(?:ticket|pass)_[a-z0-9._-]+_[0-9a-f]{24,}", text) == []
