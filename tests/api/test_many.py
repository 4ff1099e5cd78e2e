"""Stop and resume of many runs over the API: a filter is needed, and it matches the caller's own runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from supervisor.domain.callers import Caller, Scope
from tests.services.bed import COMMAND, Bed, Client


@pytest.fixture
def labelled(bed: Bed) -> Bed:
    for name in ("a-1", "a-2"):
        bed.submit(name, {**COMMAND, "labels": {"team": "vision"}})
    bed.submit("b-1")
    return bed


def test_the_filters_of_the_list(labelled: Bed, client: Client) -> None:
    told = client.post("/v1/runs/stop?label=team=vision", json={"expect": 2})
    assert (told.status_code, told.json()["runs"]) == (200, ["a-2", "a-1"])
    assert client.post("/v1/runs/stop?q=b-&status=pending").json()["runs"] == ["b-1"]
    assert client.post("/v1/runs/resume?all=true", json={"dry_run": True}).json()["matched"] == 3
    assert client.post("/v1/runs/stop?label=team=vision", json={"expect": 9}).json()["code"] == "COUNT_DIFFERS"


def test_runs_that_are_named(labelled: Bed, client: Client) -> None:
    told = client.post("/v1/runs/stop?run_id=a-1&run_id=b-1&run_id=nobody", json={"expect": 2}).json()
    assert (told["matched"], told["runs"], told["more"]) == (2, ["b-1", "a-1"], False)
    assert labelled.run("a-2").stop is None
    told = client.post("/v1/runs/stop?run_id=nobody").json()
    assert (told["matched"], told["changed"]) == (0, 0)


# query, body, what the refusal tells
NOT_MEANT: tuple[tuple[str, Any, str], ...] = (
    ("", {}, "a filter is needed"),
    ("?q=", {}, "a filter is needed"),
    ("?page_size=2&sort=created", {}, "a filter is needed"),
    ("?all=false", {}, "a filter is needed"),
    ("?all=true&q=a", {}, "contradict"),
    ("?all=true&run_id=a-1", {}, "contradict"),
    ("?run_id=", {}, "must be"),
    ("?run_id=" + "&run_id=".join(f"r-{n}" for n in range(201)), {}, "at most 200"),
    ("?q=a&include=sparkline", {}, "not known"),
    ("?lable=team=vision", {}, "did you mean label?"),
    ("?status=runing", {}, "did you mean running?"),
    ("?q=a&q=b", {}, "is given twice"),
    ("?all=true", {"dryrun": True}, "did you mean dry_run?"),
    ("?all=true", {"dry_run": 1}, "must be true or false"),
    ("?all=true", {"expect": -1}, "greater than or equal"),
    ("?all=true&page_size=-1", {}, "greater than or equal"),
)


def test_a_request_that_may_be_a_mistake_stops_no_run(labelled: Bed, client: Client) -> None:
    for query, body, told in NOT_MEANT:
        for deed in ("stop", "resume"):
            answer = client.post(f"/v1/runs/{deed}{query}", json=body)
            assert (answer.status_code, told in answer.json()["detail"]) == (422, True), (query, answer.text)
    assert all(labelled.run(name).stop is None for name in ("a-1", "a-2", "b-1"))


def test_another_owners_runs_match_no_filter(labelled: Bed) -> None:
    other = Caller(owner="other", scopes=frozenset({Scope.READ, Scope.WRITE}))
    stranger = Client(replace(labelled.services, identify=lambda _authorization, _request_id: other))
    for query in ("all=true", "label=team=vision", "owner=local"):
        told = stranger.post(f"/v1/runs/stop?{query}").json()
        assert (told["matched"], told["runs"]) == (0, [])
    assert labelled.run("a-1").stop is None
    answer = stranger.request("PATCH", "/v1/runs/a-1", json={"labels": {"a": "1"}}, headers={"If-Match": "*"})
    assert answer.json()["code"] == "RUN_NOT_FOUND"
    assert stranger.get("/v1/runs/a-1/beats").status_code == 404
