"""Tokens over the API: which requests they admit, and the refusals of all others."""

from __future__ import annotations

import logging
import statistics
import time
from dataclasses import replace
from typing import Any

import httpx
import pytest

from supervisor.api.server import ROUTES
from supervisor.api.wire.deps import with_tokens
from supervisor.domain.callers import LOCAL, Caps, Scope, write
from supervisor.ports.store import StoreDown
from supervisor.services.access.tokens import TokenRequest, create
from supervisor.services.runs.submit import SubmitRequest, submit
from tests.services.bed import COMMAND, Bed, Client

ADMIN = frozenset({Scope.ADMIN})


class Door:
    """The bed behind a door that asks."""

    def __init__(self, bed: Bed) -> None:
        self.bed = bed
        self.client = Client(with_tokens(bed.services))
        self.admin = self.token("root", scopes=ADMIN)

    def token(self, name: str = "ci", **wish: Any) -> str:
        return str(create(self.bed.parts, TokenRequest(name, **wish), LOCAL)["token"])

    def ask(self, method: str, path: str, token: str | None = None, **more: Any) -> httpx.Response:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        return self.client.request(method, path, headers=headers, **more)

    def run_of(self, owner: str, run_id: str) -> None:
        submit(self.bed.parts, SubmitRequest(COMMAND, run_id), replace(LOCAL, owner=owner, actor=owner))


@pytest.fixture
def door(bed: Bed) -> Door:
    return Door(bed)


@pytest.fixture
def any_door(any_bed: Bed) -> Door:
    return Door(any_bed)


def test_made_used_listed_revoked(any_door: Door) -> None:
    body = {"name": "ci", "owner": "lab", "scopes": ["runs:read"], "expires_in_s": 3600, "max_active_runs": 2}
    answer = any_door.ask("POST", "/v1/tokens", any_door.admin, json=body)
    assert (answer.status_code, answer.headers["cache-control"]) == (201, "no-store")
    made = answer.json()
    facts = [made[name] for name in ("owner", "scopes", "created_by", "valid")]
    assert facts == ["lab", ["runs:read"], "root", True]
    assert any_door.ask("GET", "/v1/runs", made["token"]).status_code == 200

    listed = any_door.ask("GET", "/v1/tokens", any_door.admin)
    assert made["token"] not in listed.text
    assert {token["name"] for token in listed.json()["tokens"]} == {"ci", "root"}

    for _ in range(2):
        answer = any_door.ask("DELETE", f"/v1/tokens/{made['token_id']}", any_door.admin)
        assert answer.status_code == 200
        assert not answer.json()["valid"]
    assert any_door.ask("GET", "/v1/runs", made["token"]).status_code == 401
    told = any_door.ask("GET", "/v1/events", any_door.admin).json()["events"]
    asked = [(event["kind"], event["actor"]) for event in told if event["kind"].startswith("token_")]
    assert asked == [("token_created", "local"), ("token_created", "root"), ("token_revoked", "root")]


def test_without_a_valid_token_every_route_gives_one_response(door: Door) -> None:
    """All but the few that need none; bodies and parameters are not even looked at."""
    gone = door.token("gone", expires_in_s=1.0)
    door.bed.clock.advance(2.0)
    asked = 0
    for method, path in _doors():
        for token in (None, "nonsense", write(b"\x03" * 32), gone):
            answer = door.ask(method, path, token)
            assert answer.status_code == 401, (method, path)
            assert answer.headers["www-authenticate"] == "Bearer"
            asked += 1
            told = answer.json()
            assert (told["code"], told["meta"], told["errors"]) == ("UNAUTHORIZED", {}, [])
            assert told["detail"] == "This request needs a valid token: Authorization: Bearer sup_…."
    assert asked > 100


def test_what_needs_no_token(door: Door) -> None:
    assert door.ask("GET", "/livez").status_code == 200
    assert door.ask("GET", "/readyz").status_code == 200
    assert door.ask("POST", "/v1/runs/digits-1/heartbeat", content=b"{}").status_code not in (401, 403)


def _doors() -> list[tuple[str, str]]:
    found = []
    for route in ROUTES:
        if route.operation.needs is not None:
            path = route.path.replace("{path:path}", "x")
            filled = path.replace("{", "").replace("}", "")
            found += [(method, filled) for method in sorted(route.methods - {"HEAD"})]
    return found


