"""A training on a real Slurm cluster, over a preemption by a job of a higher priority, a requeue by hand, a walltime,
a lost connection to the login node, and two preemptions that move it to the cloud: the same weights as without
interruption, bit for bit."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from supervisor.contract import runfiles
from supervisor.contract.stores.folder import FolderStore
from tests.acceptance.cloud_story import STEPS, cloud_story, training, twin
from tests.acceptance.daemon import QUICK
from tests.acceptance.digits_lab import DigitsLab
from tests.acceptance.test_cloud_moves import PAUSE, trains_on
from tests.acceptance.test_ssh_relay import step_in
from tests.providers import stub_apptainer
from tests.providers.slurm_cluster import SlurmCluster, running
from tests.providers.slurm_machines import LoginNode
from tests.waiting import wait_for

CLOCK_OFF = """\
import time
now = time.time
time.time = lambda: now() + 90.0
time.time_ns = lambda: int(time.time() * 1e9)
"""
WALLTIME = {"SPOT_SLURM_TIME": "2"}
RELAY = {
    "SPOT_SLURM_STORE": "relay", "SPOT_SLURM_PARTITIONS": "spot,prod", "login_node": True, "objects": "own",
    "SPOT_POLL_INTERVAL_S": "1",
}  # fmt: skip
CUT_OFF_S = 6.0  # six polls
SECTIONS = """
[providers.lab]
kind = "slurm"
folder = "{folder}"
partitions = ["spot"]
python = "{python}"
conf = "{conf}"

[providers.cloud]
kind = "gce"
"""


class Lab(DigitsLab):
    """`objects`: the supervisor's store, below the folder. `node`: None = this computer is a part of the cluster."""

    def __init__(
        self,
        cluster: SlurmCluster,
        folder: Path,
        settings: Mapping[str, str],
        *,
        objects: str = "shared/objects",
        node: LoginNode | None = None,
    ) -> None:
        self.cluster, self.objects, self.node = cluster, folder / objects, node
        environ = {
            **QUICK,
            "SPOT_PROVIDER": "slurm",
            "SPOT_SLURM_FOLDER": str(folder / "shared"),
            "SPOT_SLURM_PARTITIONS": "spot",
            "SPOT_SLURM_CONF": str(cluster.conf),
            "SPOT_STORE_URL": f"file://{self.objects}",
            "SPOT_BEAT_STORE_S": "1",
            **settings,
        }
        super().__init__(folder / "data", environ)

    def job_ids(self) -> list[str]:
        return self.cluster.run("squeue", "--me", "--noheader", "--format=%i").split()


def python_with(folder: Path, **variables: str) -> Path:
    """The Python of the nodes, with these variables."""
    path = folder / "python-of-nodes"
    exports = "".join(f"export {name}='{value}'\n" for name, value in variables.items())
    path.write_text(f'#!/bin/bash\n{exports}exec {sys.executable} "$@"\n')
    path.chmod(0o700)
    return path


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    with running() as cluster:
        yield cluster


@pytest.fixture
def lab(cluster: SlurmCluster, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Lab]:
    """Its nodes have a clock that is 90 s ahead. A test may give more settings; `login_node`: the supervisor reaches
    the cluster only by SSH; `objects`: where its store is; `container`: jobs run in one, by a stand-in for
    Apptainer."""
    (tmp_path / "ahead").mkdir()
    (tmp_path / "ahead" / "sitecustomize.py").write_text(CLOCK_OFF)
    python = python_with(tmp_path, PYTHONPATH=str(tmp_path / "ahead"))
    settings, node = dict(getattr(request, "param", {})), None
    if settings.pop("login_node", False):
        node = LoginNode(tmp_path)
        settings |= {f"SPOT_{name.upper()}": value for name, value in node.settings.items()}
    if settings.pop("container", False):
        program, image = stub_apptainer.write(tmp_path)
        settings |= {"SPOT_SLURM_APPTAINER": str(program), "SPOT_SLURM_CONTAINERS": f"cpu={image}"}
        python = Path(sys.executable)  # the other one is not in the container
    objects = settings.pop("objects", "shared/objects")
    lab = Lab(cluster, tmp_path, {"SPOT_SLURM_PYTHON": str(python), **settings}, objects=objects, node=node)
    try:
        yield lab
    finally:
        lab.daemon.close()
        cluster.cancel_all()
        if node is not None:
            node.host.stop()


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
    assert hashlib.sha256(weights.read_bytes()).hexdigest() == twin()
    wait_for(lambda: not lab.job_ids(), 60, "all jobs to be gone")
    machines = tmp_path / "shared" / "machines"
    wait_for(lambda: not list(machines.glob("*/secrets.json")), 60, "the last machine's folder to be archived")


