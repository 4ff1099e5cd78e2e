"""Metrics matter most while the database is unavailable: cached tokens stay valid, and all others are refused."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from supervisor.api.wire.deps import with_tokens
from supervisor.domain.callers import Scope
from supervisor.domain.errors import Unauthorized
from supervisor.ports.store import StoreDown
from supervisor.services.access import identity as module
from supervisor.services.access.identity import AWAY_S
from supervisor.services.parts import ask_together
from tests.api.test_metrics import ask
from tests.services.bed import Bed
from tests.services.test_identity import Desk

LATER_S = 10 * AWAY_S


@pytest.fixture
def desk(bed: Bed) -> Desk:
    return Desk(bed)


def test_a_cached_token_counts_however_long_the_database_is_away(desk: Desk) -> None:
    token, other = desk.make("prometheus", scopes=frozenset({Scope.METRICS})), desk.make("other")
    desk.ask(token)
    desk.tokens.away = True
    desk.bed.clock.advance(LATER_S)
    assert desk.identity.identify_soon(f"Bearer {token}", "r-2").actor == "prometheus"
    with pytest.raises(StoreDown):
        desk.identity.identify(f"Bearer {token}", "r-2")
    with pytest.raises(StoreDown):
        desk.identity.identify_soon(f"Bearer {other}", "r-2")
    with pytest.raises(Unauthorized):
        desk.identity.identify_soon("Bearer guessed", "r-2")


def test_a_database_that_hangs_is_not_waited_for(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SOON_S", 0.05)
    token, over = desk.make("prometheus"), threading.Event()
    desk.ask(token)
    desk.bed.clock.advance(LATER_S)
    monkeypatch.setattr(desk.tokens, "find", lambda digest: over.wait(30))
    assert desk.identity.identify_soon(f"Bearer {token}", "r-2").actor == "prometheus"
    over.set()


def test_a_revoked_token_reads_nothing_while_the_database_is_there(desk: Desk) -> None:
    token = desk.make("prometheus")
    desk.ask(token)
    desk.revoke(token)
    for _ in range(2):
        with pytest.raises(Unauthorized):
            desk.identity.identify_soon(f"Bearer {token}", "r-2")
        desk.tokens.away = True  # revoked: then it is not cached any more
        with pytest.raises(StoreDown):
            desk.identity.identify_soon(f"Bearer {token}", "r-2")
        desk.tokens.away = False


def test_over_http_it_is_for_metrics_alone(desk: Desk) -> None:
    header = {"Authorization": f"Bearer {desk.make('admin', scopes=frozenset({Scope.ADMIN}))}"}
    services = with_tokens(replace(desk.bed.services, identity=desk.identity))
    for path in ("/metrics", "/v1/tokens"):
        assert ask(services, "GET", path, headers=header).status_code == 200
        assert ask(services, "GET", path).status_code == 401
    desk.tokens.away = True
    desk.bed.clock.advance(LATER_S)
    assert ask(services, "GET", "/metrics", headers=header).status_code == 200
    assert ask(services, "GET", "/metrics").status_code == 401
    assert ask(services, "GET", "/v1/runs", headers=header).status_code == 503


def test_questions_have_the_callers_context() -> None:
    from supervisor.telemetry import logs as telemetry

    begun = telemetry.begin_request("r-7")
    fields = ask_together({"id": telemetry._REQUEST.get}, 5.0)["id"].value
    telemetry.end_request(begun)
    assert fields == {telemetry.REQUEST_ID: "r-7"}
