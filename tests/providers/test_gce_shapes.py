"""What kind of machine a listing shows: the settings' name where they offer it, else Google's words."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.providers.gce.config import parse_shape
from supervisor.providers.gce.machines.machine import machine_of, shape_names_of

SHAPES = {name: parse_shape(text) for name, text in {
    "t4": "n1-standard-8+1xnvidia-tesla-t4", "two": "n1-standard-8+2xnvidia-tesla-t4", "l4": "g2-standard-8",
    "plain": "n1-standard-8",
}.items()}  # fmt: skip
ZONE = "https://compute.googleapis.com/compute/v1/projects/p/zones/us-east1-c"


def item(machine_type: str, count: int = 0, kind: str = "nvidia-tesla-t4", model: str = "SPOT") -> dict[str, Any]:
    cards = [{"acceleratorType": f"{ZONE}/acceleratorTypes/{kind}", "acceleratorCount": count}]
    return {
        "id": "7", "name": "m", "status": "RUNNING", "machineType": f"{ZONE}/machineTypes/{machine_type}",
        "scheduling": {"provisioningModel": model}, **({"guestAccelerators": cards} if count else {}),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (item("n1-standard-8", 1), "t4"),
        (item("n1-standard-8", 2), "two"),
        (item("n1-standard-8"), "plain"),
        (item("g2-standard-8", 1, "nvidia-l4"), "l4"),  # the type includes its card, and Google repeats it
        (item("n1-standard-8", 4), "n1-standard-8+4xnvidia-tesla-t4"),
        (item("e2-small"), "e2-small"),
        (item("a9-secret-type", 1), "a9-secret-type"),
        ({"id": "7", "name": "m"}, ""),
    ],
)
def test_a_machine_has_the_name_of_its_shape_in_the_settings(given: dict[str, Any], name: str) -> None:
    assert machine_of(given, "us-east1-c", shape_names=shape_names_of(SHAPES)).shape == name


def test_of_two_names_for_the_same_machine_the_first_counts() -> None:
    assert shape_names_of({"a": SHAPES["t4"], "b": SHAPES["t4"]}) == {"n1-standard-8+1xnvidia-tesla-t4": "a"}


def test_spot_or_not_or_not_told() -> None:
    assert machine_of(item("e2-small"), "z").spot is True
    assert machine_of(item("e2-small", model="STANDARD"), "z").spot is False
    assert machine_of({"id": "7", "name": "m"}, "z").spot is None