@pytest.mark.parametrize("lab", [WALLTIME], indirect=True)
def test_the_weights_are_the_same_over_a_walltime(lab: Lab, tmp_path: Path) -> None:
    """Of two minutes. The warning comes a minute before their end, and Slurm may send it half a minute earlier."""
    gate = tmp_path / "gate"
    lab.spot("submit", "--run-id", "digits", "--code", ".", "--result", "weights.npz", "--", *training(gate))
    lab.until(lambda run: len(lab.attempts()) == 2, "the second attempt")
    gate.touch()
    lab.until(lambda run: run["status"] == "completed", "digits to complete")
    first, second = lab.attempts()
    assert [first["cause"], second["cause"]] == ["expired", "finished"], lab.events()
    assert second["step_from"] == first["step_last"] > 0, "it has saved in time"
    weights = lab.objects / runfiles.results("digits", 1) / "weights.npz"
    assert hashlib.sha256(weights.read_bytes()).hexdigest() == twin()
    wait_for(lambda: not lab.job_ids(), 60, "all jobs to be gone")


@pytest.mark.parametrize("lab", [RELAY], indirect=True)
def test_the_weights_are_the_same_where_the_nodes_cannot_open_the_store(lab: Lab, tmp_path: Path) -> None:
    """The connection is lost in the middle, and the training goes on; then the other partition preempts it. Both
    attempts work in one folder on the cluster, and everything is here in the end."""
    gate = tmp_path / "gate"
    lab.spot("submit", "--run-id", "digits", "--code", ".", "--result", "weights.npz", "--", *training(gate))
    lab.until(lambda run: (run["checkpoint_step"] or 0) >= 10, "a first checkpoint")
    assert lab.node is not None
    here = FolderStore(lab.objects)
    (stay,) = (tmp_path / "shared" / "stays").iterdir()
    there = FolderStore(stay / "store")
    (job,) = (tmp_path / "shared" / "machines").glob("*/job.json")
    assert json.loads(job.read_text())["store_url"] == there.url

    lab.node.host.stop()
    before, copied = step_in(there), step_in(here)
    wait_for(lambda: step_in(there) > before, 60, "the training to go on")
    time.sleep(CUT_OFF_S)
    run = lab.daemon.run("digits")
    assert (run["status"], run["counters"]["attempts"]) == ("running", 1), lab.events()
    assert step_in(here) <= max(before, copied), "nothing can have come"
    lab.node.host.start()
    wait_for(lambda: step_in(here) > before, 60, "the copy to follow")

    lab.cluster.submit_prod(2.0)
    lab.until(lambda run: len(lab.attempts()) == 2, "the second attempt")
    gate.touch()
    lab.until(lambda run: run["status"] == "completed", "digits to complete")
    assert [attempt["cause"] for attempt in lab.attempts()] == ["preempted", "finished"], lab.events()
    assert lab.attempts()[1]["step_from"] == lab.attempts()[0]["step_last"]
    weights = lab.objects / runfiles.results("digits", 1) / "weights.npz"
    assert hashlib.sha256(weights.read_bytes()).hexdigest() == twin()
    assert next(here.pages(f"{runfiles.folder('digits')}logs/")).objects, "the logs are here too"
    wait_for(lambda: not stay.exists(), 60, "the folder on the cluster to be gone")


def test_two_preemptions_within_an_hour_move_a_run_to_the_cloud(cluster: SlurmCluster, tmp_path: Path) -> None:
    """From the scavenger partition to spot machines, with one object store."""
    python, file = tmp_path / "python-of-nodes", tmp_path / "spot.toml"
    file.write_text(SECTIONS.format(folder=tmp_path / "shared", python=python, conf=cluster.conf), encoding="utf-8")
    escalate = ("--escalate-after", "2", "--escalate-within", "1h", "--escalate-to", "next_provider")
    with cloud_story(tmp_path, {"SPOT_PROVIDER": None, "SPOT_CONFIG": str(file), **PAUSE}) as story:
        login = {"STORAGE_EMULATOR_HOST": story.cloud.storage.url, **story.cloud.metadata.environment()}
        python_with(tmp_path, **login)
        story.spot(
            "submit", "--run-id", "digits", "--code", ".", "--image", story.cloud.image("train:1"),
            "--provider=lab", "--provider=cloud", *escalate, "--result", "weights.npz",
            "--", *training(story.gate("digits")),
        )  # fmt: skip
        for number in (1, 2):
            assert trains_on(story, "digits", number) == "lab"
            cluster.submit_prod(1.0)
        assert trains_on(story, "digits", 3) == "cloud", story.told("digits")
        story.completed("digits")
        attempts = story.attempts("digits")
        assert [attempt["placement"]["provider"] for attempt in attempts] == ["lab", "lab", "cloud"]
        assert [attempt["cause"] for attempt in attempts] == ["preempted", "preempted", "finished"]
        assert "the next provider first, after 2 preemptions within 1 h" in story.told("digits")
        assert story.weights("digits") == twin()
        assert story.cloud.compute.names() == []
        jobs = ("squeue", "--me", "--noheader", "--format=%i")
        wait_for(lambda: not cluster.run(*jobs), 60, "all jobs to be gone")


@pytest.mark.parametrize("lab", [{}, {"container": True}], ids=["on the node", "in a container"], indirect=True)
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
