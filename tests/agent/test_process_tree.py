"""The training's processes: real ones, and a fake /proc for states that are rare in a real one."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from supervisor.agent.machine.processes import ProcessTree
from supervisor.contract.beat_telemetry import Tree
from tests.waiting import wait_for

# A command with a child, and a grandchild that has lost its parent: it stays in the session, or leaves it.
FAMILY = """
import os, sys, time, threading
if os.fork() == 0:
    if os.fork() == 0:
        sys.argv[1] == "leaves" and os.setsid()
        time.sleep(60)
    os._exit(0)
os.wait()
for _ in range(3):
    threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
if os.fork() == 0:
    block = b"x" * (30 << 20)
    time.sleep(60)
time.sleep(60)
"""


def start(how: str) -> Iterator[subprocess.Popen[bytes]]:
    child = subprocess.Popen([sys.executable, "-c", FAMILY, how], start_new_session=True)
    try:
        yield child
    finally:
        for pid in _of_session(child.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        child.wait()


def _of_session(leader: int) -> list[int]:
    tree = []
    for path in Path("/proc").iterdir():
        if path.name.isdigit():
            with suppress(OSError):
                if int((path / "stat").read_text().rpartition(")")[2].split()[3]) == leader:
                    tree.append(int(path.name))
    return tree


@pytest.fixture
def family() -> Iterator[subprocess.Popen[bytes]]:
    yield from start("stays")


NOBODYS = -1


def tree_of(pid: int | None, session: int = NOBODYS) -> ProcessTree:
    return ProcessTree(lambda: pid, session=session)


def test_a_real_family_with_its_orphan(family: subprocess.Popen[bytes]) -> None:
    tree = wait_for(
        lambda: (
            (reading := tree_of(family.pid, family.pid).read())
            and (reading.processes, reading.threads) == (3, 6)
            and (reading.rss_bytes or 0) > 40e6
            and reading
        ),
        30,
        "three processes, one of them an orphan, with six threads",
    )
    assert tree.running is not None
    assert tree.running + (tree.disk_wait or 0) <= 3
    assert tree.zombies == tree.stopped == 0
    # Without the session the orphan is nobody's.
    alone = tree_of(family.pid).read()
    assert alone is not None
    assert alone.processes == 2
    assert tree_of(family.pid, family.pid).pids() == sorted(_of_session(family.pid))
    assert tree_of(None).pids() == []
    os.killpg(family.pid, signal.SIGSTOP)
    wait_for(lambda: (s := tree_of(family.pid, family.pid).read()) and s.stopped == 3, 30, "all stopped")
    os.killpg(family.pid, signal.SIGCONT)


def test_a_dead_child_is_shown_beside_the_memory_of_its_living_parent() -> None:
    """One zombie in a tree proves nothing about the command: its parent may not have waited for it yet."""
    code = "import os, time; os.fork() == 0 and os._exit(0); time.sleep(60)"
    with subprocess.Popen([sys.executable, "-c", code]) as command:
        try:
            tree = wait_for(lambda: (reading := tree_of(command.pid).read()) and reading.zombies and reading)
        finally:
            command.kill()
    assert (tree.processes, tree.zombies) == (2, 1)
    assert (tree.rss_bytes or 0) > 0


def test_before_the_command_and_after_it_there_is_no_tree() -> None:
    assert tree_of(None).read() is None
    # Alone, so that the zombie is the command: a family dies in any order, and a zombie may be the first of it.
    with subprocess.Popen(["sleep", "60"]) as command:
        assert tree_of(command.pid).read() is not None
        command.kill()
        # Dead and not waited for yet: a zombie, which is shown.
        tree = wait_for(lambda: (reading := tree_of(command.pid).read()) and reading.zombies and reading)
        assert (tree.processes, tree.zombies, tree.rss_bytes) == (1, 1, 0)
    assert tree_of(command.pid).read() is None


def test_the_agent_itself_is_not_its_training() -> None:
    """Although it is in the same session, and here even the child of the assumed command."""
    assert ProcessTree(os.getpid, session=NOBODYS).read() is None
    with_children = ProcessTree(os.getppid, session=NOBODYS)
    with_children.read()
    assert os.getppid() in with_children._members
    assert os.getpid() not in with_children._members


class Files:
    """A /proc made of files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, pid: int, parent: int, state: str = "S", session: int = 1, name: str = "python") -> None:
        (self.folder / str(pid)).mkdir(exist_ok=True)
        cells = [state, parent, pid, session, *[0] * 13, 2, 0, 0, 5, 100, 0]
        (self.folder / str(pid) / "stat").write_text(f"{pid} ({name}) " + " ".join(map(str, cells)) + "\n")


def test_names_with_brackets_and_torn_files(tmp_path: Path) -> None:
    files = Files(tmp_path)
    files.put(10, 1, "R", name="a) R 1 (b")
    files.put(11, 10, "D")
    files.put(12, 11, "T")
    files.put(13, 12, "t")
    files.put(99, 1)  # another user's
    (tmp_path / "14").mkdir()
    (tmp_path / "15").mkdir()
    (tmp_path / "15" / "stat").write_text("15 (x) S 10")
    (tmp_path / "meminfo").touch()
    tree = ProcessTree(lambda: 10, str(tmp_path))
    assert tree.read() == Tree(4.0, 8.0, 400.0 * os.sysconf("SC_PAGE_SIZE"), 1.0, 1.0, 2.0, 0.0)


def test_a_slow_scan_runs_less_often(tmp_path: Path) -> None:
    files, now = Files(tmp_path), [0.0]

    def clock() -> float:
        now[0] += 0.05  # a full scan takes 0.05 s
        return now[0]

    files.put(10, 1)
    tree = ProcessTree(lambda: 10, str(tmp_path), clock)
    assert (tree.read() or Tree()).processes == 1
    files.put(11, 10)
    now[0] += 10
    assert (tree.read() or Tree()).processes == 1  # no full scan yet: a new child is seen later
    files.put(10, 1, "D")
    assert (tree.read() or Tree()).disk_wait == 1  # the known ones are read meanwhile
    now[0] += 30
    assert (tree.read() or Tree()).processes == 2
