"""The supervisor is killed with -9 at random moments: no run is lost, no training notices, nothing runs twice."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from tests.acceptance.chaos import Campaign, judge
from tests.acceptance.daemon import Daemon, running


def test_five_kills_over_four_runs(tmp_path: Path) -> None:
    seed = int(os.environ.get("CHAOS_SEED") or random.SystemRandom().randrange(10**6))
    with running(tmp_path / "data") as daemon:
        judge(Campaign(tmp_path, runs=4, kills=5, seed=seed).carry_out(daemon))


def test_the_verdict_can_fail() -> None:
    good = {"runs": 2, "ends": {"completed": 2}, "commands_started": 2, "second_machines": 0}
    judge(good)
    for broken in ({"ends": {"completed": 1, "failed": 1}}, {"commands_started": 3}, {"second_machines": 1}):
        with pytest.raises(AssertionError):
            judge({**good, **broken})


def test_a_second_daemon_on_the_same_folder_names_the_holder(tmp_path: Path) -> None:
    with running(tmp_path / "data") as daemon:
        second = Daemon(tmp_path / "data")
        server_file = (tmp_path / "data" / "server.json").read_text()
        process = second.spawn()
        assert process.wait(60) != 0
        (tmp_path / "data" / "server.json").write_text(server_file)
        assert f"pid {daemon.pid}" in second.log()
        assert daemon.call("GET", "/v1/runs")["runs"] == []
        second.http.close()
