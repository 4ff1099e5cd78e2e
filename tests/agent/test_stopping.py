"""`spot_progress.stopping()`: every process sees an end after its step, and no handler is replaced."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from supervisor.agent import spot_progress
from supervisor.contract import heartbeat
from tests.agent.machine_rig import Rig
from tests.waiting import wait_for

HELPER = Path(str(spot_progress.__file__)).parent

# A step is a slow save. TERM comes in the middle of one; the save must be whole, and the loop must end after it.
LOOP = """
import os, sys, time
import spot_progress
{before}
while not spot_progress.stopping():
    with open("half", "w") as half:
        half.write("begun")
        half.flush()
        time.sleep(0.3)
        half.write(", whole")
    os.rename("half", "whole")
sys.exit(5)
"""


def loop(folder: Path, before: str = "", **env: str) -> subprocess.Popen[bytes]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SPOT_")}
    text = LOOP.format(before=before)
    return subprocess.Popen([sys.executable, "-c", text], cwd=folder, env={**kept, "PYTHONPATH": str(HELPER), **env})


def test_term_ends_a_step_and_not_a_save(tmp_path: Path) -> None:
    training = loop(tmp_path, SPOT_STOP_FILE=str(tmp_path / "stop"))
    wait_for((tmp_path / "half").exists)
    training.send_signal(signal.SIGTERM)
    assert training.wait(30) == 5
    assert (tmp_path / "whole").read_text() == "begun, whole"
    assert not (tmp_path / "half").exists()


def test_without_the_helper_term_cuts_a_save_short(tmp_path: Path) -> None:
    """The broken variant: TERM has no handler."""
    training = loop(tmp_path, "spot_progress.stopping = lambda: False")
    half = tmp_path / "half"
    wait_for(lambda: half.exists() and half.read_text())  # the file exists before its first words do
    training.send_signal(signal.SIGTERM)
    assert training.wait(30) == -signal.SIGTERM
    assert half.read_text() == "begun"


def test_a_handler_of_the_training_stays_its_own(tmp_path: Path) -> None:
    before = "import signal\nsignal.signal(signal.SIGTERM, lambda *_: open('own', 'w').close())"
    training = loop(tmp_path, before, SPOT_STOP_FILE=str(tmp_path / "stop"))
    wait_for((tmp_path / "half").exists)
    training.send_signal(signal.SIGTERM)
    wait_for((tmp_path / "own").exists)
    assert training.poll() is None
    (tmp_path / "stop").touch()  # the file tells it all the same
    assert training.wait(30) == 5


def test_without_an_agent_it_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SPOT_STOP_FILE", raising=False)
    before = signal.getsignal(signal.SIGTERM)
    assert not spot_progress.stopping()
    assert signal.getsignal(signal.SIGTERM) == before


def test_it_may_be_called_in_any_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPOT_STOP_FILE", str(tmp_path / "stop"))
    before, answers = signal.getsignal(signal.SIGTERM), []

    def ask() -> None:
        thread = threading.Thread(target=lambda: answers.append(spot_progress.stopping()))
        thread.start()
        thread.join()

    ask()
    (tmp_path / "stop").touch()
    ask()
    assert answers == [False, True]
    assert signal.getsignal(signal.SIGTERM) == before


RANKS = """
import os, subprocess, sys, time
import spot_progress
rank = "import spot_progress, time\\nwhile not spot_progress.stopping(): time.sleep(0.02)\\nopen('rank', 'w').close()"
other = subprocess.Popen([sys.executable, "-c", rank], start_new_session=True)  # it gets no TERM from the agent
step = 0
while not spot_progress.stopping():
    step += 1
    spot_progress.report(step)
    time.sleep(0.02)
path = os.path.join(os.environ["SPOT_CHECKPOINT_DIR"], "step-%d.txt" % step)
with open(path + ".tmp", "w") as target:
    target.write(str(step))
