"""A training on a real Slurm cluster, over a preemption by a job of a higher priority and a requeue by hand: the same
weights as without interruption, bit for bit."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.contract import runfiles
from tests import forked
from tests.acceptance.cloud_story import DIGITS, STEPS, twin
from tests.acceptance.daemon import QUICK, Daemon
from tests.acceptance.stories import DONE
from tests.providers.slurm_cluster import SlurmCluster, running
from tests.waiting import wait_for


class Lab:
    def __init__(self, cluster: SlurmCluster, folder: Path) -> None:
        self.cluster, self.objects = cluster, folder / "shared" / "objects"
        environ = {
            **QUICK,
            "SPOT_PROVIDER": "slurm",
            "SPOT_SLURM_FOLDER": str(folder / "shared"),
            "SPOT_SLURM_PARTITIONS": "spot",
            "SPOT_SLURM_PYTHON": sys.executable,
            "SPOT_SLURM_CONF": str(cluster.conf),
            "SPOT_STORE_URL": f"file://{self.objects}",
            "SPOT_BEAT_STORE_S": "1",
        }
        self.daemon = Daemon(folder / "data", environ)
        self.daemon.start()

    def spot(self, *words: str) -> str:
        environ = {name: value for name, value in os.environ.items() if not name.startswith("SPOT_")}
        environ |= {**self.daemon.for_cli(), "NO_COLOR": "1"}
        answer = forked.spot(*words, environ=environ, folder=DIGITS, timeout_s=90)
        assert answer.returncode == 0, answer.stdout + answer.stderr
        return answer.stdout

    def until(self, holds: Callable[[Any], bool], what: str) -> Any:
        def look() -> Any:
            run = self.daemon.run("digits")
            assert run["status"] not in DONE or holds(run), (run["status_text"], self.events())
            return run if holds(run) else None

        try:
            return wait_for(look, 120, what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.events()}\n{self.daemon.log()}") from None

    def events(self) -> str:
        return "\n".join(
            event["text"] for event in self.daemon.call("GET", "/v1/runs/digits/events?limit=200")["events"]
        )

    def job_ids(self) -> list[str]:
        return self.cluster.run("squeue", "--me", "--noheader", "--format=%i").split()

    def attempts(self) -> list[dict[str, Any]]:
        return self.daemon.call("GET", "/v1/runs/digits/attempts")["attempts"]


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    with running() as cluster:
        lab = Lab(cluster, tmp_path)
        yield lab
        lab.daemon.close()


def test_the_weights_are_the_same_over_a_preemption_and_a_requeue_by_hand(lab: Lab, tmp_path: Path) -> None:
    result = ("--result", "weights.npz", "--", sys.executable, "train.py", *STEPS, "--step-delay-s", "0.02")
    lab.spot("submit", "--run-id", "digits", "--code", ".", *result)
    lab.until(lambda run: (run["checkpoint_step"] or 0) >= 5, "a first checkpoint")
    prod = lab.cluster.submit_prod(2.0)
    lab.until(lambda run: len(lab.attempts()) == 2, "the second attempt")
    wait_for(lambda: prod not in lab.job_ids(), 60, "prod to end")
    lab.until(lambda run: run["status"] == "running" and run["checkpoint_step"] >= 60, "a checkpoint of the second")
    (job,) = lab.job_ids()
    lab.cluster.run("scontrol", "requeue", job)
    run = lab.until(lambda run: run["status"] == "completed", "digits to complete")
    assert run["status_text"].startswith("Completed"), run["status_text"]
    assert [attempt["cause"] for attempt in lab.attempts()] == ["preempted", "preempted", "finished"], lab.events()
    assert {attempt["placement"]["zone"] for attempt in lab.attempts()} == {"spot"}
    weights = lab.objects / runfiles.results("digits", 1) / "weights.npz"
    assert hashlib.sha256(weights.read_bytes()).hexdigest() == twin(tmp_path / "twin")
    wait_for(lambda: not lab.job_ids(), 60, "all jobs to be gone")
    assert not list((tmp_path / "shared" / "machines").glob("*/secrets.json"))


def test_a_stop_lets_the_training_save_and_leaves_no_job(lab: Lab) -> None:
    lines = {line["name"]: line["result"] for line in lab.daemon.call("GET", "/v1/doctor")["checks"]}
    assert (lines["cluster"], lines["spot"]) == ("ok", "ok")
    steps = ("--steps", "60000", "--checkpoint-every", "10", "--step-delay-s", "0.05")
    lab.spot("submit", "--run-id", "digits", "--code", ".", "--", sys.executable, "train.py", *steps)
    lab.until(lambda run: (run["checkpoint_step"] or 0) >= 10, "a checkpoint")
    lab.spot("stop", "digits")
    run = lab.daemon.wait_status("digits", "stopped")
    assert run["checkpoint_step"] >= 10
    (attempt,) = lab.attempts()
    assert attempt["cause"] == "stop_requested"
    assert "0 steps lost" in lab.events()
    wait_for(lambda: not lab.job_ids(), 60, "the job to be gone")
