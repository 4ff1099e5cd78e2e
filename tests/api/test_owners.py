"""Two owners with tokens and an operator: no list shows an owner the runs of the other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import httpx
import pytest

from supervisor.domain.callers import NO_OWNER, Caller, Scope
from supervisor.domain.causes import Cause
from supervisor.domain.events import Event, EventKind
from supervisor.domain.status import Status
from tests.services.bed import Bed, Client

MEMBER = frozenset({Scope.READ, Scope.WRITE})
PEOPLE = {
    "ann": Caller("ann", "ann's laptop", MEMBER, "t-ann"),
    "bob": Caller("bob", "bob", MEMBER, "t-bob"),
    "ops": Caller("ops", "ops", frozenset({Scope.ADMIN}), "t-ops"),
    "script": Caller("ops", "ops' script", MEMBER, "t-script"),  # of the operator, without his rights
}
SPEC = {"command": ["python", "train.py"], "labels": {"team": "vision"}}


def people(bed: Bed) -> Client:
    """A client whose `Authorization` is the name of who asks."""

    def identify(authorization: str, request_id: str) -> Caller:
        return replace(PEOPLE[authorization], request_id=request_id)

    return Client(replace(bed.services, identify=identify))


@pytest.fixture
def house(any_bed: Bed) -> Client:
    """One run of Ann's, two of Bob's, and an event of the supervisor itself."""
    client = people(any_bed)
    for who, run_id in (("ann", "a-1"), ("bob", "b-1"), ("bob", "b-2")):
        assert ask(client, who, "POST", "/v1/runs", json={"run_id": run_id, "spec": SPEC}).status_code == 201
    any_bed.store.add_events(None, [Event(EventKind.BREAKER_OPENED, "opened")], any_bed.clock.now())
    return client


def ask(client: Client, who: str, method: str, path: str, **more: Any) -> httpx.Response:
    return client.request(method, path, headers={"Authorization": who, **more.pop("headers", {})}, **more)


def told(client: Client, who: str, path: str, **params: Any) -> Any:
    return ask(client, who, "GET", path, params=params).json()


@pytest.mark.parametrize("path", ["/v1/runs", "/v1/cost"])
def test_a_list_contains_the_callers_own_runs(house: Client, path: str) -> None:
    def ids(who: str, **params: Any) -> list[str]:
        return [run["run_id"] for run in told(house, who, path, **params)["runs"]]

    assert ids("ann") == ids("ann", owner="ann") == ids("ann", label="team=vision") == ["a-1"]
    assert ids("ann", owner="bob") == ids("ann", owner="nobody") == ids("ann", q="b-") == []
    assert ids("ops") == ["b-2", "b-1", "a-1"]
    assert ids("ops", owner="bob") == ["b-2", "b-1"]


def test_counts_and_cost_per_hour_are_of_the_callers_own_runs(house: Client, any_bed: Bed) -> None:
    any_bed.train("b-1")
    mine, all_of_them = told(house, "ann", "/v1/runs")["summary"], told(house, "ops", "/v1/runs")["summary"]
    assert (mine["counts"], mine["usd_per_h"]) == ({"pending": 1}, 0.0)
    assert (all_of_them["counts"], all_of_them["usd_per_h"]) == ({"pending": 2, "running": 1}, 0.1)
    assert told(house, "ann", "/v1/runs", owner="bob")["summary"]["counts"] == {}


def test_a_ledger_and_a_completion_ratio_are_of_the_callers_own_runs(house: Client, any_bed: Bed) -> None:
    any_bed.clock.advance(10.0)
    for run_id, cause in (("a-1", Cause.BUDGET), ("b-1", Cause.BUDGET)):
        any_bed.end(run_id, Status.FAILED, cause=cause)

    def names(who: str, **params: Any) -> list[str]:
        return [row["name"] for row in told(house, who, "/v1/ledger", **params)["rows"]]

    assert names("ann") == names("ann", owner="ann") == ["a-1"]
    assert names("ann", owner="bob") == names("ann", run_id="b-1") == []
    assert names("ann", by="owner") == ["ann"]
    assert names("ops", by="owner") == ["ann", "bob"]
    assert names("ops", run_id="b-1") == ["b-1"]
    assert [miss["run_id"] for miss in told(house, "ann", "/v1/completion")["misses"]] == ["a-1"]
    assert told(house, "ops", "/v1/completion")["user"] == 2
    assert "b-1" not in ask(house, "ann", "GET", "/v1/ledger?format=csv").text


def test_only_own_runs_are_compared(house: Client) -> None:
    query = {"run_id": ["a-1", "b-1"]}
    assert told(house, "ann", "/v1/compare", run_id="a-1")["runs"][0]["run_id"] == "a-1"
    assert told(house, "ann", "/v1/compare", **query)["code"] == "RUN_NOT_FOUND"
    assert [run["run_id"] for run in told(house, "ops", "/v1/compare", **query)["runs"]] == ["a-1", "b-1"]


def test_a_cursor_serves_only_its_owner(house: Client) -> None:
    cursor = told(house, "bob", "/v1/runs", page_size=1)["next_cursor"]
    assert told(house, "bob", "/v1/runs", cursor=cursor)["runs"][0]["run_id"] == "b-1"
    assert told(house, "ann", "/v1/runs", cursor=cursor)["code"] == "CURSOR_INVALID"


def test_the_history_is_of_the_callers_own_runs(house: Client) -> None:
    def runs(who: str, **params: Any) -> list[str | None]:
        return [event["run_id"] for event in told(house, who, "/v1/events", **params)["events"]]

    assert runs("ann") == runs("ann", newest_first=True) == ["a-1"]
    assert runs("ann", owner="bob") == runs("ann", actor="bob") == []
    assert runs("ops") == ["a-1", "b-1", "b-2", None]
    assert runs("ops", owner="bob", limit=1, after=1) == ["b-1"]
    assert runs("ops", actor="ann's laptop") == ["a-1"]
    assert runs("ops", actor="supervisor") == [None]
    assert told(house, "bob", "/v1/runs/b-1/events", actor="bob")["events"][0]["kind"] == "submitted"
    assert told(house, "bob", "/v1/runs/b-1/events", actor="ops")["events"] == []


def test_only_the_operator_sees_the_size_of_all_bundles(house: Client, any_bed: Bed) -> None:
    any_bed.objects.put("code/" + "0" * 64 + ".tar.gz", b"x" * 100)
    assert told(house, "ops", "/v1/cost")["code"]["stored_bytes"] == 100
    assert told(house, "ann", "/v1/cost")["code"]["stored_bytes"] is None


def test_a_run_names_its_owner(house: Client) -> None:
    assert told(house, "ann", "/v1/runs/a-1")["owner"] == "ann"
    assert told(house, "ops", "/v1/runs/b-1")["owner"] == "bob"


def test_a_run_id_of_another_owner_is_taken_and_nothing_else_is_shown(house: Client) -> None:
    for path in ("/v1/runs", "/v1/runs?validate_only=true"):
        refused = ask(house, "ann", "POST", path, json={"run_id": "b-1", "spec": SPEC})
        assert (refused.status_code, refused.json()["code"]) == (409, "RUN_ID_TAKEN")
        assert refused.json()["meta"] == {}
        assert "bob" not in refused.text
        assert "pending" not in refused.text


def test_an_unknown_owner_has_no_runs(house: Client) -> None:
    assert told(house, "ops", "/v1/runs", owner=NO_OWNER)["code"] == "INVALID_REQUEST"
    assert PEOPLE["ann"].visible_owner("bob") == NO_OWNER
