"""Frameworks without a door of their own: one line of the script, or one variable of the spec."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agent.machine_rig import Rig
from tests.frameworks.real.test_unchanged_scripts import SCRIPTS, Life
from tests.frameworks.record import with_callback


def test_accelerate(rig: Rig, python: str) -> None:
    life = Life(rig, python, 'train_accelerate.py "$SPOT_CHECKPOINT_DIR"', rest_s=1.0)
    first = life.preempted_after(50)
    assert first.checkpoint_step >= 20, "a state that was written in place"
    assert "loss" in first.metrics
    life.preempted_after(50)
    assert life.finishes().step == 200


@pytest.fixture
def short_folder() -> Iterator[str]:
    """Ray's sockets need a short path."""
    with tempfile.TemporaryDirectory(prefix="ray", dir="/tmp", ignore_cleanup_errors=True) as folder:
        yield folder


def test_ray(rig: Rig, python: str, short_folder: str) -> None:
    env = {"RAY_TRAIN_CALLBACKS": "spot_frameworks.RayCallback", "RAY_TMPDIR": short_folder}
    life = Life(rig, python, 'train_ray.py "$SPOT_CHECKPOINT_DIR"', env=env)
    first = life.preempted_after(6)
    assert first.total == 30
    assert "loss" in first.metrics
    names = {entry.name.split("/")[0] for entry in rig.baton.checkpoint.files}
    assert names == {"regression"}
    life.preempted_after(6)
    assert life.finishes().step == 30


def test_keras_with_its_callback(rig: Rig, python: str, tmp_path: Path) -> None:
    script = tmp_path / "train_keras_line.py"
    script.write_text(with_callback((SCRIPTS / "train_keras.py").read_text()))
    life = Life(rig, python, "train_keras.py", env={"KERAS_BACKEND": "torch"})
    life.command[2] = f'exec {python} -u {script} "$SPOT_RESULTS_DIR" "$SPOT_CHECKPOINT_DIR"'
    first = life.preempted_after(200)
    assert first.total == 1200
    assert first.checkpoint_step % 50 == 0, "it ended with its epoch"
    life.preempted_after(200)
    assert life.finishes().step == 1200
    assert [int(row["epoch"]) for row in life.rows()] == list(range(24))
