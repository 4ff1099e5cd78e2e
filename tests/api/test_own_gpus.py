"""GPUs that are set aside are listed, and only a request brings one back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.contract.cards import Aside, Card
from supervisor.services.machines.gpus import Gpus
from tests.services.bed import Bed, Client


@pytest.fixture
def aside(bed: Bed) -> str:
    why = Aside("it had Xid 79, which is an error of the hardware", "m-a1", "digits-7", bed.clock.now())
    bed.cards.there = [Card(0, "GPU-a", "NVIDIA L4", aside=why), Card(1, "GPU-b", "NVIDIA L4")]
    return "GPU-a"


def test_a_card_that_is_set_aside_is_shown_with_its_reason_until_it_is_back(
    bed: Bed, client: Client, aside: str
) -> None:
    bad, good = client.get("/v1/gpus").json()["gpus"]
    assert bad["set_aside"]["run_id"] == "digits-7"
    assert "it had Xid 79" in bad["state"]
    assert (good["set_aside"], good["state"]) == (None, "free")
    assert client.post("/v1/gpus/back", json={"gpu": aside}).json() == {"gpu": aside}
    assert client.get("/v1/gpus").json()["gpus"][0]["set_aside"] is None
    [event] = client.get("/v1/events").json()["events"]
    assert (event["kind"], event["data"]["gpu"]) == ("gpu_back", aside)
    assert event["text"].endswith("said that GPU-a works again: runs may have it.")


def test_what_is_not_set_aside_cannot_come_back(bed: Bed, client: Client, aside: str) -> None:
    for gpu in ("GPU-b", "GPU-nobody"):
        answer = client.post("/v1/gpus/back", json={"gpu": gpu})
        assert (answer.status_code, answer.json()["errors"][0]["pointer"]) == (422, "#/gpu")
    assert bed.cards.there[0].aside is not None
    assert client.get("/v1/events").json()["events"] == []


def test_gpus_that_cannot_be_read_are_a_503(bed: Bed, client: Client, aside: str) -> None:
    bed.cards.trouble = "nvidia-smi did not respond within 10 s"
    assert client.get("/v1/gpus").status_code == 503
    answer = client.post("/v1/gpus/back", json={"gpu": aside})
    assert answer.status_code == 503
    assert "nvidia-smi did not respond" in answer.json()["detail"]


def test_a_supervisor_whose_machines_are_elsewhere_gives_out_no_gpus(bed: Bed) -> None:
    client = Client(replace(bed.services, gpus=Gpus(bed.parts, None)))
    assert client.get("/v1/gpus").json()["code"] == "NOT_SUPPORTED"
    assert client.post("/v1/gpus/back", json={"gpu": "GPU-a"}).json()["code"] == "NOT_SUPPORTED"
