"""openapi/openapi.json is what the routes say."""

from __future__ import annotations

import json

from supervisor.api.document.build import document, name_of
from supervisor.api.document.build import operations as operations_of
from supervisor.api.errors import STATUS
from supervisor.api.server import create_app
from supervisor.domain import errors
from tests.api.recorder import COMMITTED

OPERATIONS = operations_of(create_app(None))
TEXT = COMMITTED.read_text(encoding="utf-8")


def test_the_committed_document_is_the_one_of_the_code() -> None:
    assert document(create_app(None)) == TEXT, "run `make openapi`"


def test_every_operation_is_documented_and_every_reference_exists() -> None:
    told = json.loads(TEXT)
    operations = [operation for path in told["paths"].values() for operation in path.values()]
    assert sorted(operation["operationId"] for operation in operations) == sorted(OPERATIONS)
    for operation in operations:
        assert operation["description"]
        assert operation["tags"]
        assert any(status.startswith("4") for status in operation["responses"])
    names = {part.rpartition("/")[2] for part in _references(told)}
    assert names <= set(told["components"]["schemas"])


def test_bodies_are_closed_and_responses_may_grow() -> None:
    """A beat is the one body in which what is unknown is ignored: its agent may be newer."""
    models = json.loads(TEXT)["components"]["schemas"]
    closed = {name for name, model in models.items() if model.get("additionalProperties") is False}
    bodies = {operation.body.__name__ for operation in OPERATIONS.values() if operation.body is not None}
    answers = {name_of(shape) for operation in OPERATIONS.values() for shape in operation.responses.values()}
    assert answers <= set(models)
    assert bodies - closed == {"HeartbeatBody"}
    assert not answers & closed


def test_every_code_has_its_status() -> None:
    kinds, codes = [errors.SpotError], set()
    while kinds:
        kind = kinds.pop()
        codes.add(kind.code)
        kinds += kind.__subclasses__()
    # These end the process before it serves, or are bugs of ours, or belong to a command that asks no supervisor.
    before = {"DATA_DIR_HELD", "DATABASE_NEW", "DATABASE_OTHER", "SETTINGS_REFUSED"}
    bugs = {"ILLEGAL_MOVE"}
    elsewhere = {"IMAGE_BUILD_FAILED", "IMAGE_BUILD_REFUSED"}
    assert codes - set(STATUS) == before | bugs | elsewhere


def _references(part: object) -> set[str]:
    if isinstance(part, dict):
        found = {part["$ref"]} if isinstance(part.get("$ref"), str) else set()
        return found.union(*map(_references, part.values()))
    return set().union(*map(_references, part)) if isinstance(part, list) else set()
