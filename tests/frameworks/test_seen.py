"""What the real packages were seen to send (seen/*.json, written by record.py), and what the agent makes of it."""

from __future__ import annotations

import importlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from supervisor.agent.checkpoints.folder import CheckpointFolder
from supervisor.agent.checkpoints.layouts import LAST_FILES
from supervisor.agent.machine.folder import MachineFolder
from supervisor.agent.watch.output import Progress
from supervisor.agent.watch.trainerstatus import report_of

SEEN = Path(__file__).parent / "seen"
FRAMEWORKS = ("transformers", "lightning", "keras", "accelerate", "ray")


def seen(name: str) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((SEEN / f"{name}.json").read_text())
    return told


class Machine:
    """The environment of a training, and the module as the agent writes it."""

    def __init__(self, folder: Path, module: ModuleType) -> None:
        self.folder, self.module = folder, module

    def lines(self) -> list[dict[str, Any]]:
        path = self.folder / "progress"
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def saved(self) -> list[str]:
        return sorted(path.name for path in (self.folder / "checkpoints").iterdir())


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    (tmp_path / "checkpoints").mkdir()
    home = MachineFolder(str(tmp_path))
    home.python = str(tmp_path / "python")
    home.write_modules()
    monkeypatch.syspath_prepend(str(tmp_path / "python"))
    monkeypatch.setenv("SPOT_CHECKPOINT_DIR", str(tmp_path / "checkpoints"))
    monkeypatch.setenv("SPOT_PROGRESS_FILE", str(tmp_path / "progress"))
    monkeypatch.delenv("SPOT_STOP_FILE", raising=False)
    monkeypatch.delenv("SPOT_RESUMED_FROM_STEP", raising=False)
    handler = signal.getsignal(signal.SIGTERM)
    yield Machine(tmp_path, importlib.import_module("spot_frameworks"))
    signal.signal(signal.SIGTERM, handler)  # `stopping` has installed its own
    for name in ("spot_frameworks", "spot_progress"):
        sys.modules.pop(name, None)


def test_every_recording_names_its_versions() -> None:
    for name in FRAMEWORKS:
        assert seen(name)["versions"][name]


def test_transformers_says_each_step_and_its_end() -> None:
    total, reports = None, []
    for call in seen("transformers")["calls"]:
        report, total = report_of(call["trainerStatus"], total, False)
        reports.append(report)
    assert reports[0] is None, "its begin names the total only"
    assert total == 60
    steps = [report["step"] for report in reports if report]
    assert steps == sorted(steps)
    assert steps[-1] == total
    names = {name for report in reports if report for name in report.get("metrics", {})}
    assert {"loss", "learning_rate", "grad_norm", "epoch"} <= names
    end, _ = report_of(seen("transformers")["calls"][-1]["trainerStatus"], total, True)
    assert end is None, "a save on TERM ends the same way"


@pytest.mark.parametrize("name", ["transformers", "keras", "ray"])
def test_their_last_file_seals_a_checkpoint(name: str, tmp_path: Path) -> None:
    """The files in the order in which they were written."""
    names = [file for file in seen(name)["files"] if not Path(file).name.startswith(".")]
    folder = CheckpointFolder(str(tmp_path), 10.0, set)
    last = max(index for index, file in enumerate(names) if Path(file).name in LAST_FILES and file.count("/") == 1)
    for clock, file in enumerate(names[: last + 1], start=1):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_text("{}" if file.endswith(".json") else "\x80 not judged")
        path = tmp_path / file
        path.rename(path.with_name("x")) if path.suffix == ".safetensors" else None
        os.utime(path if path.exists() else path.with_name("x"), (clock, clock))
    assert names[last].partition("/")[0] in [candidate.name for candidate in folder.ready(0.0)]


def trainer_of(machine: Machine, call: dict[str, Any]) -> SimpleNamespace:
    """A Trainer with what the real one had at this call."""

    def save(path: str) -> None:
        Path(path).write_text(str(call["global_step"]))

    state = {name: value for name, value in call.items() if name != "hook"}
    return SimpleNamespace(
        **{"estimated_stepping_batches": None, **state}, checkpoint_callbacks=[], callbacks=[], loggers=[],
        should_stop=False, save_checkpoint=save,
    )  # fmt: skip


