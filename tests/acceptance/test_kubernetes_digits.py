"""A training as Jobs of a cluster, over a preemption by a pod of a higher priority: the same weights as without
interruption, bit for bit. The cluster is the tests' own; supervisor, agent and training are real processes."""

from __future__ import annotations

import hashlib
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.contract import runfiles
from supervisor.providers.kubernetes.publishing import CHECKPOINT_LABEL
from tests.acceptance.cloud_story import training, twin
from tests.acceptance.daemon import QUICK
from tests.acceptance.digits_lab import DigitsLab
from tests.kubernetes.cluster import IMAGE, SPOT, Cluster
from tests.kubernetes.jobs import is_over
from tests.kubernetes.kinds import JOB
from tests.kubernetes.processes import ProcessRuntime
from tests.waiting import wait_for


class Lab(DigitsLab):
    """`shared`: the folder of the claim, which supervisor and pods mount at the same path."""

    def __init__(self, folder: Path, shared: Path) -> None:
        self.folder, self.objects = folder, shared / "objects"
        self.cluster = Cluster(runtime=ProcessRuntime(folder / "cluster"))
        self.cluster.add_claim("checkpoints")
        self.cluster.api.verbs.priorities["low"] = 0
        self.cluster.run()
        environ = {
            **QUICK,
            "SPOT_PROVIDER": "kubernetes",
            "SPOT_KUBERNETES_KUBECONFIG": str(self.cluster.kubeconfig(folder)),
            "SPOT_KUBERNETES_POOLS": f"spot={SPOT}=true",
            "SPOT_KUBERNETES_CPUS": "cpu=6",
            "SPOT_KUBERNETES_CLAIM": "checkpoints",
            "SPOT_KUBERNETES_CLAIM_MOUNT": str(shared),
            "SPOT_KUBERNETES_GRACE_S": "20",
            "SPOT_KUBERNETES_PRIORITY_CLASS": "low",
            "SPOT_STORE_URL": f"file://{self.objects}",
            "SPOT_BEAT_STORE_S": "1",
        }
        super().__init__(folder / "data", environ)

    def submit(self) -> None:
        command = training(self.folder / "gate")
        self.spot(
            "submit", "--run-id", "digits", "--code", ".", "--image", IMAGE, "--result", "weights.npz", "--", *command
        )

    def logs(self) -> str:
        logs = [path.read_text()[-2000:] for path in (self.folder / "cluster").glob("pods/*/log")]
        return "\n".join([*logs, super().logs()])

    def trains(self, attempt: int, step: int) -> Any:
        """A checkpoint of this attempt is in the store."""

        def holds(run: Any) -> bool:
            return (
                len(self.attempts()) == attempt and run["status"] == "running" and (run["checkpoint_step"] or 0) >= step
            )

        return self.until(holds, f"attempt {attempt} to train")

    def shows_its_checkpoint(self) -> bool:
        """To the schedulers of the cluster, on Job and pod."""
        with self.cluster.lock:
            living = [*self.cluster.objects.of(JOB), *self.cluster.pods()]
            times = {each["metadata"]["labels"].get(CHECKPOINT_LABEL, "0") for each in living}
            return len(times) == 1 and 0 <= time.time() - int(times.pop()) < 120.0

    def has_ended(self) -> bool:
        """No pod of a Job runs, and each Job that is left removes itself, with its Secret."""
        with self.cluster.lock:
            jobs = self.cluster.objects.of(JOB)
            assert all(job["spec"]["ttlSecondsAfterFinished"] for job in jobs)
            return all(is_over(job) and not self.cluster.pods(job["metadata"]["name"]) for job in jobs)


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    # A claim is mounted at a path of its own, and the tests' folders may lie in /dev/shm, which each pod has.
    with tempfile.TemporaryDirectory(prefix="claim-", dir="/var/tmp") as shared:
        lab = Lab(tmp_path, Path(shared))
        yield lab
        lab.daemon.close()
        lab.cluster.close()


def test_the_weights_are_the_same_over_a_preemption(lab: Lab, tmp_path: Path) -> None:
    lab.submit()
    lab.trains(1, 10)
    lab.cluster.submit_prod("prod-1", seconds=600.0)
    lab.cluster.submit_prod("prod-2", seconds=1.0)
    run = lab.trains(2, 20)
    assert run["checkpoint_step"] > 10
    (lab.folder / "gate").touch()
    run = lab.until(lambda run: run["status"] == "completed", "digits to complete")
    assert run["status_text"].startswith("Completed"), run["status_text"]
    assert [attempt["cause"] for attempt in lab.attempts()] == ["preempted", "finished"], lab.events()
    weights = lab.objects / runfiles.results("digits", 1) / "weights.npz"
    assert hashlib.sha256(weights.read_bytes()).hexdigest() == twin()
    wait_for(lab.has_ended, 60, "all Jobs to end")


def test_a_stop_lets_the_training_save_and_leaves_no_job(lab: Lab) -> None:
    lab.submit()
    lab.trains(1, 10)
    wait_for(lab.shows_its_checkpoint, 30, "the label of its checkpoint")
    lab.spot("stop", "digits")
    lab.daemon.wait_status("digits", "stopped")
    (attempt,) = lab.attempts()
    assert attempt["cause"] == "stop_requested"
    wait_for(lab.has_ended, 60, "the Job to end")
    lines = {line["name"]: line["result"] for line in lab.daemon.call("GET", "/v1/doctor")["checks"]}
    assert "fail" not in lines.values(), lines
