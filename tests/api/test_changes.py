"""PATCH of a run: which versions, which fields, and what follows."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import httpx
import pytest

from supervisor.domain.status import Status
from tests.services.bed import COMMAND, Bed, Client

NAME = "/v1/runs/digits-7"


def change(client: Client, body: Any, match: str | None = "*", **headers: str) -> httpx.Response:
    told = {**headers, **({"If-Match": match} if match is not None else {})}
    return client.request("PATCH", NAME, json=body, headers=told)


@pytest.fixture
def digits(bed: Bed) -> Bed:
    labels = {"team": "vision", "kind": "test"}
    bed.submit("digits-7", {**COMMAND, "labels": labels, "limits": {"max_attempts": 4}, "zones": ["local-a"]})
    return bed


def test_only_a_client_with_the_current_version_changes_a_run(digits: Bed, client: Client) -> None:
    assert change(client, {"labels": {"a": "1"}}, None).json()["code"] == "PRECONDITION_REQUIRED"
    assert change(client, {"labels": {"a": "1"}}, "7").json()["code"] == "INVALID_REQUEST"
    seen = client.get(NAME).headers["etag"]
    digits.train("digits-7")
    stale = change(client, {"labels": {"a": "1"}}, seen)
    assert (stale.status_code, stale.json()["code"]) == (412, "PRECONDITION_FAILED")
    assert change(client, {"labels": {"a": "1"}}, "W/" + client.get(NAME).headers["etag"]).status_code == 412
    digits.clock.advance(5.0)  # age and cost move, the row does not
    done = change(client, {"labels": {"a": "1"}}, f'"x", {client.get(NAME).headers["etag"]}')
    assert done.status_code == 200
    assert change(client, {"labels": {"a": "2"}}, done.headers["etag"]).status_code == 200
    assert change(client, {"labels": {"a": "3"}}, done.headers["etag"]).status_code == 412
    assert client.get(NAME).json()["labels"]["a"] == "2"


def test_a_merge_patch_changes_the_fields_that_it_names(digits: Bed, client: Client) -> None:
    patch = {"labels": {"team": None, "x": "1"}, "limits": {"budget_usd": 5, "max_attempts": None}, "zones": None}
    told = change(client, patch, **{"Content-Type": "application/merge-patch+json"})
    assert told.json()["labels"] == {"kind": "test", "x": "1"}
    assert told.json()["cost"]["budget_usd"] == 5
    run = digits.run("digits-7")
    assert (run.policy.limits.max_attempts, run.policy.limits.budget_usd, run.policy.zones) == (10, 5.0, ())
    expected = {**COMMAND, "labels": {"kind": "test", "x": "1"}, "limits": {"budget_usd": 5.0}}
    assert digits.store.spec(run.key) == expected
    assert digits.store.labels(run.key) == expected["labels"]
    event = digits.store.events("digits-7", 0, 10)[-1].event
    before = {"labels.team": "vision", "labels.x": None, "limits.budget_usd": None, "limits.max_attempts": 4}
    after = {"labels.team": None, "labels.x": "1", "limits.budget_usd": 5.0, "limits.max_attempts": 10}
    assert event.kind == "changed"
    assert event.data["before"] == told.json()["before"] == {**before, "zones": ["local-a"]}
    assert event.data["after"] == told.json()["after"] == {**after, "zones": []}
    assert event.data["request_id"] == told.headers["x-request-id"]


def test_a_change_to_the_same_values_changes_nothing(digits: Bed, client: Client) -> None:
    version = digits.run("digits-7").version
    for body in ({}, {"labels": {"team": "vision", "no": None}}, {"limits": {}}, {"limits": {"max_user_failures": 3}}):
        told = change(client, body)
        assert (told.status_code, told.json()["before"], told.json()["after"]) == (200, {}, {})
    assert digits.run("digits-7").version == version
    assert digits.events("digits-7") == ["submitted"]


def test_two_changes_of_one_version_change_it_once(digits: Bed, client: Client) -> None:
    seen = client.get(NAME).headers["etag"]
    answers = [change(client, {"labels": {"n": str(n)}}, seen).status_code for n in range(3)]
    assert answers == [200, 412, 412]


def test_the_training_does_not_change_under_a_run(digits: Bed, client: Client) -> None:
    for body in ({"command": "rm"}, {"env": {"A": "1"}, "labels": {"a": "1"}}, {"shapes": ["x"]}, {"spec": {}}):
        told = change(client, body).json()
        assert (told["code"], "replace_spec" in told["detail"]) == ("INVALID_REQUEST", True)
        assert told["errors"][0]["pointer"] == f"#/{next(iter(body))}"
    told = change(client, {"lables": {}}).json()
    assert "did you mean labels?" in told["detail"]
    assert digits.events("digits-7") == ["submitted"]


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"limits": {"deadline": "2001-01-01T00:00:00Z"}}, "#/limits/deadline"),
        ({"limits": {"budget_usd": -1}}, "#/limits/budget_usd"),
        ({"limits": {"budget_usd": "5"}}, "#/limits/budget_usd"),
        ({"limits": {"stall": 1}}, "#/limits/stall"),
        ({"zones": ["local-a", "local-a"]}, "#/zones"),
        ({"zones": ["nowhere"]}, "#/zones/0"),
        ({"labels": {"\x00": "a"}}, "#/labels/\x00"),
        ({"labels": {str(n): "" for n in range(70)}}, "#/labels"),
        ([], "#"),
    ],
)
def test_bad_changes(digits: Bed, client: Client, body: Any, pointer: str) -> None:
    told = change(client, body)
    assert told.status_code == 422
    assert told.json()["errors"][0]["pointer"] == pointer
    assert digits.events("digits-7") == ["submitted"]


def test_a_key_is_refused_as_a_label_too(digits: Bed, client: Client) -> None:
    secret = "hf_" + "a1" * 20
    told = change(client, {"labels": {"token": secret}})
    assert told.json()["code"] == "SECRET_IN_SPEC"
    assert secret not in told.text


def test_only_the_labels_of_an_ended_run_change(digits: Bed, client: Client) -> None:
    digits.train("digits-7")
    digits.end("digits-7", Status.FAILED)
    assert change(client, {"labels": {"seen": "yes"}}).json()["labels"]["seen"] == "yes"
    told = change(client, {"labels": {"seen": "no"}, "limits": {"budget_usd": 3}})
    assert (told.status_code, told.json()["code"]) == (409, "RUN_ENDED")
    assert client.get(NAME).json()["labels"]["seen"] == "yes"
    assert client.get("/v1/runs?label=seen=yes&status=failed").json()["summary"]["counts"] == {"failed": 1}


def test_a_limit_that_is_already_passed_is_a_warning(digits: Bed, client: Client) -> None:
    digits.train("digits-7")
    digits.clock.advance(3600.0)
    told = change(client, {"limits": {"budget_usd": 0.01}, "zones": ["local-b"]})
    assert told.status_code == 200
    budget, zones = told.json()["warnings"]
    assert "$0.10 spent, budget $0.01: the next tick ends the run" in budget
    assert "Its machine in local-a stays" in zones
    assert change(client, {"limits": {"budget_usd": 50}}).json()["warnings"] == [zones]


def test_a_run_of_another_owner_does_not_exist(digits: Bed, client: Client) -> None:
    assert client.request("PATCH", "/v1/runs/none", json={}, headers={"If-Match": "*"}).status_code == 404


def test_limits_without_a_value_stay_when_a_default_changes(digits: Bed, client: Client) -> None:
    limits = digits.run("digits-7").policy.limits
    digits.change("digits-7", policy=_with_limits(digits, machine_max_s=77.0))
    change(client, {"limits": {"budget_usd": 9}})
    found = digits.run("digits-7").policy.limits
    assert (found.machine_max_s, found.budget_usd, found.max_attempts) == (77.0, 9.0, limits.max_attempts)


def _with_limits(bed: Bed, **fields: Any) -> Any:
    policy = bed.run("digits-7").policy
    return replace(policy, limits=replace(policy.limits, **fields))
