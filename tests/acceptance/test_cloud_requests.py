"""What a look at Google Cloud may cost in requests: pages, zones and a canary, never one for each run."""

from __future__ import annotations

import math
from pathlib import Path

from supervisor.contract import runfiles
from tests.acceptance.cloud_house import CloudHouse, cloud_house
from tests.cloud.cloud import BUCKET, ZONES
from tests.scenarios.sim_plan import Plan

RUNS = 12
LONG = Plan(steps=100_000, checkpoint=0, push=False)


def asked_in_one_look(house: CloudHouse) -> tuple[list[str], list[str]]:
    """(requests to Compute Engine, requests to Cloud Storage) of the supervisor alone, while no agent acts."""
    compute, storage = len(house.compute.requests), len(house.storage.requests)
    assert house.supervisor is not None
    house.supervisor.tick.run(house.supervisor.lease)
    new = house.compute.requests[compute:], house.storage.requests[storage:]
    told = [[f"{one.method} {one.path}" for one in some] for some in new]
    return told[0], told[1]


def test_a_look_at_many_running_runs_asks_for_pages_only(folder: Path) -> None:
    with cloud_house(folder) as house:
        for number in range(RUNS):
            house.submit(f"run-{number:02d}", LONG)
        house.play(*(f"wait until run-{number:02d} status=running within=30min" for number in range(RUNS)))
        for number in range(3):
            house.add(f"theirs-{number}", ZONES[0])
            house.compute.delete_by("alice@example.com", f"theirs-{number}")
        boot = {"beat": "{}"}  # no beat at all, and an object more all the same
        house.storage.put(BUCKET, runfiles.boot_beat("run-03"), b"{}", boot)
        asked_in_one_look(house)
        compute, storage = asked_in_one_look(house)
        stops = [one for one in storage if one.endswith("/.stop")]
        beats = len(house.storage.names(BUCKET, runfiles.BEATS))
        allowed = math.ceil(len(house.compute.names()) / 500) + math.ceil(beats / 1000) + len(ZONES) + 3
        assert len(compute) + len(storage) - len(stops) <= allowed, (compute, storage)
        assert len(stops) <= math.ceil(RUNS * 30 / 600)
