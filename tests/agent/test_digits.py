"""The demo's training: stopped and resumed it learns, bit for bit, the same as without an interruption."""

import hashlib
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.agent.machine_rig import RUN, Rig
from tests.waiting import wait_for

SCRIPT = str(Path(__file__).parents[2] / "examples" / "digits" / "train.py")
STEPS = ("--steps", "90", "--checkpoint-every", "20")


def alone(out: Path, *options: str) -> "subprocess.Popen[str]":
    env = {name: value for name, value in os.environ.items() if not name.startswith("SPOT_")}
    command = [sys.executable, SCRIPT, *STEPS, "--out", str(out), *options]
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("twin")
    with alone(out) as process:
        printed = process.communicate()[0]
    assert process.returncode == 0
    digest = hashlib.sha256((out / "results" / "weights.npz").read_bytes()).hexdigest()
    assert printed.splitlines()[-1] == f"weights sha256 {digest}"
    return out / "results"


def test_it_learns(uninterrupted: Path) -> None:
    assert json.loads((uninterrupted / "metrics.json").read_text())["test_accuracy"] > 0.8


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_interrupted_and_resumed_equals_uninterrupted(tmp_path: Path, uninterrupted: Path, number: int) -> None:
    saved = tmp_path / "checkpoints" / "step-000020.npz"
    with alone(tmp_path, "--step-delay-s", "0.02") as process:
        wait_for(saved.exists, what="the first checkpoint")
        process.send_signal(number)
        process.communicate()
    assert process.returncode == (143 if number == signal.SIGTERM else -signal.SIGKILL)
    assert not (tmp_path / "results" / "weights.npz").exists()
    with alone(tmp_path) as process:
        printed = process.communicate()[0]
    assert process.returncode == 0
    assert "training from step 0 " not in printed
    for name in ("weights.npz", "metrics.json"):
        assert (tmp_path / "results" / name).read_bytes() == (uninterrupted / name).read_bytes()


@pytest.mark.parametrize("kernels", ["Prescott", "Haswell"])
def test_variables_that_choose_the_order_of_sums_have_no_effect(
    tmp_path: Path, uninterrupted: Path, kernels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENBLAS_CORETYPE", kernels)
    with alone(tmp_path) as process:
        process.communicate()
    for name in ("weights.npz", "metrics.json"):
        assert (tmp_path / "results" / name).read_bytes() == (uninterrupted / name).read_bytes()


@pytest.mark.parametrize("how", ["notice", "stop"])
def test_stopped_by_the_agent_and_resumed_it_equals_the_twin(rig: Rig, uninterrupted: Path, how: str) -> None:
    command = [sys.executable, SCRIPT, *STEPS]
    rig.start(*command, "--step-delay-s", "0.02")
    rig.beat_with("a checkpoint", lambda b: b.checkpoint_step is not None)
    if how == "notice":
        rig.notice(10.0)
    else:
        rig.agent.send_signal(signal.SIGTERM)
    first = rig.ended(60)
    assert first.checkpoint_step == first.step
    rig.start(*command, attempt=2)
    last = rig.ended(60)
    assert last.resumed_from == first.step
    assert "loss" in last.metrics
    assert rig.baton.done is not None
    for entry in rig.baton.done.results:
        assert rig.store.get(rig.baton.done.prefix + entry.name)[0] == (uninterrupted / entry.name).read_bytes()
    assert f"runs/{RUN}/results/g1/" == rig.baton.done.prefix
