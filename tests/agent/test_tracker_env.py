"""Which variables a training gets so that its experiment tracker goes on: a table, and a real life of three attempts
whose event files are all there at the end."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from supervisor.agent import spot_trackers
from supervisor.agent.life import trackers
from supervisor.agent.life.trackers import mlflow_run, tracker_env
from supervisor.agent.machine.folder import MachineFolder
from supervisor.agent.machine.job import Job
from supervisor.domain.run import Files
from supervisor.domain.status import Status
from supervisor.reconciler.acting.launches import tracker_id
from supervisor.services.runs.resume import reopened
from tests.agent.bench import job
from tests.agent.machine_rig import Rig
from tests.agent.test_results_lives import die
from tests.lifecycle.sample_runs import NOW, run_in

ID = "digits-7-0a1b2c"
FOLDER = MachineFolder("/m")
RESULTS = "/m/work/results"
LOCAL = {
    "TENSORBOARD_LOGGING_DIR": f"{RESULTS}/tensorboard",
    "TRACKIO_DIR": f"{RESULTS}/trackio",
    "MLFLOW_RUN_CONTEXT": json.dumps({"spot.run": ID}),
}
WANDB = {"WANDB_RUN_ID": ID, "WANDB_RESUME": "allow"}
FLUSHED = {"WANDB__TRANSACTION_LOG_FLUSH_INTERVAL": "1"}
OFFLINE = {**FLUSHED, "WANDB_DIR": RESULTS}


def given(env: dict[str, str], step: int | None = None, **changes: Any) -> dict[str, str]:
    return tracker_env(env, job(tracker_id=ID, **changes), FOLDER, step)


def test_the_first_attempt_and_every_later_one_get_the_same() -> None:
    assert given({}) == given({}, step=300, attempt=4) == {**LOCAL, **WANDB}


@pytest.mark.parametrize(
    ("env", "step", "expected"),
    [
        ({"WANDB_RUN_ID": "mine"}, 3, {"WANDB_RESUME": "allow"}),
        ({"WANDB_RESUME": "allow"}, 3, {"WANDB_RUN_ID": ID}),
        ({"WANDB_RESUME": "must"}, 3, {}),  # of a run that is not ours
        ({"WANDB_RESUME": "never"}, None, {}),
        ({"WANDB_FORK_FROM": "x?_step=3"}, 3, {}),
        ({"WANDB_RESUME_FROM": "x?_step=3"}, 3, {}),
        ({"WANDB_SWEEP_ID": "s"}, 3, {}),
        ({"WANDB_MODE": "offline"}, 3, {**WANDB, **OFFLINE}),
        ({"WANDB_MODE": "offline", "WANDB_DIR": "/mine"}, 3, {**WANDB, **FLUSHED}),
        ({"SPOT_TRACKER": "rewind"}, 300, {"WANDB_RUN_ID": ID, "WANDB_RESUME_FROM": f"{ID}?_step=300"}),
        ({"SPOT_TRACKER": "rewind"}, None, WANDB),  # nothing was restored
        ({"SPOT_TRACKER": "rewind", "WANDB_MODE": "offline"}, 300, {**WANDB, **OFFLINE}),
        ({"SPOT_TRACKER": "rewind", "WANDB_RESUME": "allow"}, 300, {"WANDB_RUN_ID": ID}),
        ({"SPOT_TRACKER": "rewind", "WANDB_RUN_ID": "mine"}, 300, {"WANDB_RESUME_FROM": "mine?_step=300"}),
    ],
)
def test_what_is_set_already_stays(env: dict[str, str], step: int | None, expected: dict[str, str]) -> None:
    added = given(env, step)
    assert {name: value for name, value in added.items() if name.startswith("WANDB_")} == expected
    assert not added.keys() & env.keys()


def test_every_variable_may_be_the_users() -> None:
    everything = given({"WANDB_MODE": "offline"}, group="sweep-3")
    for name in everything:
        assert name not in given({"WANDB_MODE": "offline", name: "mine"}, group="sweep-3")


def test_runs_of_one_group_are_one_group_in_the_tracker() -> None:
    added = given({}, group="sweep-3")
    assert added["WANDB_RUN_GROUP"] == "sweep-3"
    assert json.loads(added["MLFLOW_RUN_CONTEXT"]) == {"spot.run": ID, "spot.group": "sweep-3"}


def test_a_server_of_trackio_needs_no_folder() -> None:
    assert "TRACKIO_DIR" not in given({"TRACKIO_SERVER_URL": "https://trackio.test"})


def test_nothing_is_set_where_it_is_switched_off_or_the_supervisor_is_older() -> None:
    assert given({"SPOT_TRACKER": "off"}) == {}
    assert tracker_env({}, job(), FOLDER, 3) == {}


PRINTS = "#!/bin/sh\necho 'a line of a library'\n%s\n"


@pytest.mark.parametrize(
    ("script", "added"),
    [
        ("echo 0f3a9b", {"MLFLOW_RUN_ID": "0f3a9b"}),
        ("echo", {}),
        ("echo '../../x'", {}),
        ("echo 0f3a9b; exit 1", {}),
        ("sleep 60", {}),
    ],
)
def test_the_run_of_mlflow_is_found_by_the_commands_own_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, added: dict[str, str]
) -> None:
    python = tmp_path / "python3"
    python.write_text(PRINTS % script)
    python.chmod(0o755)
    monkeypatch.setattr(trackers, "ASK_S", 0.5)
    env = {"PATH": f"{tmp_path}:/usr/bin:/bin", "MLFLOW_TRACKING_URI": "http://mlflow.test"}
    assert mlflow_run(env, _later("python3 train.py"), "/") == added


@pytest.mark.parametrize(
    ("env", "changes"),
    [
        ({}, {}),
        ({"MLFLOW_TRACKING_URI": "http://mlflow.test", "MLFLOW_RUN_ID": "mine"}, {}),
        ({"MLFLOW_TRACKING_URI": "http://mlflow.test", "SPOT_TRACKER": "off"}, {}),
        ({"MLFLOW_TRACKING_URI": "http://mlflow.test"}, {"attempt": 1}),
        ({"MLFLOW_TRACKING_URI": "http://mlflow.test"}, {"tracker_id": None}),
    ],
)
def test_mlflow_is_asked_only_where_it_can_know(
    monkeypatch: pytest.MonkeyPatch, env: dict[str, str], changes: dict[str, Any]
) -> None:
    monkeypatch.setattr("subprocess.run", lambda *words, **options: pytest.fail("asked"))
    assert mlflow_run({"PATH": "/usr/bin:/bin", **env}, _later(sys.executable)._replace(**changes), "/") == {}


def _later(command: str) -> Job:
    return job(command=command, attempt=2, launch_id="1.2.1", tracker_id=ID)


EVENTS = """
import os, pathlib, sys, time
checkpoints, events = (pathlib.Path(os.environ[f"SPOT_{name}_DIR"]) for name in ("CHECKPOINT", "TENSORBOARD"))
assert os.environ["TENSORBOARD_LOGGING_DIR"] == str(events), "as the Trainer of Hugging Face reads it"
assert (os.environ["SPOT_TRACKER_ID"], os.environ["WANDB_RUN_ID"]) == ("digits-7-0a1b2c", "mine")
events.mkdir(exist_ok=True)
step = max((int(path.name[5:]) for path in checkpoints.iterdir()), default=0)
with open(events / ("events.out.%s" % os.environ["SPOT_ATTEMPT"]), "a") as writer:
    while step < int(sys.argv[1]):
        step += 1
        writer.write("%d\\n" % step)
        if step % 5 == 0:
            writer.flush()
            (checkpoints / "half.tmp").write_text(str(step))
            (checkpoints / "half.tmp").rename(checkpoints / ("step-%d" % step))
        time.sleep(0.03)
