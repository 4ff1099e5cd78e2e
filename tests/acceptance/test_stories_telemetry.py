"""A real run's machine from /proc to the screen, and a forged beat with absurd figures that changes nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from supervisor.cli.views.show import telemetry_lines
from supervisor.services.reading.queries import ShownRun
from tests.acceptance.stories import STORY, Stories, stories
from tests.services.declared import declared
from tests.waiting import wait_for

pytestmark = pytest.mark.xdist_group("stories-telemetry")


def told_of(house: Stories, run_id: str) -> Any:
    run = house.get(f"/v1/runs/{run_id}")
    declared(ShownRun, run)
    told = run["telemetry"]
    return run if told is not None and told["tree"] is not None else None


def test_a_run_shows_how_its_machine_is(tmp_path: Path) -> None:
    with stories(tmp_path, STORY) as house:
        house.train("measured")
        house.trains("measured")
        run = wait_for(lambda: told_of(house, "measured"), 60, "figures of its machine")
        told = run["telemetry"]
        assert told["tree"]["processes"] >= 1
        assert told["tree"]["rss_bytes"] > 1e6
        assert 0 < told["disks"]["checkpoints"]["free_bytes"] <= told["disks"]["checkpoints"]["total_bytes"]
        assert told["disks"]["results"] is None  # the same file system
        assert told["uptime_s"] > 0
        assert told["cgroup"] is not None
        [line, *_] = telemetry_lines(run)
        assert "checkpoints disk" in line
        assert line.count("GiB") >= 2

        forged = {"run_id": "measured", "attempt": 1, "launch_id": "1.1.1", "nonce": "wrong", "phase": "training"}
        absurd = {"gpus": {"util_pct": [1e17] * 900}, "tree": {"processes": 10**17}}
        beat = json.dumps({**forged, "sequence": 10**6, "telemetry": absurd}).encode()
        refused = house.daemon.http.post(
            f"{house.daemon.url}/v1/runs/measured/heartbeat", content=beat, headers={"Content-Type": "application/json"}
        )
        assert (refused.status_code, refused.json()["code"]) == (403, "NONCE_REFUSED")
        after = told_of(house, "measured")
        assert after["telemetry"]["tree"]["processes"] < 1000
        house.completes("measured")
        assert house.get("/v1/runs/measured")["telemetry"] is None
