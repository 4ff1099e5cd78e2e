"""More runs than places: our own machines in the way are a queue, not a stock-out."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path

from tests.acceptance.daemon import QUICK, running
from tests.waiting import wait_for

# The pauses of a stock-out, and the pause between two looks, stand as they come: a queue must need neither.
PLACES = {
    **QUICK,
    "SPOT_POLL_INTERVAL_S": "30",
    "SPOT_BEAT_PUSH_S": "10",
    "SPOT_BEAT_STORE_S": "60",
    "SPOT_LOCAL_CAPACITY": "local-a=1,local-b=1,local-c=1",
}


def test_fifteen_runs_on_three_places_are_done_without_a_pause(tmp_path: Path) -> None:
    with running(tmp_path / "data", PLACES) as daemon:
        names = [f"short-{n:02}" for n in range(15)]
        for name in names:
            daemon.submit(name, command=["true"])

        def done() -> bool:
            runs = daemon.call("GET", "/v1/runs?page_size=100")["runs"]
            assert {run["cause"] for run in runs if run["status"] == "waiting"} <= {"queued"}
            return all(run["status"] == "completed" for run in runs)

        wait_for(done, 180, "all fifteen to be done: they once stood still for four minutes")
        attempts = [daemon.call("GET", f"/v1/runs/{name}/attempts")["attempts"][0] for name in names]
        asked = [attempt["requested_at"] for attempt in attempts]  # they come up side by side, in any order
        assert asked == sorted(asked), "first come, first served"
        assert not any(zone["failures"] for zone in daemon.call("GET", "/v1/zones")["zones"]), "no zone is cooled"


def test_the_next_run_starts_within_a_second_of_a_release(tmp_path: Path) -> None:
    with running(tmp_path / "data", {**PLACES, "SPOT_LOCAL_ZONES": "only", "SPOT_LOCAL_CAPACITY": "only=1"}) as daemon:
        daemon.submit("first", command=["sleep", "600"])
        daemon.wait_status("first", "running")
        daemon.submit("second", command=["true"])
        told = daemon.wait_status("second", "waiting")
        assert (told["cause"], told["next_action"]["what"]) == ("queued", "queued")
        daemon.call("POST", "/v1/runs/first/stop")
        daemon.wait_status("first", "stopped")
        daemon.wait_status("second", "completed")
        gone = daemon.call("GET", "/v1/runs/first/attempts")["attempts"][0]["gone_at"]
        asked = daemon.call("GET", "/v1/runs/second/attempts")["attempts"][0]["requested_at"]
        assert _seconds(asked) - _seconds(gone) < 1.0


def _seconds(moment: str) -> float:
    return datetime.fromisoformat(moment).timestamp()