os.rename(path + ".tmp", path)
spot_progress.checkpoint(path, step)
other.wait(20)
os.rename("rank", os.path.join(os.environ["SPOT_CHECKPOINT_DIR"], ".rank-saw-it"))
sys.exit(1)
"""


@pytest.mark.parametrize("how", ["notice", "term"])
def test_every_rank_of_a_real_training_sees_the_end(rig: Rig, how: str) -> None:
    rig.start(sys.executable, "-c", RANKS)
    rig.beat_with("three steps", lambda beat: (beat.step or 0) >= 3)
    if how == "notice":
        rig.notice(10.0)
    else:
        rig.agent.send_signal(signal.SIGTERM)
    last = rig.ended()
    assert last.left == (heartbeat.NOTICED if how == "notice" else heartbeat.STOPPED)
    assert last.checkpoint_step == last.step
    work = rig.machine / "work"
    assert (work / "stopping").read_text().strip() == last.left
    assert (work / "checkpoints" / ".rank-saw-it").exists()
    assert rig.survivors() == []


LIBRARY = """
import os, signal, sys, time
import spot_progress

def on_term(number, frame):
    there = os.path.exists(os.environ["SPOT_STOP_FILE"])
    with open(os.path.join(os.environ["SPOT_RESULTS_DIR"], "seen"), "w") as target:
        target.write("file" if there else "no file")
    sys.exit(1)

signal.signal(signal.SIGTERM, on_term)
for step in range(1, 10000):
    spot_progress.report(step)
    time.sleep(0.02)
"""


@pytest.mark.parametrize("how", ["notice", "term"])
def test_a_library_with_a_handler_of_its_own_finds_the_file_when_term_comes(rig: Rig, how: str) -> None:
    rig.start(sys.executable, "-c", LIBRARY)
    rig.beat_with("three steps", lambda beat: (beat.step or 0) >= 3)
    if how == "notice":
        rig.notice(10.0)
    else:
        rig.agent.send_signal(signal.SIGTERM)
    last = rig.ended()
    assert (rig.machine / "work" / "results" / "seen").read_text() == "file"
    assert (rig.machine / "work" / "stopping").read_text().strip() == last.left


SLOW_SAVE = """
import os, sys, time
import spot_progress

step = 0
while not spot_progress.stopping():
    step += 1
    spot_progress.report(step, total=10000)
    time.sleep(0.02)
path = os.path.join(os.environ["SPOT_CHECKPOINT_DIR"], "step-%d.txt" % step)
with open(path + ".tmp", "w") as target:
    target.write(str(step))
    time.sleep(1.0)
os.rename(path + ".tmp", path)
sys.exit(1)
"""


@pytest.mark.parametrize("command", ["%s", "cd . && %s | cat", "%s; exit $?"])
@pytest.mark.parametrize("how", ["notice", "term"])
def test_a_shell_that_dies_of_term_leaves_its_training_the_grace(
    rig: Rig, how: str, command: str, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(SLOW_SAVE)
    rig.start(command=command % f"{sys.executable} {script}")
    rig.beat_with("three steps", lambda beat: (beat.step or 0) >= 3)
    if how == "notice":
        rig.notice(10.0)
    else:
        rig.agent.send_signal(signal.SIGTERM)
    last = rig.ended()
    assert last.checkpoint_step == last.step
    assert last.left == (heartbeat.NOTICED if how == "notice" else heartbeat.STOPPED)
    assert last.exit is not None
    assert last.exit.sent_by_us


def test_the_grace_of_a_dead_shells_training_ends_too(rig: Rig) -> None:
    rig.start(command="(trap '' TERM; sleep 600) | cat", stop_grace_s=1.0)
    rig.beat_with("the training", lambda beat: beat.phase == heartbeat.TRAINING)
    rig.agent.send_signal(signal.SIGTERM)
    last = rig.ended(20)
    assert last.left == heartbeat.STOPPED
    assert rig.survivors() == []
