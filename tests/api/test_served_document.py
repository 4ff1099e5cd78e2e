"""The OpenAPI document as the daemon serves it: the committed one, with the scope to read, or public by a setting."""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.api.wire.deps import Services, with_tokens
from supervisor.domain.callers import LOCAL, Scope
from supervisor.services.access.tokens import TokenRequest, create
from supervisor.wiring import settings as wired
from supervisor.wiring.application import open_operations
from tests.services.bed import Bed, Client

COMMITTED = Path(__file__).parents[2] / "openapi" / "openapi.json"


def asked(bed: Bed, flags: Sequence[tuple[str, str]] = ()) -> Services:
    """Services that ask for a token, under these settings."""
    settings = wired.load(dict(flags), {})
    return replace(with_tokens(bed.services), open_operations=open_operations(settings))


def test_it_is_the_committed_document_packed_or_plain(bed: Bed) -> None:
    client = Client(bed.services)
    plain = client.get("/openapi.json", headers={"Accept-Encoding": "identity"})
    packed = client.get("/openapi.json", headers={"Accept-Encoding": "gzip"})
    assert plain.status_code == packed.status_code == 200
    assert plain.content == packed.content == COMMITTED.read_bytes()
    assert packed.headers["content-encoding"] == "gzip"
    assert "content-encoding" not in plain.headers
    assert len(gzip.compress(plain.content)) < 100_000
    known = client.get("/openapi.json", headers={"If-None-Match": plain.headers["etag"]})
    assert (known.status_code, known.content) == (304, b"")
    assert client.get("/openapi.json?x=1").status_code == 422


def test_it_needs_a_token_that_may_read(bed: Bed) -> None:
    services = asked(bed)
    metrics = create(bed.parts, TokenRequest("m", "", frozenset({Scope.METRICS})), LOCAL)["token"]
    reader = create(bed.parts, TokenRequest("r", "", frozenset({Scope.READ})), LOCAL)["token"]
    answers = [
        Client(services).get("/openapi.json", headers={} if token is None else {"Authorization": f"Bearer {token}"})
        for token in (None, metrics, reader)
    ]
    assert [answer.status_code for answer in answers] == [401, 403, 200]


@pytest.mark.parametrize(("value", "status"), [("true", 200), ("false", 401)])
def test_a_setting_shows_it_without_a_token_and_nothing_else(bed: Bed, value: str, status: int) -> None:
    client = Client(asked(bed, [("docs_public", value)]))
    assert client.get("/openapi.json").status_code == status
    assert client.get("/v1/runs").status_code == 401


def test_llms_txt_is_the_committed_page_and_needs_no_token(bed: Bed) -> None:
    response = Client(asked(bed)).get("/llms.txt", headers={"Authorization": ""})
    assert (response.status_code, response.headers["content-type"]) == (200, "text/plain; charset=utf-8")
    assert response.content == (COMMITTED.parents[1] / "docs" / "llms.txt").read_bytes()
    assert Client(asked(bed)).get("/openapi.json", headers={"Authorization": ""}).status_code == 401
