"""The smoke that a submit reports: read strictly, stored with the run, and compared by a repeated request."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from tests.services.bed import COMMAND, Bed, Client

SENT: dict[str, Any] = {
    "at": "2026-11-26T03:00:00Z", "computer": "laptop", "command": "python train.py 2", "exit_codes": [0, 0],
    "first_step": 2, "second_from": 3,
}  # fmt: skip


@pytest.mark.parametrize(
    ("field", "value"),
    [("exit_codes", [0, 1]), ("exit_codes", []), ("at", "yesterday"), ("computer", "a\nb"), ("resumed", True)],
)
def test_a_smoke_that_failed_or_is_not_understood_is_refused(bed: Bed, client: Client, field: str, value: Any) -> None:
    response = client.post("/v1/runs", json={"spec": COMMAND, "smoke": {**SENT, field: value}})
    assert (response.status_code, response.json()["code"]) == (422, "INVALID_REQUEST")
    assert client.get("/v1/runs").json()["runs"] == []


def test_a_repeat_with_another_smoke_is_another_request(bed: Bed, client: Client) -> None:
    body, headers = {"run_id": "digits-7", "spec": COMMAND, "smoke": SENT}, {"Idempotency-Key": "k1"}
    assert client.post("/v1/runs", json=body, headers=headers).status_code == 201
    assert "idempotency-replayed" in client.post("/v1/runs", json=body, headers=headers).headers
    other = client.post("/v1/runs", json={**body, "smoke": {**SENT, "first_step": 9}}, headers=headers)
    assert (other.status_code, other.json()["code"]) == (422, "IDEMPOTENCY_KEY_REUSED")
    assert bed.run("digits-7").smoke is not None


def test_it_is_shown_in_the_second_gate(bed: Bed, client: Client) -> None:
    at = datetime.fromtimestamp(bed.clock.now() - 60, UTC).isoformat()
    body = {"run_id": "digits-7", "spec": COMMAND, "smoke": {**SENT, "at": at}}
    assert client.post("/v1/runs", json=body).status_code == 201
    verdicts = client.get("/v1/runs/digits-7/gates").json()["gates"][2]["verdicts"]
    [smoke] = [item for item in verdicts if item["check"] == "smoke"]
    assert (smoke["state"], smoke["by"]) == ("pass", "laptop")
