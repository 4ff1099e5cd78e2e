"""A supervisor on a computer with two GPUs: its shape l4 has one card, l4x2 has two, and cpu has none."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from supervisor.ports.provider import LaunchRequest
from tests.fakes.provider import offers_in
from tests.providers.local_machines import ZONES, LocalSubject

SHAPES = ("l4", "l4x2", "cpu")
GPUS = {"l4": 1, "l4x2": 2}


def gpu_house(data_dir: Path) -> LocalSubject:
    offers = tuple(offer for shape in SHAPES for offer in offers_in(ZONES, shape=shape))
    return LocalSubject(data_dir, offers=offers, gpus=GPUS)


def wants(house: LocalSubject, run: str, shape: str = "l4", **script: object) -> LaunchRequest:
    request = house.request(run=run)
    request = replace(request, placement=replace(request.placement, shape=shape))
    return house.scripted(request, **script) if script else request


def given(house: LocalSubject, request: LaunchRequest) -> list[str]:
    job = json.loads((house.folder(request) / "job.json").read_text())
    assert job["gpus"] == len(job["gpu_ids"])
    found: list[str] = job["gpu_ids"]
    return found


def visible(house: LocalSubject, request: LaunchRequest) -> str | None:
    """CUDA_VISIBLE_DEVICES of the agent; None = not set."""
    pid = house.pids(request)["agent"]
    variables = Path(f"/proc/{pid}/environ").read_text().split("\0")
    return next((v.partition("=")[2] for v in variables if v.startswith("CUDA_VISIBLE_DEVICES=")), None)
