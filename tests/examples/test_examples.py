"""The examples under a real agent: steps are reported, a notice leads to a save at the end of a step, the next attempt
continues exactly there, and the result is that of a training without interruption.

torch, transformers and lightning are gigabytes and are not installed where these tests run. The modules under stubs/
replace them: they have the names, the order of calls and the way of writing checkpoints of the real ones, and nothing
else. So these tests prove the examples' own logic. That the real libraries behave like the stubs was checked in their
sources and is not proved here.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from supervisor.contract import heartbeat
from tests.agent.conftest import archive, compiled, rig  # noqa: F401 - fixtures
from tests.agent.machine_rig import Rig

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "examples"
HELPER = HERE.parents[1] / "supervisor" / "agent" / "spot_progress.py"
FILES = ("pytorch/train.py", "huggingface/callback.py", "lightning/callback.py")
SCRIPTS = {
    "pytorch": (EXAMPLES / "pytorch" / "train.py", 1000, "model.pt", "0.002"),
    "huggingface": (HERE / "train_huggingface.py", 200, "total", "0.01"),
    "lightning": (HERE / "train_lightning.py", 200, "total", "0.01"),
}


def weights_of_an_uninterrupted_training(folder: Path) -> bytes:
    """Of the plain script without a supervisor and without SPOT_ variables."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SPOT_")}
    env = {**kept, "PYTHONPATH": os.pathsep.join([str(HERE / "stubs"), str(HELPER.parent)])}
    subprocess.run([sys.executable, str(SCRIPTS["pytorch"][0])], cwd=folder, env=env, check=True, timeout=60)
    return (folder / "model.pt").read_bytes()


@pytest.mark.parametrize("how", ["notice", "stop"])
@pytest.mark.parametrize("name", list(SCRIPTS))
def test_a_training_that_must_leave_loses_no_step(
    name: str,
    how: str,
    rig: Rig,  # noqa: F811
    tmp_path: Path,
) -> None:
    script, steps, result, delay_s = SCRIPTS[name]
    path = os.pathsep.join([str(HERE / "stubs"), str(EXAMPLES / name)])
    job = {"env": {"PYTHONPATH": path, "STUB_STEP_S": delay_s}, "beat_push_s": 0.1}
    rig.start(sys.executable, str(script), **job)
    rig.beat_with("30 steps", lambda beat: (beat.step or 0) >= 30)
    if how == "notice":
        rig.notice(25.0)  # Google gives 30 s; a busy computer needs some of them to end a Python process
    else:
        rig.agent.send_signal(signal.SIGTERM)
    first = rig.ended()
    left = {"notice": heartbeat.NOTICED, "stop": heartbeat.STOPPED}
    assert (first.left, first.total) == (left[how], steps)
    assert first.checkpoint_step == first.step, "it has saved at the end of its last step"
    assert first.exit is not None
    # The file exists before TERM: a training that reads it may get TERM when Python has removed its handlers.
    assert first.exit.sent_by_us
    assert first.exit.code == 1 or first.exit.signal == signal.SIGTERM
    saved = rig.baton.checkpoint
    assert saved is not None
    assert saved.step == first.step

    rig.start(sys.executable, str(script), attempt=2, **job)
    last = rig.ended(60)
    assert (last.phase, last.step, last.resumed_from) == (heartbeat.FINISHED, steps, saved.step)
    done = rig.baton.done
    assert done is not None
    told = rig.store.get(done.prefix + result)[0]
    if name == "pytorch":
        assert told == weights_of_an_uninterrupted_training(tmp_path)
    else:
        assert int(told) == steps * (steps + 1) // 2, "no step was lost, none was done twice"
    assert rig.survivors() == []


# For each training: its arguments, and a step just before a regular save.
MOMENTS = {
    "pytorch": ([], 49),
    "huggingface": ([], 19),
    "lightning": ([], 19),
    "digits": (["--steps", "60", "--checkpoint-every", "20"], 19),
}


def stopped_at_50_moments(name: str, folder: Path, *options: str, term_apart: int = 0) -> list[list[int]]:
    """[last step, saved step, exit code] for each moment."""
    arguments, from_step = MOMENTS[name]
    script = EXAMPLES / "digits" / "train.py" if name == "digits" else SCRIPTS[name][0]
    path = [str(HERE / "stubs"), str(EXAMPLES / name), str(HELPER.parent)]
    kept = {key: value for key, value in os.environ.items() if not key.startswith("SPOT_")}
    told = subprocess.run(
        [
            sys.executable, str(HERE / "moments.py"), str(folder), str(script), *arguments, *options,
            "--from-step", str(from_step), "--term-apart", str(term_apart), "--watch", *path,
        ],
        env={**kept, "PYTHONPATH": os.pathsep.join(path)}, check=True, timeout=120, capture_output=True,
    )  # fmt: skip
    return [json.loads(line) for line in told.stdout.splitlines()]


@pytest.mark.parametrize("term_apart", [0, 7])
@pytest.mark.parametrize("name", list(MOMENTS))
def test_the_last_checkpoint_is_saved_at_50_of_50_moments(name: str, term_apart: int, tmp_path: Path) -> None:
    ends = stopped_at_50_moments(name, tmp_path, term_apart=term_apart)
    assert len(ends) == 50
    assert len({step for step, _, _ in ends}) > 1, "the moments lie in several steps"
    assert [end for end in ends if end[0] != end[1] or end[2] == 0] == []


def test_a_lightning_callback_without_a_save_at_exceptions_loses_some(tmp_path: Path) -> None:
    """The broken variant: TERM comes after the check of one batch, and Lightning does not check again."""
    ends = stopped_at_50_moments("lightning", tmp_path, "--broken")
    assert 1 <= len([end for end in ends if end[0] == end[1]]) < 50


@pytest.mark.parametrize("name", FILES)
def test_an_example_is_one_idea_on_few_lines(name: str) -> None:
    text = (EXAMPLES / name).read_text()
    # A library that handles TERM itself needs a second place for a save.
    assert len(text.splitlines()) <= (45 if name.startswith("lightning") else 40)
    assert "os.rename(" in text, "a checkpoint appears by rename"
    assert re.search(r"spot_progress\.(report|stopping)\(", text)


def test_every_example_has_its_line_in_the_readme() -> None:
    readme = (EXAMPLES.parent / "README.md").read_text()
    assert [name for name in FILES if f"examples/{name}" not in readme] == []
