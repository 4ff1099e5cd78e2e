"""A training over two sessions of Kaggle that have no network at all, not even loopback: the first ends at its cap, its
output is fetched, the second begins with it and completes, and the weights are the same as without interruption."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.contract import runfiles
from tests.acceptance.cloud_story import training, twin
from tests.acceptance.test_kaggle_digits import Lab
from tests.kaggle.service import TOKEN
from tests.waiting import wait_for

HOOK = """
import os, sys
trace = os.open(%r, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
os.write(trace, b"begun\\n")
def hook(event, words):
    if event.startswith("socket."):
        os.write(trace, (event + " " + repr(words) + "\\n").encode())
sys.addaudithook(hook)
"""


OUTWARD = ("socket.connect", "socket.getaddrinfo", "socket.gethostby", "socket.sendto", "socket.sendmsg")


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    lab = Lab(tmp_path, "cpu", {"SPOT_KAGGLE_INTERNET": "false"})
    hook = tmp_path / "hook"
    hook.mkdir()
    (hook / "sitecustomize.py").write_text(HOOK % str(tmp_path / "sockets"))
    lab.kaggle.sessions.env["PYTHONPATH"] = str(hook)
    yield lab
    lab.close()


def test_the_weights_are_the_same_over_sessions_without_a_network(lab: Lab, tmp_path: Path) -> None:
    gate, kaggle = tmp_path / "gate", lab.kaggle.kaggle
    lab.spot("submit", "--run-id", "digits", "--code", ".", "--result", "weights.npz", "--", *training(gate))
    run = lab.until(lambda run: "runs without the internet" in run["hold"], "the first session")
    assert run["status"] == "launching"
    lab.until(lambda run: kaggle.pushes == 2, "the second session")
    gate.touch()
    run = lab.until(lambda run: run["status"] == "completed", "digits to complete")
    first, second = lab.attempts()
    assert [first["cause"], second["cause"]] == ["expired", "finished"], lab.events()
    assert second["step_from"] == first["step_last"] > 0, "it has saved in time"
    weights = lab.objects / runfiles.results("digits", 1) / "weights.npz"
    assert hashlib.sha256(weights.read_bytes()).hexdigest() == twin()
    assert kaggle.pushes == 2
    assert f"training from step {second['step_from']} to" in lab.spot("logs", "digits")
    wait_for(lambda: not kaggle.notebooks, 60, "the notebooks to be deleted")
    machines = lab.kaggle.sessions.machines.values()
    assert not any(machine.network for machine in machines)
    lines = (tmp_path / "sockets").read_text().splitlines()
    assert "begun" in lines
    reached = [line for line in lines if line.startswith(OUTWARD)]
    assert reached == [], "nothing is looked up, connected or sent"
    assert all("127.0.0.1" in line for line in lines if line.startswith("socket.bind"))
    assert not any(TOKEN in path.read_text() for path in tmp_path.glob("sessions/*/cell-*.py"))
