"""Each test runs once, on one of the workers; what goes wrong in a worker is reported."""

import re
import subprocess
import sys
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import scheduling
from tests.scheduling import Scopes

ROOT = Path(__file__).parents[2]
NAMES = [
    *(f"tests/acceptance/test_a.py::test_{number}@stories-a" for number in range(3)),
    *(f"tests/acceptance/test_b.py::test_{number}@stories-a" for number in range(3)),
    *(f"tests/agent/test_c.py::test_it[{number}@b]" for number in range(4)),
    *(f"tests/cli/test_d.py::test_{number}" for number in range(2)),
    *(f"tests/lifecycle/test_e.py::test_{number}" for number in range(5)),
    "tests/storage/test_f.py::test_it",
]
SHARED = """
    import os, pytest

    def note(word):
        with open("notes", "a") as notes:
            notes.write(f"{word} {os.getpid()}\\n")

    @pytest.fixture(scope="session")
    def server():
        note("starts")
        yield
        note("ends")
        BROKEN
"""
FIRST = """
    import os, warnings
    from conftest import note

    def test_one(server, tmp_path):
        note("first")

    def test_fails():
        print("said before")
        assert 1 == 2

    def test_dies():
        os._exit(7)

    def test_after_it(server):
        note("after")

    def test_warns():
        warnings.warn("careful")
"""
SECOND = """
    from conftest import note

    def test_one(server):
        note("second")

    def test_two(server):
        note("second")
"""


def item(name: str) -> Any:
    nodeid, _, group = name.partition("@stories")
    marks = [SimpleNamespace(args=(f"stories{group}",))] if group else []
    return SimpleNamespace(nodeid=nodeid, iter_markers=lambda _: marks)


def test_a_scope_is_a_group_or_a_file_and_each_test_is_in_one() -> None:
    scopes = Scopes([item(name) for name in NAMES])
    assert len(scopes) == 5
    taken = [scopes.take([]) for _ in range(5)]
    assert sorted(index for indices in taken for index in indices) == list(range(len(NAMES)))
    assert [0, 1, 2, 3, 4, 5] in taken
    assert scopes.take([]) == []
    scopes.put_back([4, 5])  # of a worker that died
    assert scopes.take([]) == [4, 5]


def test_one_worker_computes_the_others_wait_and_the_dearest_come_first() -> None:
    scopes, running, files = Scopes([item(name) for name in NAMES]), [], []
    for _ in range(len(scopes)):
        first, *_ = scopes.take(running)
        running.append(first)
        files.append(NAMES[first].split("::")[0])
    dearest = ["tests/lifecycle/test_e.py", "tests/acceptance/test_a.py", "tests/agent/test_c.py"]
    assert files == [*dearest, "tests/cli/test_d.py", "tests/storage/test_f.py"]


def test_who_ends_the_only_one_that_computes_takes_the_next_of_them() -> None:
    scopes = Scopes([item(name) for name in NAMES])
    computes, *_ = scopes.take([])
    waits, *_ = scopes.take([computes])
    assert NAMES[computes].startswith("tests/lifecycle/")
    assert NAMES[waits].startswith("tests/acceptance/")
    assert NAMES[scopes.take([waits])[0]].startswith("tests/cli/")


@pytest.mark.parametrize("start", [*scheduling.WAITING, *scheduling.COMPUTING])
def test_the_order_names_files_and_groups_that_exist(start: str) -> None:
    root = Path(__file__).parents[2]
    groups = (path for path in root.glob("tests/*/test_*.py") if f'xdist_group("{start}' in path.read_text())
    assert list(root.glob(f"{start}*.py")) or list(groups)


def play(folder: Path, count: int, broken: str = "") -> tuple[int, str, list[str]]:
    """(exit code, output, notes) of a run of these tests."""
    files = {"conftest.py": SHARED.replace("BROKEN", broken), "test_first.py": FIRST, "test_second.py": SECOND}
    for name, text in files.items():
        (folder / name).write_text(textwrap.dedent(text))
    words = [sys.executable, "-m", "pytest", "-p", "no:xdist", "-p", "no:cacheprovider", "-p", "tests.workers"]
    environ = {"PYTHONPATH": f"{ROOT}:{folder}", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "TMPDIR": str(folder)}
    done = subprocess.run(
        [*words, "-n", str(count), "--rootdir", folder, "-c", "/dev/null", folder],
        cwd=folder, env=environ, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr, (folder / "notes").read_text().splitlines()


@pytest.mark.parametrize("count", [1, 2])
def test_what_happens_in_a_worker_is_reported(tmp_path: Path, count: int) -> None:
    code, output, notes = play(tmp_path, count)
    assert code == 1, output
    assert "2 failed, 5 passed, 1 warning" in output
    assert "said before" in output  # by the test that failed
    assert "UserWarning: careful" in output
    assert re.search(r"FAILED .*::test_dies - worker \d ended with exit code 7 in this test", output)
    words = [note.split()[0] for note in notes]
    assert (words.count("first"), words.count("after"), words.count("second")) == (1, 1, 2)
    assert len({note for note in notes if note.startswith("second")}) == 1  # a file is on one worker
    assert words.count("ends") == words.count("starts") - 1 > 0  # all but that of the worker that died


def test_a_fixture_of_the_session_that_fails_at_its_end_fails_the_run(tmp_path: Path) -> None:
    code, output, _ = play(tmp_path, 1, "raise ValueError('still there')")
    assert code == pytest.ExitCode.INTERNAL_ERROR
    assert "ValueError: still there" in output
