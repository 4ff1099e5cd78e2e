"""Sessions of Kaggle without a network, with the real agent: kills of the supervisor while it fetches, a stop, and a
training that fails."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

from supervisor.contract import runfiles
from tests.acceptance.cloud_story import training, twin
from tests.acceptance.test_kaggle_apart import lab  # noqa: F401 - a fixture
from tests.acceptance.test_kaggle_digits import Lab
from tests.waiting import wait_for


def test_kills_while_an_output_is_fetched(lab: Lab, tmp_path: Path) -> None:  # noqa: F811 - the fixture
    """The supervisor is killed when the first object of an output is in the store, and again when the next one is."""
    gate, kaggle = tmp_path / "gate", lab.kaggle.kaggle
    lab.spot("submit", "--run-id", "digits", "--code", ".", "--result", "weights.npz", "--", *training(gate))
    logs, checkpoints = lab.objects / runfiles.folder("digits") / "logs", lab.objects / runfiles.checkpoints("digits")
    for folder in (logs, checkpoints):
        wait_for(folder.exists, 120, f"the first object in {folder.name}")
        lab.daemon.kill()
        lab.daemon.start()
    lab.until(lambda run: kaggle.pushes == 2, "the second session")
    gate.touch()
    lab.until(lambda run: run["status"] == "completed", "digits to complete")
    assert [attempt["cause"] for attempt in lab.attempts()] == ["expired", "finished"], lab.events()
    weights = lab.objects / runfiles.results("digits", 1) / "weights.npz"
    assert hashlib.sha256(weights.read_bytes()).hexdigest() == twin()
    assert kaggle.pushes == 2


def test_a_stop_waits_for_the_session_and_keeps_its_work(lab: Lab, tmp_path: Path) -> None:  # noqa: F811
    lab.spot("submit", "--run-id", "digits", "--code", ".", "--", *training(tmp_path / "gate"))
    lab.until(lambda run: "runs without the internet" in run["hold"], "the first session")
    lab.spot("stop", "digits", "--yes")
    run = lab.until(lambda run: run["status"] == "stopped", "digits to be stopped")
    assert run["checkpoint_step"] > 0, lab.events()
    assert lab.kaggle.kaggle.pushes == 1
    wait_for(lambda: not lab.kaggle.kaggle.notebooks, 60, "the notebook to be deleted")


def test_a_training_that_fails_says_so(lab: Lab) -> None:  # noqa: F811
    words = ("--", sys.executable, "-c", "raise SystemExit('the data is missing')")
    lab.spot("submit", "--run-id", "digits", "--code", ".", *words)
    run = lab.until(lambda run: run["status"] == "failed", "digits to fail")
    assert "the data is missing" in run["status_text"], lab.events()
