"""The entry: sign-in, the origin of a request, what every page carries, errors as pages."""

from __future__ import annotations

import pytest

from supervisor.api.wire.deps import with_tokens
from supervisor.domain.callers import LOCAL, Scope
from supervisor.services.access.tokens import TokenRequest, create
from tests.dashboard.looking import ORIGIN, Looking
from tests.services.bed import Bed


@pytest.fixture
def asked(bed: Bed) -> tuple[Looking, str]:
    """Pages that want a token, and an administrator's token."""
    wish = TokenRequest(name="eve", owner="eve", scopes=frozenset({Scope.ADMIN}))
    return Looking(with_tokens(bed.services)), create(bed.parts, wish, LOCAL)["token"]


def test_signing_in_leads_back_to_the_page_and_leaves_the_token_in_a_cookie(asked: tuple[Looking, str]) -> None:
    looking, token = asked
    answer = looking.get("/ui/runs?status=running")
    assert answer.status_code == 303
    assert answer.headers["location"] == "/ui/sign-in?next=/ui/runs%3Fstatus%3Drunning"
    answer = looking.post("/ui/sign-in", {"token": token, "next": "/ui/runs?status=running"})
    assert (answer.status_code, answer.headers["location"]) == (303, "/ui/runs?status=running")
    kept = answer.headers["set-cookie"]
    assert kept.startswith("spot-8787=")
    assert all(part in kept for part in ("HttpOnly", "SameSite=strict", "Path=/"))
    looking.page("/ui/runs")
    assert looking.post("/ui/sign-out").status_code == 303
    assert looking.get("/ui/runs").status_code == 303


@pytest.mark.parametrize("headers", [{"Origin": "http://evil.example"}, {"Origin": "null"}, {"Origin": ""}])
def test_a_form_that_is_not_ours_changes_nothing(asked: tuple[Looking, str], headers: dict[str, str]) -> None:
    looking, token = asked
    answer = looking.request("POST", "/ui/sign-in", data={"token": token}, headers=headers)
    assert answer.status_code == 403
    assert "set-cookie" not in answer.headers
    assert ORIGIN not in answer.text