def replay_lightning(machine: Machine, stop_at: int | None = None) -> list[SimpleNamespace]:
    callback = machine.module._Lightning()
    trainers = []
    callback.setup(SimpleNamespace(callbacks=[callback]), None, "fit")
    for number, call in enumerate(seen("lightning")["calls"]):
        trainer = trainer_of(machine, call)
        trainers.append(trainer)
        if number == stop_at:
            (machine.folder / "stop").touch()
        more = [None] if call["hook"] == "on_save_checkpoint" else []
        getattr(callback, call["hook"])(trainer, None, *more)
        if stop_at is not None and number > stop_at:
            break
    return trainers


def rounded(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The recorded calls have numbers of six places."""
    return [
        {**line, "metrics": {name: round(value, 4) for name, value in line.get("metrics", {}).items()}}
        for line in lines
    ]


def steps_of(lines: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return [(line["step"], line["total"]) for line in lines if "total" in line]


def test_lightning_reports_what_it_did_then(machine: Machine) -> None:
    replay_lightning(machine)
    lines, recorded = machine.lines(), seen("lightning")["lines"]
    assert steps_of(lines)[:8] == steps_of(recorded)[:8]
    assert steps_of(lines)[-3:] == steps_of(recorded)[-3:]
    assert steps_of(lines)[-1] == (600, 600)
    assert "loss" in lines[1]["metrics"]


def test_lightning_saves_and_stops_at_the_end_of_the_step(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPOT_STOP_FILE", str(machine.folder / "stop"))
    hooks = [call["hook"] for call in seen("lightning")["calls"]]
    number = [index for index, hook in enumerate(hooks) if hook == "on_train_batch_end"][5]
    with pytest.raises(SystemExit):
        replay_lightning(machine, stop_at=number)
    step = seen("lightning")["calls"][number]["global_step"]
    assert hooks[number + 1] == "on_train_batch_start", "the row of the step is written by then"
    assert machine.saved() == [f"fit1-step-{step}.ckpt"]
    assert machine.lines()[-1] == {"checkpoint": f"fit1-step-{step}.ckpt", "step": step}


def test_keras_reports_what_it_did_then(machine: Machine) -> None:
    callback = machine.module._Keras()
    calls = seen("keras")["calls"]
    for number, call in enumerate(calls):
        callback.params = call["params"]
        if number == len(calls) // 2:  # what is left out between them
            callback.on_epoch_begin(callback.params["epochs"] - 1)
        getattr(callback, call["hook"])(*call["arguments"])
    lines, recorded = machine.lines(), seen("keras")["lines"]
    assert rounded(lines[:8]) == rounded(recorded[:8])
    assert rounded(lines[-1:]) == rounded(recorded[-1:])
    assert steps_of(lines)[-1] == (1200, 1200)


def test_accelerate_reports_what_it_did_then(machine: Machine) -> None:
    tracker = machine.module._Accelerate()
    for call in seen("accelerate")["calls"]:
        tracker.log(call["values"], step=call["step"])
    assert rounded(machine.lines()) == rounded(seen("accelerate")["lines"])


def test_ray_reports_what_it_did_then(machine: Machine) -> None:
    callback = machine.module._Ray()
    for call in seen("ray")["calls"]:
        callback.after_controller_start(SimpleNamespace(train_loop_config=call["config"]))
        path = str(machine.folder / "checkpoints" / call["checkpoint"])
        callback.after_report(SimpleNamespace(checkpoint=SimpleNamespace(path=path)), call["metrics"])
    recorded = seen("ray")["lines"]
    assert machine.lines()[:8] == recorded[:8]
    assert {line["checkpoint"] for line in recorded if "checkpoint" in line} == {"regression"}


@pytest.mark.parametrize("name", ["lightning", "keras", "accelerate", "ray"])
def test_the_agent_reads_all_of_their_lines(name: str, tmp_path: Path) -> None:
    path = tmp_path / "progress"
    path.write_text("".join(json.dumps(line) + "\n" for line in seen(name)["lines"]))
    progress = Progress(str(path), lambda **changes: None, lambda: 0.0)
    progress.poll()
    assert progress.ignored == 0
    assert progress.step == max(line["step"] for line in seen(name)["lines"] if "step" in line)
