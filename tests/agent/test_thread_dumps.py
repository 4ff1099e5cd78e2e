"""Thread dumps of real processes: registered ones write their stacks, all others continue undisturbed."""

import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from supervisor.agent import spot_progress
from supervisor.agent.facts import dumps
from tests.waiting import wait_for

HELPER = Path(str(spot_progress.__file__))
NUMBER = signal.SIGRTMIN + 5
READY = "\nopen('ready', 'w').close()\nimport time\ntime.sleep(600)"
Start = Callable[[str], int]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Runs a script as a training of the machine in `tmp_path`; its pid once it is ready."""
    (tmp_path / "work" / "threads").mkdir(parents=True)
    env = {**os.environ, "SPOT_MACHINE_DIR": str(tmp_path), "PYTHONPATH": str(HELPER.parent)}
    children: list[subprocess.Popen[bytes]] = []

    def run(script: str) -> int:
        (tmp_path / "script.py").write_text(textwrap.dedent(script) + READY)
        (tmp_path / "ready").unlink(missing_ok=True)
        children.append(subprocess.Popen([sys.executable, "-S", "script.py"], cwd=tmp_path, env=env))
        wait_for((tmp_path / "ready").exists, 30, "the process to be ready")
        return children[-1].pid

    yield run
    for child in children:
        child.kill()
        child.wait()


def folder(tmp_path: Path) -> str:
    return str(tmp_path / "work" / "threads")


def lives(pid: int) -> bool:
    """Neither ended nor a zombie."""
    return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()


def test_a_registered_process_shows_each_thread_with_the_lines_of_its_own_code(tmp_path: Path, start: Start) -> None:
    pid = start(
        """
        import threading
        import spot_progress
        gate = threading.Event()
        threading.Thread(target=gate.wait, daemon=True).start()
        """
    )
    for _ in range(2):  # it may run again
        [dump] = dumps.thread_dumps(folder(tmp_path), [pid])
        assert (dump["pid"], dump["how"]) == (pid, "faulthandler")
        assert dump["command"].endswith("-S script.py")
        assert dump["text"].count("(most recent call first)") == 2
        assert "    time.sleep(600)" in dump["text"].splitlines()
        assert "threading.py" in dump["text"]
        assert "self._cond" not in dump["text"], "lines of the library are not told"
        assert dump["state"].startswith(f"thread {pid}: ")
        assert ", S (sleeping), wchan " in dump["state"]
        assert dump["state"].count("\n") == 0, "the other thread does not wait for a disk"
    assert lives(pid)


@pytest.mark.parametrize("way", ["taken", "ignored", "blocked"])
def test_a_signal_that_is_in_use_is_left_to_its_owner(tmp_path: Path, start: Start, way: str) -> None:
    lines = {
        "taken": "signal.signal(number, lambda *_: open('hit', 'w').close())",
        "ignored": "signal.signal(number, signal.SIG_IGN)",
        "blocked": "signal.pthread_sigmask(signal.SIG_BLOCK, [number])",
    }
    pid = start(f"import signal\nnumber = signal.SIGRTMIN + 5\n{lines[way]}\nimport spot_progress")
    [dump] = dumps.thread_dumps(folder(tmp_path), [pid])
    assert dump["how"] == "proc"
    assert lives(pid)
    assert not (tmp_path / "hit").exists()


EXECS = """
    import os, sys
    if len(sys.argv) == 1:
        import spot_progress
        os.execv(sys.executable, [sys.executable, "-S", "script.py", "again"])
"""
FORKS = "import os, spot_progress\nchild = os.fork()\nif child:\n    open('parent', 'w').write(str(child))"


def test_a_registered_process_is_not_signaled_after_exec(tmp_path: Path, start: Start) -> None:
    pid = start(EXECS)
    assert os.listdir(folder(tmp_path)) == [f"{pid}.{NUMBER}"]
    [dump] = dumps.thread_dumps(folder(tmp_path), [pid])
    assert dump["how"] == "proc"
    assert lives(pid)


def test_a_fork_of_a_registered_process_is_not_signaled(tmp_path: Path, start: Start) -> None:
    start(FORKS)  # ready when the first of the two is
    parent = tmp_path / "parent"
    child = int(wait_for(lambda: parent.exists() and parent.read_text(), 30, "the fork's number"))
    try:
        [dump] = dumps.thread_dumps(folder(tmp_path), [child])
        assert dump["how"] == "proc"
        assert lives(child)
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_stopped_process_is_shown_from_proc_without_a_long_wait(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = start("import spot_progress")
    monkeypatch.setattr(dumps, "_send", lambda *_: pytest.fail("it could not respond"))
    os.kill(pid, signal.SIGSTOP)
    wait_for(lambda: "State:\tT" in Path(f"/proc/{pid}/status").read_text(), 10, "it to stop")
    [dump] = dumps.thread_dumps(folder(tmp_path), [pid])
    assert dump["how"] == "proc"
    assert "T (stopped)" in dump["text"]


def test_an_ended_process_is_left_out(tmp_path: Path) -> None:
    assert dumps.thread_dumps(folder(tmp_path), [2**22 + 1]) == []


@pytest.mark.parametrize("guard", ["_holds", "_catches"])
def test_each_guard_alone_keeps_another_process_alive_and_without_both_it_dies(
    tmp_path: Path, start: Start, monkeypatch: pytest.MonkeyPatch, guard: str
) -> None:
    """The broken variant: a file with its pid exists, like a file of an earlier process with this pid."""
    pid = start("")
    (Path(folder(tmp_path)) / f"{pid}.{NUMBER}").touch()
    monkeypatch.setattr(dumps, guard, lambda *_: True)
    monkeypatch.setattr(dumps, "WAIT_S", 0.2)
    dumps.thread_dumps(folder(tmp_path), [pid])
    assert lives(pid)
    monkeypatch.setattr(dumps, "_holds", lambda *_: True)
    monkeypatch.setattr(dumps, "_catches", lambda *_: True)
    dumps.thread_dumps(folder(tmp_path), [pid])
    wait_for(lambda: not lives(pid), 10, "the signal to be its death")


def test_elsewhere_the_helper_registers_nothing(tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if name != "SPOT_MACHINE_DIR"}
    look = "import spot_progress\nprint(open('/proc/self/status').read())"
    status = subprocess.run(
        [sys.executable, "-S", "-c", look],
        env={**env, "PYTHONPATH": str(HELPER.parent)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    caught = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigCgt"))
    assert not caught >> (NUMBER - 1) & 1
    assert not list(tmp_path.iterdir())
