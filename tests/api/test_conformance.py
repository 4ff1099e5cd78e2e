"""What the document says is what the API does: schemathesis with all its checks finds nothing.

`make test` asks each operation with twelve examples, `make campaign` with a hundred, `make fuzz` with a thousand and
with the boundary values of every field. An operation that takes nothing is asked once.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import pytest
from hypothesis import settings
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.api.conformance import DOCUMENT, Found, app_of, examine, furnish, guarded
from tests.properties import examples
from tests.services.bed import Bed

PARTS = 4
LONG = 500  # from so many examples on it is a run by itself


def most() -> int:
    return settings().max_examples if settings.get_current_profile_name() == "fuzz" else examples(12, 100)


def names_of(part: int) -> list[str]:
    """All operations of some addresses: an address must know all its methods."""
    paths = sorted(json.loads(DOCUMENT)["paths"].items())[part::PARTS]
    return [told["operationId"] for _, methods in paths for told in methods.values()]


def told(found: Found) -> str:
    """What was found, to be read by a person; "" = nothing."""
    lines = [f"{name}: {check}: {text}" for (name, check), text in found.failures.items()]
    return "\n\n".join([*lines, *found.errors])


@pytest.mark.parametrize("part", range(PARTS))
def test_every_operation_does_what_it_says(bed: Bed, part: int) -> None:
    furnish(bed)
    services, token = guarded(bed)
    phases = ("examples", "fuzzing", *(("coverage",) if most() >= LONG else ()))
    names = names_of(part)
    found = examine(app_of(services), token, phases, most(), names)
    assert not told(found), told(found)
    assert found.calls.keys() == set(names)
    assert found.calls.total() > most() * len(names) / 2


def test_chains_of_requests(bed: Bed) -> None:
    furnish(bed)
    services, token = guarded(bed)
    app, chains, seed = app_of(services), 0, 0
    while chains < max(most() // 4, 5):
        seed += 1
        found = examine(app, token, ("stateful",), most(), seed=seed)
        assert not told(found), told(found)
        assert found.chains > 0
        chains += found.chains


class Answering:
    """The application, with another answer to one operation."""

    def __init__(self, app: ASGIApp, path: str, answer: JSONResponse) -> None:
        self._app, self._path, self._answer = app, path, answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = scope["type"] == "http" and Request(scope).url.path == self._path
        await (self._answer if asked else self._app)(scope, receive, send)


def seen(bed: Bed, app: ASGIApp, token: str, names: Sequence[str]) -> set[str]:
    found = examine(app, token, ("examples", "fuzzing"), 10, names)
    return {check for _, check in found.failures}


def test_an_api_that_breaks_its_document_is_caught(bed: Bed) -> None:
    """Broken variants: nobody is asked who he is; an answer is not what it should be; an unforeseen error."""
    services, token = guarded(bed)
    app = app_of(services)
    assert seen(bed, app, token, ["show_meta"]) == set()
    assert "ignored_auth" in seen(bed, app_of(bed.services), token, ["show_meta"])
    bare = Answering(app, "/v1/meta", JSONResponse({"version": 1}))
    assert "response_schema_conformance" in seen(bed, bare, token, ["show_meta"])
    broken = Answering(app, "/v1/meta", JSONResponse({}, 500))
    assert "not_a_server_error" in seen(bed, broken, token, ["show_meta"])
    strange = Answering(app, "/v1/meta", JSONResponse({}, 418))
    assert "status_code_conformance" in seen(bed, strange, token, ["show_meta"])
