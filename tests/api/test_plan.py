"""POST /v1/runs?validate_only=true over HTTP: the plan, and that nothing is done."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from supervisor.ports.provider import ProviderUnavailable
from tests.services.bed import COMMAND, Bed, Client
from tests.services.test_gates_of_hosts import with_host

DRY = "/v1/runs?validate_only=true"


def ask(client: Client, path: str = DRY, **body: Any) -> Any:
    return client.post(path, json={"spec": COMMAND, **body})


def test_the_plan_has_the_documented_shape_and_makes_nothing(bed: Bed, client: Client) -> None:
    answer = ask(client, run_id="digits-7")
    assert answer.status_code == 200
    plan = answer.json()
    assert plan["would"] == "create"
    assert [place["zone"] for place in plan["zones"]] == ["local-a", "local-b", "local-c"]
    assert client.get("/v1/runs").json()["runs"] == []
    assert client.get("/v1/events").json()["events"] == []
    assert "location" not in answer.headers


def test_the_key_of_a_plan_is_still_free(bed: Bed, client: Client) -> None:
    headers = {"Idempotency-Key": "k1"}
    assert client.post(DRY, json={"spec": COMMAND}, headers=headers).status_code == 200
    first = client.post("/v1/runs", json={"spec": {"command": "true"}}, headers=headers)
    assert first.status_code == 201
    assert "idempotency-replayed" not in first.headers
    assert client.post(DRY, json={"spec": COMMAND}, headers=headers).json()["would"] == "create"


def test_a_text_that_is_no_plan_id_is_refused_with_where_to_find_one(client: Client) -> None:
    answer = ask(client, "/v1/runs", run_id="digits-7", plan_id="plan_")
    assert answer.status_code == 422
    assert answer.json()["detail"].endswith("as the last line of `spot submit --dry-run` shows it.")


def test_validate_only_false_is_a_submit(bed: Bed, client: Client) -> None:
    assert ask(client, "/v1/runs?validate_only=false", run_id="a-run").status_code == 201
    assert ask(client, run_id="a-run").json()["would"] == "unchanged"


@pytest.mark.parametrize(
    "query",
    [
        "validate_only=garbage",
        "validate_only=",
        "validate_only=true&validate_only=true",
        "validate_only=2",
        "validate=true",
        "code_follows=true",
        "validate_only=true&code_follows=perhaps",
    ],
)
def test_a_query_that_is_not_understood_is_refused_and_nothing_is_submitted(
    bed: Bed, client: Client, query: str
) -> None:
    answer = ask(client, f"/v1/runs?{query}")
    assert (answer.status_code, answer.json()["code"]) == (422, "INVALID_REQUEST")
    assert client.get("/v1/runs").json()["runs"] == []


@pytest.mark.parametrize(
    ("spec", "status", "code"),
    [
        ({"command": []}, 422, "INVALID_REQUEST"),
        ({**COMMAND, "zones": ["nowhere"]}, 422, "INVALID_REQUEST"),
        ({**COMMAND, "same_region": "perhaps"}, 422, "INVALID_REQUEST"),
        ({**COMMAND, "expect_checkpoint_gb": 0}, 422, "INVALID_REQUEST"),
        ({**COMMAND, "expect_checkpoint_gb": "much"}, 422, "INVALID_REQUEST"),
        ({**COMMAND, "code": "c" * 64}, 404, "CODE_NOT_FOUND"),
        ({**COMMAND, "env": {"API_KEY": "sk-" + "a1" * 20}}, 422, "SECRET_IN_SPEC"),
        ({**COMMAND, "stall": {"silence_s": 1}}, 422, "INVALID_TIMEOUTS"),
    ],
)
def test_a_plan_is_refused_as_its_submit_would_be(bed: Bed, client: Client, spec: Any, status: int, code: str) -> None:
    by_plan, by_submit = ask(client, spec=spec), ask(client, "/v1/runs", spec=spec)
    assert (by_plan.status_code, by_plan.json()["code"]) == (status, code)
    assert by_plan.json()["detail"] == by_submit.json()["detail"]


def test_far_data_is_refused_and_unknown_data_is_a_503(bed: Bed, client: Client) -> None:
    near = {**COMMAND, "same_region": "require"}
    bed.platform.places = {"the bucket gs://far": "mars-1"}
    refused = ask(client, "/v1/runs", spec=near)
    assert (refused.status_code, refused.json()["code"]) == (422, "DATA_ELSEWHERE")
    assert refused.json()["errors"][0]["pointer"] == "#/spec/same_region"
    bed.platform.trouble = ProviderUnavailable("it does not answer")
    unknown = ask(client, "/v1/runs", spec=near)
    assert (unknown.status_code, unknown.json()["code"]) == (503, "UNAVAILABLE")
    assert client.get("/v1/runs").json()["runs"] == []


def gate_lines(client: Client, **body: Any) -> list[tuple[str, str, str]]:
    checks = ask(client, run_id="digits-7", **body).json()["checks"]
    return [(check["name"], check["result"], check["fact"]) for check in checks if " of local-" in check["name"]]


def test_a_place_that_a_gate_would_stop_is_a_line_of_the_plan(bed: Bed, client: Client) -> None:
    with_host(bed, inodes_used_pct=99.0)
    fact = "INODES_LOW: 99 % of the inodes of the disk of gpu1 are in use; fewer than 90 % are wanted"
    zones = ("local-a", "local-b", "local-c")
    assert gate_lines(client) == [(f"inodes of {zone}", "fail", fact) for zone in zones]
    assert gate_lines(client, waive=[{"check": "inodes", "reason": "cleared tonight"}]) == []
    healthy = bed.provider.profile("local-b")
    bed.provider.profile = lambda zone="": replace(healthy, host=None) if zone == "local-b" else healthy  # type: ignore[method-assign]
    assert gate_lines(client) == [(f"inodes of {zone}", "warn", fact) for zone in ("local-a", "local-c")]


def test_a_healthy_host_has_no_line(bed: Bed, client: Client) -> None:
    with_host(bed)
    assert gate_lines(client) == []
