"""GET /v1/runs/{id}/facts through the real application."""

from __future__ import annotations

import json

from supervisor.contract import runfiles
from tests.api.conftest import Client
from tests.services.bed import Bed


def test_facts_have_the_documented_shape(client: Client, bed: Bed) -> None:
    bed.submit("digits-7")
    bed.train("digits-7")
    bed.objects.put(runfiles.facts("digits-7", 1), json.dumps({"python": "3.11.4", "absent": {}}).encode())
    answer = client.get("/v1/runs/digits-7/facts")
    assert answer.status_code == 200
    facts = {"python": "3.11.4", "absent": {}}
    assert answer.json()["attempts"] == [{"attempt": 1, "generation": 1, "cause": None, "facts": facts}]


def test_no_such_run_and_no_such_parameter(client: Client, bed: Bed) -> None:
    assert client.get("/v1/runs/nobody/facts").json()["code"] == "RUN_NOT_FOUND"
    bed.submit("digits-7")
    assert client.get("/v1/runs/digits-7/facts", params={"full": "1"}).status_code == 422
