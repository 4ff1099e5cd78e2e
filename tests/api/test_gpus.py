"""Every response with a placement has the GPUs of its machine, in the same words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tests.services.bed import COMMAND, PLACE, Bed, Client
from tests.services.test_machines import put

RUN = "/v1/runs/digits-7"
ANSWERS = [RUN, "/v1/runs", f"{RUN}/attempts", f"{RUN}/launch", "/v1/zones", "/v1/machines?all=true"]


def places(told: Any) -> Iterator[dict[str, Any]]:
    """Every place of an answer, however deep."""
    if isinstance(told, dict):
        if {"zone", "shape", "spot"} <= set(told):
            yield told
        told = list(told.values())
    for one in told if isinstance(told, list) else ():
        yield from places(one)


@pytest.fixture
def trained(bed: Bed) -> Bed:
    """digits-7 trains on an L4; a larger machine is somebody else's."""
    bed.submit("digits-7")
    bed.train("digits-7")
    put(bed, "m-a1", "digits-7", machine_id="id-1", shape="cpu", spot=True)
    put(bed, "strange", supervisor_id="another", shape="huge", spot=False)
    bed.provider.gpu_words = {PLACE.shape: "L4", "huge": "8 × A100 80GB"}
    return bed


@pytest.mark.parametrize("path", ANSWERS)
def test_every_placement_is_shown_with_its_gpu(trained: Bed, client: Client, path: str) -> None:
    told = list(places(client.get(path).json()))
    assert told
    assert {(one["shape"], one["gpu"]) for one in told} <= {("cpu", "L4"), ("huge", "8 × A100 80GB")}
    assert ("cpu", "L4") in {(one["shape"], one["gpu"]) for one in told}


def test_the_plan_and_a_changed_run_show_it_too(trained: Bed, client: Client) -> None:
    plan = client.post("/v1/runs?validate_only=true", json={"spec": COMMAND}).json()
    assert {one["gpu"] for one in plan["zones"]} == {"L4"}
    assert client.post(f"{RUN}/stop").json()["placement"]["gpu"] == "L4"


def test_a_machine_without_a_gpu_and_a_former_provider_show_none(trained: Bed, client: Client) -> None:
    trained.provider.gpu_words.clear()
    assert {one["gpu"] for path in ANSWERS for one in places(client.get(path).json())} == {None}
    assert trained.parts.gpu(replace(PLACE, provider="of-before")) is None