def test_a_token_in_the_address_or_twice_as_long_is_no_token(door: Door) -> None:
    for query in (f"token={door.admin}", f"access_token={door.admin}", f"authorization=Bearer%20{door.admin}"):
        assert door.ask("GET", f"/v1/runs?{query}").status_code == 401
        assert door.ask("GET", f"/v1/runs?{query}", door.admin).status_code == 422
    for wrong in (door.admin * 2, door.admin + "=", door.admin[:-1], door.admin.lower()):
        assert door.ask("GET", "/v1/runs", wrong).status_code == 401
    cookies = {"Cookie": f"token={door.admin}"}
    assert door.client.get("/v1/runs", headers=cookies).status_code == 401


OPENS = {
    Scope.READ: {("GET", "/v1/runs")},
    Scope.WRITE: {("POST", "/v1/runs")},
    Scope.METRICS: set(),
    Scope.ADMIN: {("GET", "/v1/runs"), ("POST", "/v1/runs"), ("GET", "/v1/tokens"), ("GET", "/v1/machines")},
}


def test_a_scope_allows_its_own_routes_only(door: Door) -> None:
    for scope, may in OPENS.items():
        token = door.token(scopes=frozenset({scope}))
        for method, path in sorted(OPENS[Scope.ADMIN]):
            body = {"json": {"spec": COMMAND}} if method == "POST" else {}
            answer = door.ask(method, path, token, **body)
            if (method, path) in may:
                assert answer.is_success, answer.text
            else:
                assert (answer.status_code, answer.json()["code"]) == (403, "SCOPE_MISSING")
                assert answer.json()["meta"]["needed"] in answer.json()["detail"]


def test_a_run_of_another_owner_is_like_an_unknown_run(any_door: Door) -> None:
    any_door.run_of("alice", "hers-1")
    bob = any_door.token("bob", owner="bob")
    for method, path in [
        ("GET", ""), ("GET", "/events"), ("GET", "/attempts"), ("GET", "/cost"), ("POST", "/stop"), ("GET", "/files"),
    ]:  # fmt: skip
        hers = any_door.ask(method, f"/v1/runs/hers-1{path}", bob)
        none = any_door.ask(method, f"/v1/runs/none-1{path}", bob)
        assert (hers.status_code, none.status_code) == (404, 404)
        assert _without_names(hers) == _without_names(none)
    assert any_door.ask("GET", "/v1/runs/hers-1", any_door.admin).status_code == 200
    assert any_door.ask("GET", "/v1/runs", bob).json()["runs"] == []


def _without_names(answer: httpx.Response) -> dict[str, Any]:
    told = answer.json()
    text = {name: str(value).replace("hers-1", "X").replace("none-1", "X") for name, value in told.items()}
    return text | {"request_id": "", "headers": str(sorted(set(answer.headers)))}


def test_a_run_of_another_owner_takes_as_long_as_an_unknown_run(door: Door) -> None:
    door.run_of("alice", "hers-1")
    bob = door.token("bob", owner="bob")

    def took_s(run_id: str) -> float:
        began = time.perf_counter()
        door.ask("GET", f"/v1/runs/{run_id}", bob)
        return time.perf_counter() - began

    def ratio() -> float:
        pairs = [(took_s("hers-1"), took_s("none-1")) for _ in range(40)]
        hers, none = (statistics.median(times) for times in zip(*pairs, strict=True))
        return hers / none

    # A difference of ours is there each time, one of a busy computer is not.
    assert any(0.5 < ratio() < 2.0 for _ in range(5))


WRONG_WISHES: list[dict[str, Any]] = [
        {}, {"name": ""}, {"name": "a b"}, {"name": "x" * 64}, {"name": "<b>"}, {"name": 1}, {"name": "a\x00"},
        {"name": "supervisor"}, {"name": "ok", "owner": "@x"}, {"name": "ok", "scopes": []},
        {"name": "ok", "scopes": ["runs:read", "runs:read"]}, {"name": "ok", "scopes": ["root"]},
        {"name": "ok", "scopes": "admin"}, {"name": "ok", "expires_in_s": 0}, {"name": "ok", "expires_in_s": -5},
        {"name": "ok", "expires_in_s": 1e300}, {"name": "ok", "max_active_runs": 0},
        {"name": "ok", "max_active_runs": True}, {"name": "ok", "token": "sup_chosen"}, {"name": "ok", "id": "tok-1"},
]  # fmt: skip


def test_an_invalid_request_makes_no_token(door: Door) -> None:
    for body in WRONG_WISHES:
        answer = door.ask("POST", "/v1/tokens", door.admin, json=body)
        assert (answer.status_code, answer.json()["code"]) == (422, "INVALID_REQUEST"), body
        assert "sup_chosen" not in answer.text
    assert len(door.ask("GET", "/v1/tokens", door.admin).json()["tokens"]) == 1


