"""Simulated failures on rented machines: only a confirmed preemption."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest

from supervisor.domain.machines import MachineRef
from supervisor.ports.provider import MachineMissing, NotSupported, ProviderUnavailable
from supervisor.providers.gce.traits import TRAITS
from supervisor.services.runs.dev import Dev
from tests.services.bed import PLACE, Bed, Client

RENTED = replace(PLACE, provider="gce", region="us-east1", zone="us-east1-c")


@dataclass
class Rented:
    struck: list[str] = field(default_factory=list)
    trouble: Exception | None = None

    def preempt(self, ref: MachineRef, notice_s: float) -> None:
        if self.trouble is not None:
            raise self.trouble
        self.struck.append(ref.name)

    def kill(self, ref: MachineRef) -> None:
        raise NotSupported("only local machines")

    freeze = kill

    def stockout(self, zones: Sequence[str], for_s: float | None) -> None:
        raise NotSupported("only local zones")


@pytest.fixture
def rented() -> Rented:
    return Rented()


@pytest.fixture
def client(bed: Bed, rented: Rented) -> Client:
    bed.submit("digits-7")
    run = bed.train("digits-7")
    assert run.attempt is not None
    bed.provider.traits = TRAITS
    parts = replace(bed.parts, providers={"gce": bed.provider}, cells={"gce": "gce cell"})
    attempt = replace(run.attempt, placement=RENTED)
    bed.change("digits-7", provider="gce", cell="gce cell", attempt=attempt)
    return Client(replace(bed.services, parts=parts, dev=Dev(parts, {"gce": rented})))


def strike(client: Client, status: int, deed: str = "preempt", **more: object) -> dict[str, object]:
    answer = client.post(f"/v1/dev/{deed}", json={"run_id": "digits-7", **more})
    assert answer.status_code == status, answer.text
    found: dict[str, object] = answer.json()
    return found


def test_nothing_is_preempted_without_confirmation(client: Client, rented: Rented) -> None:
    refused = strike(client, 409)
    assert refused["code"] == "CONFIRM_NEEDED"
    assert "m-a1 in us-east1-c" in str(refused["detail"])
    assert rented.struck == []
    done = strike(client, 200, confirm=True)
    assert done["notice_s"] is None, "the platform's own notice"
    assert rented.struck == ["m-a1"]


@pytest.mark.parametrize("deed", ["kill", "freeze"])
def test_nothing_else_is_done_to_a_rented_machine(client: Client, rented: Rented, deed: str) -> None:
    assert strike(client, 403, deed)["code"] == "DEV_REFUSED"


def test_no_zone_of_a_cloud_can_be_emptied(client: Client) -> None:
    answer = client.post("/v1/dev/stockout", json={"zones": ["us-east1-c"]})
    assert (answer.status_code, answer.json()["code"]) == (403, "DEV_REFUSED")
    assert answer.json()["detail"] == "Only local zones."


@pytest.mark.parametrize(
    ("trouble", "status", "code"),
    [
        (NotSupported("m-a1 is not a Spot VM"), 403, "DEV_REFUSED"),
        (MachineMissing("m-a1"), 409, "CONFLICT"),
        (ProviderUnavailable("away"), 503, "UNAVAILABLE"),
    ],
)
def test_the_platforms_refusal_is_reported(
    client: Client, rented: Rented, trouble: Exception, status: int, code: str
) -> None:
    rented.trouble = trouble
    assert strike(client, status, confirm=True)["code"] == code


def test_a_machine_of_another_project_is_left_alone(client: Client, bed: Bed, rented: Rented) -> None:
    bed.change("digits-7", cell="gce another-project gs://b")
    assert "another supervisor's project or bucket" in str(strike(client, 403, confirm=True)["detail"])
    assert rented.struck == []


def test_a_run_without_a_machine_cannot_lose_one(client: Client, bed: Bed, rented: Rented) -> None:
    bed.end("digits-7")
    assert strike(client, 409, confirm=True)["code"] == "CONFLICT"
    assert rented.struck == []
