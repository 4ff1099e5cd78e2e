"""`spot smoke`, and `--smoke` of a submit: the user's own command, twice, before anything is rented."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from supervisor.api.shapes.bodies import SmokeBody
from tests.cli.fake_api import a_run
from tests.providers.local_machines import alive

GOOD = """\
import os, sys
from pathlib import Path
import spot_progress

saved = Path(os.environ["SPOT_CHECKPOINT_DIR"]) / "step"
first = int(saved.read_text()) if saved.exists() else 0
last = first + int(sys.argv[1])
for step in range(first + 1, last + 1):
    spot_progress.report(step)
saved.write_text(str(last))
"""
STARTS_OVER = GOOD.replace("int(saved.read_text()) if saved.exists() else 0", "0")
SAVES_NOTHING = GOOD.replace("saved.write_text(str(last))", "")
REPORTS_NOTHING = GOOD.replace("    spot_progress.report(step)", "    pass")
HIDES_ITS_ERROR = "import traceback\ntry:\n    1 / 0\nexcept ZeroDivisionError:\n    traceback.print_exc()\n"


@pytest.fixture
def folder(clean: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    code = tmp_path / "code"
    code.mkdir()
    monkeypatch.chdir(code)
    return code


def smoke(run_cli, folder: Path, script: str, *options: str, words: tuple[str, ...] = ("3",)):
    (folder / "train.py").write_text(script)
    return run_cli("smoke", *options, "--", sys.executable, "train.py", *words)


def test_a_training_that_resumes_passes(run_cli, folder: Path) -> None:
    ended = smoke(run_cli, folder, GOOD)
    assert ended.code == 0, ended.err
    assert "the first start reported steps 1 to 3, and the second went on at step 4" in ended.err
    assert sorted(path.name for path in folder.iterdir()) == ["train.py"], "it ran in a copy"


def test_a_training_that_starts_over_is_refused(run_cli, folder: Path) -> None:
    ended = smoke(run_cli, folder, STARTS_OVER)
    assert ended.code == 1
    assert "DOES_NOT_RESUME" in ended.err
    assert "the first start reported steps 1 to 3, and the second one began at step 1 again" in ended.err


def test_a_training_without_a_checkpoint_is_refused(run_cli, folder: Path) -> None:
    ended = smoke(run_cli, folder, SAVES_NOTHING)
    assert "DOES_NOT_RESUME" in ended.err
    assert "wrote no checkpoint into SPOT_CHECKPOINT_DIR" in ended.err


def test_without_steps_the_resume_is_not_claimed(run_cli, folder: Path) -> None:
    ended = smoke(run_cli, folder, REPORTS_NOTHING)
    assert ended.code == 0
    assert "whether it resumes was not checked" in ended.err


def test_a_failure_shows_the_last_lines(run_cli, folder: Path) -> None:
    ended = smoke(run_cli, folder, "raise SystemExit('no module named lightening')")
    assert ended.code == 1
    assert "SMOKE_FAILED" in ended.err
    assert "ended with exit code 1" in ended.err
    assert "no module named lightening" in ended.err


def test_a_traceback_counts_also_with_exit_code_0(run_cli, folder: Path) -> None:
    ended = smoke(run_cli, folder, HIDES_ITS_ERROR)
    assert "SMOKE_FAILED" in ended.err
    assert "ZeroDivisionError" in ended.err


def test_a_smoke_that_does_not_end_is_ended_with_everything_it_started(run_cli, folder: Path, tmp_path: Path) -> None:
    note = tmp_path / "pid"
    script = "import subprocess, time\nchild = subprocess.Popen(['sleep', '3600'])\n"
    script += f"open({str(note)!r}, 'w').write(str(child.pid))\ntime.sleep(3600)\n"
    ended = smoke(run_cli, folder, script, "--limit", "3s")
    assert "did not end within 3 s" in ended.err
    pid = int(note.read_text())
    for _ in range(200):
        if not alive(pid):
            break
        time.sleep(0.05)
    assert not alive(pid)


def test_it_runs_on_the_cpu_and_without_trackers(run_cli, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_MODE", "online")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    script = (
        "import os\nassert os.environ['WANDB_MODE'] == 'disabled'\nassert os.environ['CUDA_VISIBLE_DEVICES'] == ''\n"
    )
    script += "assert os.environ['MINE'] == '1'\nassert 'SPOT_TOKEN' not in os.environ\n"
    ended = smoke(run_cli, folder, script + GOOD, "-e", "MINE=1")
    assert ended.code == 0, ended.err


def test_a_submit_runs_it_first_and_sends_nothing_when_it_fails(api, spot, folder: Path) -> None:
    (folder / "train.py").write_text(STARTS_OVER)
    command = f"{sys.executable} train.py 2"
    ended = spot("submit", "--code", ".", "--smoke", command, "--", sys.executable, "train.py", "100")
    assert ended.code == 1
    assert "DOES_NOT_RESUME" in ended.err
    assert [request for request in api.requests if request[0] == "POST"] == []


def test_the_hash_of_code_cannot_be_tried(api, spot, folder: Path) -> None:
    ended = spot("submit", "--code", "a" * 64, "--smoke", "true", "--", "true")
    assert "not here to be tried" in ended.err
    assert os.listdir(folder) == []


def test_a_submit_sends_how_the_smoke_ended(api, spot, folder: Path) -> None:
    (folder / "train.py").write_text(GOOD)
    command = f"{sys.executable} train.py 2"
    api.respond("POST", "/v1/runs", a_run(run_id="digits-7"), 201)
    ended = spot("submit", "--run-id", "digits-7", "--smoke", command, "--", sys.executable, "train.py", "100")
    assert ended.code == 0, ended.err
    [body] = api.bodies("/v1/runs")
    sent = body["smoke"]
    assert (sent["command"], sent["exit_codes"], sent["first_step"], sent["second_from"]) == (command, [0, 0], 2, 3)
    assert sent["computer"]
    assert SmokeBody.model_validate(sent).at.tzinfo is not None
    assert "smoke" not in body["spec"]
