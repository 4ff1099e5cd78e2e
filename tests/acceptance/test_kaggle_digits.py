"""A training over two sessions of Kaggle: the first ends at its cap, the second completes it, and the weights are the
same as without interruption, bit for bit. The supervisor, its door, Kaggle's client, the cell, the agent and the
training are real; Kaggle is the tests' own."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from supervisor.contract import runfiles
from tests.acceptance.cloud_story import training, twin
from tests.acceptance.daemon import QUICK, Daemon
from tests.acceptance.digits_lab import DigitsLab
from tests.kaggle.service import TOKEN, USER
from tests.kaggle.sessions import RunningKaggle
from tests.providers.sshd import free_port
from tests.waiting import wait_for

CAP_S = 16.0  # the agent leaves after 7.2 s
SLACK_S = 120.0  # a slow computer: the agent is to leave, not the session to be cut off


class KaggleDaemon(Daemon):
    module = "tests.kaggle"


class Lab(DigitsLab):
    def __init__(self, folder: Path, shape: str, environ: Mapping[str, str] | None = None) -> None:
        self.folder, self.objects = folder, folder / "objects"
        self.kaggle = RunningKaggle(folder / "sessions")
        self.kaggle.kaggle.slack_s = SLACK_S
        token = folder / "token"
        token.write_text(TOKEN)
        token.chmod(0o600)
        port = free_port()
        settings = {
            **QUICK,
            "TEST_KAGGLE_URL": self.kaggle.url,
            "SPOT_PROVIDER": "kaggle",
            "SPOT_KAGGLE_USER": USER,
            "SPOT_KAGGLE_TOKEN": f"file:{token}",
            "SPOT_KAGGLE_SHAPES": shape,
            "SPOT_KAGGLE_SESSION_CAP_S": f"{CAP_S:g}",
            "SPOT_STORE_URL": f"file://{self.objects}",
            "SPOT_PUBLIC_URL": f"http://127.0.0.1:{port}",
            "SPOT_BEAT_STORE_S": "1",
            **(environ or {}),
        }
        self.daemon = KaggleDaemon(folder / "data", settings)
        self.daemon.port = port
        self.daemon.start()

    def logs(self) -> str:
        machines = self.kaggle.sessions.machines.values()
        return "\n".join([*(machine.output[-2000:] for machine in machines), super().logs()])

    def close(self) -> None:
        self.daemon.close()
        self.kaggle.close()


@pytest.fixture
def lab(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Lab]:
    lab = Lab(tmp_path, getattr(request, "param", "cpu"))
    yield lab
    lab.close()


def test_the_weights_are_the_same_over_the_cap_of_a_session(lab: Lab, tmp_path: Path) -> None:
    gate, kaggle = tmp_path / "gate", lab.kaggle.kaggle
    lab.spot("submit", "--run-id", "digits", "--code", ".", "--result", "weights.npz", "--", *training(gate))
    lab.until(lambda run: len(lab.attempts()) == 2 and run["status"] == "running", "the second session")
    gate.touch()
    run = lab.until(lambda run: run["status"] == "completed", "digits to complete")
    assert run["status_text"].startswith("Completed"), run["status_text"]
    first, second = lab.attempts()
    assert [first["cause"], second["cause"]] == ["expired", "finished"], lab.events()
    assert second["step_from"] == first["step_last"] > 0, "it has saved in time"
    assert kaggle.pushes == 2
    weights = lab.objects / runfiles.results("digits", 1) / "weights.npz"
    assert hashlib.sha256(weights.read_bytes()).hexdigest() == twin()
    wait_for(lambda: not kaggle.notebooks, 60, "the notebooks to be deleted")
    shown = "".join(machine.output for machine in lab.kaggle.sessions.machines.values())
    assert TOKEN not in shown


@pytest.mark.parametrize("lab", ["t4"], indirect=True)
def test_a_session_on_the_wrong_accelerator_leaves_at_once_and_is_pushed_again_once(lab: Lab) -> None:
    lab.kaggle.sessions.gpus = ("Tesla P100-PCIE-16GB",)
    lab.spot("submit", "--run-id", "digits", "--code", ".", "--", "python3", "train.py")
    run = lab.until(lambda run: run["status"] == "failed", "digits to fail")
    assert [attempt["cause"] for attempt in lab.attempts()] == ["launch_rejected", "launch_rejected"], lab.events()
    assert "1 × T4 was asked for, and the session has 1 × Tesla P100" in run["status_text"]
    assert lab.kaggle.kaggle.pushes == 2
