"""Trackers go on over two lost machines: the real packages, offline, under real agents (`make trackers`).

The first machine disappears, the second one has a notice, the third ends the training.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from supervisor.machinefolder.agent_archive import with_bytecode, write_agent
from tests.agent.machine_rig import Rig
from tests.agent.test_results_lives import die

ROOT = Path(__file__).parents[3]
PYTHON = ROOT / "build" / "trackers" / "bin" / "python"
SCRIPTS = Path(__file__).parents[1] / "scripts"
ID, STEPS = "digits-7-0a1b2c", 60

pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason="`make trackers` installs the packages")


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("agent")
    return with_bytecode(write_agent(folder / "agent.pyz"), folder / "compiled.pyz")


@pytest.fixture
def rig(tmp_path: Path, compiled: Path) -> Iterator[Rig]:
    made = Rig(tmp_path, compiled)
    try:
        yield made
    finally:
        made.close()


def train(rig: Rig, tracker: str, env: dict[str, str] | None = None) -> Path:
    """The folder with the verified results at the end."""
    command = [str(PYTHON), str(SCRIPTS / "train_tracked.py"), tracker, str(STEPS)]
    job: dict[str, Any] = {"tracker_id": ID, "group": "sweep-3", "env": {"WANDB_MODE": "offline", **(env or {})}}
    rig.start(*command, **job)
    rig.beat_with("a checkpoint", lambda beat: (beat.checkpoint_step or 0) >= 10, deadline_s=90)
    die(rig)
    rig.start(*command, attempt=2, holder_gone=True, **job)
    rig.beat_with("later steps", lambda beat: beat.attempt == 2 and (beat.step or 0) >= 23, deadline_s=90)
    rig.notice(30.0)
    assert rig.ended(90).left == "noticed"
    rig.start(*command, attempt=3, holder_gone=True, **job)
    rig.ended(120)
    done = rig.baton.done
    assert done is not None, rig.log(3).decode()
    folder = rig.machine / "pulled"
    for key in rig.keys(done.prefix):
        path = folder / key[len(done.prefix) :]
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(rig.store.get(key)[0])
    return folder


def read(tracker: str, folder: Path) -> dict[str, Any]:
    env = {**os.environ, "TRACKIO_DIR": str(folder / "trackio"), "MPLCONFIGDIR": str(folder)}
    command = [str(PYTHON), str(SCRIPTS / "read_tracked.py"), tracker, str(folder)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(json.loads(done.stdout.strip().rpartition("\n")[2]))


EVERY_STEP = list(range(1, STEPS + 1))


def test_wandb_has_one_run_with_each_step_once(rig: Rig) -> None:
    runs = read("wandb", train(rig, "wandb"))
    assert list(runs) == [ID]
    assert sorted(runs[ID]) == EVERY_STEP


def test_trackio_has_one_run_with_each_step_once(rig: Rig) -> None:
    runs = read("trackio", train(rig, "trackio"))
    assert len(runs) == 1
    assert sorted(*runs.values()) == EVERY_STEP


def test_tensorboard_has_the_events_of_all_attempts_and_each_step_once(rig: Rig) -> None:
    events = read("tensorboard", train(rig, "tensorboard"))
    assert events == {"run": EVERY_STEP, "files": 3}


def test_mlflow_goes_on_in_its_run_and_has_what_was_done_again_twice(rig: Rig, tmp_path: Path) -> None:
    """A database that all machines reach stands for a server."""
    train(rig, "mlflow", {"MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db"})
    runs = read("mlflow", tmp_path)
    assert len(runs) == 1
    count = Counter(*runs.values())
    assert sorted(count) == EVERY_STEP
    assert max(count.values()) <= 2, "once for each lost machine"


def test_one_line_keeps_each_step_of_mlflow_once(rig: Rig, tmp_path: Path) -> None:
    train(rig, "mlflow_once", {"MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db"})
    runs = read("mlflow", tmp_path)
    assert len(runs) == 1
    assert sorted(*runs.values()) == EVERY_STEP


def test_without_a_server_mlflow_is_restored_with_the_checkpoint(rig: Rig) -> None:
    runs = read("mlflow", train(rig, "mlflow_local"))
    assert len(runs) == 1
    assert sorted(*runs.values()) == EVERY_STEP


def test_without_our_variables_each_attempt_is_a_run_of_its_own(rig: Rig, tmp_path: Path) -> None:
    """The same training with the switch off: what these tests would show if nothing were set."""
    train(rig, "mlflow", {"MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db", "SPOT_TRACKER": "off"})
    assert len(read("mlflow", tmp_path)) == 3


SETTINGS = """
import json, os, wandb
settings = wandb.Settings()
settings.update_from_env_vars(dict(os.environ))
moment = settings.resume_from
print(json.dumps([settings.run_id, settings.resume, settings.run_group, moment and [moment.run, moment.value]]))
"""


@pytest.mark.parametrize(
    ("word", "expected"), [("", [ID, "allow", "sweep-3", None]), ("rewind", [ID, None, "sweep-3", [ID, 300]])]
)
def test_wandb_reads_the_variables_as_they_are_meant(tmp_path: Path, word: str, expected: list[Any]) -> None:
    from supervisor.agent.life.trackers import tracker_env
    from supervisor.agent.machine.folder import MachineFolder
    from tests.agent.bench import job

    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "SPOT_TRACKER": word}
    env.update(tracker_env(env, job(tracker_id=ID, group="sweep-3"), MachineFolder(str(tmp_path)), 300))
    done = subprocess.run([str(PYTHON), "-c", SETTINGS], env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == expected