"""


def test_the_event_files_of_every_attempt_are_there_at_the_end(rig: Rig) -> None:
    """Each step once: what an attempt wrote after its last checkpoint is cut off, and the next one writes it."""
    command = [rig.toy()[0], "-S", "-c", EVENTS]
    wanted: dict[str, Any] = {"tracker_id": ID, "env": {"WANDB_RUN_ID": "mine"}}
    rig.start(*command, "1000000", **wanted)
    rig.beat_with("a checkpoint", lambda beat: (beat.checkpoint_step or 0) >= 5)
    die(rig)
    rig.start(*command, "1000000", attempt=2, holder_gone=True, **wanted)
    rig.beat_with("a later one", lambda beat: beat.attempt == 2 and (beat.checkpoint_step or 0) >= 15)
    die(rig)
    rig.start(*command, "40", attempt=3, holder_gone=True, **wanted)
    rig.ended()
    assert rig.baton.done is not None
    folder = rig.baton.done.prefix + "tensorboard/"
    files = {key[len(folder) :]: [int(row) for row in rig.text(key).split()] for key in rig.keys(folder)}
    assert sorted(files) == ["events.out.1", "events.out.2", "events.out.3"]
    assert [step for name in sorted(files) for step in files[name]] == list(range(1, 41))


class Mlflow:
    """What `spot_trackers` asks of MLflow."""

    def __init__(self, *runs: tuple[str, dict[str, str]]) -> None:
        self.asked: list[str] = []
        self._runs = [
            SimpleNamespace(info=SimpleNamespace(run_id=name), data=SimpleNamespace(tags=tags)) for name, tags in runs
        ]

    def search_runs(self, *, search_all_experiments: bool, filter_string: str, output_format: str) -> list[Any]:
        assert (search_all_experiments, output_format) == (True, "list")
        self.asked.append(filter_string)
        return self._runs

    def MlflowClient(self) -> Any:  # noqa: N802 - its name in MLflow
        points = [SimpleNamespace(step=step) for step in (3, 9, 7)]
        return SimpleNamespace(get_metric_history=lambda run_id, name: points if name == "loss" else [])


def test_the_one_line_finds_the_run_by_its_tag(monkeypatch: pytest.MonkeyPatch) -> None:
    nested = ("c", {"mlflow.parentRunId": "a"})
    for runs, found in (((("a", {}), nested), "a"), ((("a", {}), ("b", {})), None), ((), None)):
        mlflow = Mlflow(*runs)
        monkeypatch.setitem(sys.modules, "mlflow", mlflow)
        monkeypatch.setenv("SPOT_TRACKER_ID", ID)
        assert spot_trackers.mlflow_run_id() == found
        assert mlflow.asked == [f"tags.`spot.run` = '{ID}'"]
    assert spot_trackers.mlflow_last_step("a", "loss") == 9
    assert spot_trackers.mlflow_last_step("a", "other") == -1
    assert spot_trackers.mlflow_last_step(None, "loss") == -1


def test_the_one_line_of_trackio(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPOT_TRACKER_ID", raising=False)
    assert spot_trackers.trackio() == spot_trackers.wandb("fold-3") == {}
    assert spot_trackers.mlflow_run_id() is None, "and MLflow is not loaded"
    monkeypatch.setenv("SPOT_TRACKER_ID", ID)
    monkeypatch.setenv("SPOT_GROUP", "sweep-3")
    assert spot_trackers.trackio() == {"name": ID, "resume": "allow", "group": "sweep-3"}
    assert spot_trackers.trackio("fold-3")["name"] == f"{ID}-fold-3"
    fold = {"id": f"{ID}-fold-3", "name": "fold-3", "resume": "allow"}
    assert spot_trackers.wandb("fold-3") == {**fold, "group": "sweep-3"}
    monkeypatch.delenv("SPOT_GROUP")
    assert spot_trackers.wandb("fold-3") == {**fold, "group": ID}


def test_one_id_for_all_generations_until_the_run_starts_over() -> None:
    run = run_in(Status.STOPPED)
    ids = [tracker_id("sup-1", run)]
    for rerun in (False, True, False, True):
        run = replace(reopened(run, run.policy, rerun, None, NOW), status=Status.STOPPED)
        ids.append(tracker_id("sup-1", run))
    first, resumed, over, resumed_over, again = ids
    assert first == resumed != over == resumed_over != again
    assert (over[-3:], again[-3:]) == ("-g3", "-g5")
    assert first.startswith("digits-7-")
    assert tracker_id("sup-2", run_in(Status.STOPPED)) != first, "runs of two supervisors may share a project"
    purged = replace(run_in(Status.STOPPED), files=Files(purging=True))
    assert tracker_id("sup-1", reopened(purged, purged.policy, False, None, NOW)) != first, "it begins from nothing"