def test_an_unknown_token_cannot_be_revoked(door: Door) -> None:
    for token_id in ("tok-000000000000", "x", "%00", "..%2f", "tok-" + "0" * 500):
        assert door.ask("DELETE", f"/v1/tokens/{token_id}", door.admin).status_code == 404


def test_no_token_is_ever_written_to_the_log(door: Door, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    strange = write(b"\x09" * 32)
    for token in (door.admin, strange, strange[:-1]):
        door.ask("GET", "/v1/runs", token)
        door.ask("POST", "/v1/tokens", token, json={"name": "x"})
        door.ask("DELETE", f"/v1/tokens/{token}", door.admin)
    assert caplog.text
    lines = "\n".join(str(vars(record)) for record in caplog.records if record.name.startswith("supervisor"))
    for token in (door.admin, strange):
        assert token[4:40] not in lines


def test_an_unavailable_database_admits_no_new_token(door: Door, monkeypatch: pytest.MonkeyPatch) -> None:
    known, new = door.token("known"), door.token("new")
    assert door.ask("GET", "/v1/meta", known).status_code == 200

    def away(digest: str) -> None:
        raise StoreDown("away")

    monkeypatch.setattr(door.bed.store.tokens, "find", away)
    door.bed.clock.advance(10)
    assert door.ask("GET", "/v1/meta", known).status_code == 200
    refused = door.ask("GET", "/v1/meta", new)
    assert (refused.status_code, refused.json()["code"]) == (503, "UNAVAILABLE")
    assert refused.headers["retry-after"]
    assert door.ask("GET", "/v1/meta", "mistyped").status_code == 401


def test_whoami_shows_what_the_token_stands_for(bed: Bed) -> None:
    made = create(bed.parts, TokenRequest("ci", "vision", frozenset({Scope.READ}), 3600.0, 5), LOCAL)
    asker = Client(with_tokens(bed.services)).get("/v1/whoami", headers={"Authorization": f"Bearer {made['token']}"})
    assert asker.json() == {
        "name": "ci",
        "owner": "vision",
        "scopes": ["runs:read"],
        "token_id": made["token_id"],
        "expires_at": made["expires_at"],
        "max_active_runs": 5,
        "max_usd_per_day": None,
        "max_usd_per_run": None,
        "plans_only": False,
        "counted_usd": None,
    }
    assert Client(with_tokens(bed.services)).get("/v1/whoami").status_code == 401
    nobody_asked = Client(bed.services).get("/v1/whoami").json()
    assert (nobody_asked["name"], nobody_asked["token_id"]) == ("local", None)


def test_the_caps_of_a_token_are_kept_at_the_door(door: Door) -> None:
    """Each code with its status: one plan starts one run, and money is refused by run, by day and without a bound."""
    member = frozenset({Scope.READ, Scope.WRITE})
    bound = door.token("bound", scopes=member, caps=Caps(usd_per_day=3.0, usd_per_run=2.0, plans_only=True))
    capped = door.token("capped", scopes=member, caps=Caps(usd_per_day=3.0, usd_per_run=2.0))

    def submit_as(token: str, run_id: str, budget: float | None = 2.0, **more: Any) -> tuple[int, str]:
        limits = {} if budget is None else {"limits": {"budget_usd": budget}}
        body = {"run_id": run_id, "spec": {**COMMAND, **limits, **more.pop("spec", {})}, **more}
        answer = door.ask("POST", "/v1/runs", token, json=body)
        return answer.status_code, answer.json().get("code", "")

    assert submit_as(bound, "one") == (409, "PLAN_REQUIRED")
    body = {"run_id": "one", "spec": {**COMMAND, "limits": {"budget_usd": 2.0}}}
    plan_id = door.ask("POST", "/v1/runs?validate_only=true", bound, json=body).json()["plan_id"]
    assert submit_as(bound, "two", plan_id=plan_id) == (409, "PLAN_REFUSED")
    offered = door.bed.provider.offered
    door.bed.provider.offered = tuple(replace(offer, price_usd_per_h=9.0) for offer in offered)
    assert submit_as(bound, "one", plan_id=plan_id) == (409, "PLAN_PRICE_ABOVE")
    door.bed.provider.offered = offered
    assert submit_as(bound, "one", plan_id=plan_id) == (201, "")
    assert submit_as(capped, "two", 2.5) == (409, "OVER_RUN_CAP")
    assert submit_as(capped, "two", spec={"on_failure": "keep"}) == (422, "SPEND_UNBOUNDED")
    assert submit_as(capped, "two") == (201, "")
    assert submit_as(capped, "three") == (409, "OVER_DAY_CAP")
    assert door.ask("GET", "/v1/whoami", capped).json()["counted_usd"] == 2.0
