"""Several processes on one folder, some of them killed: what the lock, the rename and the sidecar promise."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from supervisor.objectstores.filesystem import FilesystemStore
from tests.objectstores.folder_worker import KEY, content
from tests.waiting import wait_for

REPOSITORY = Path(__file__).parents[2]


def command(job: str, root: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "tests.objectstores.folder_worker", job, str(root), *more]


@contextmanager
def worker(job: str, root: Path) -> Iterator[subprocess.Popen[str]]:
    pipe = subprocess.PIPE
    with subprocess.Popen(command(job, root), cwd=REPOSITORY, stdin=pipe, stdout=pipe, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def together(job: str, root: Path, how_many: int) -> list[object]:
    """The results of that many processes that started at the same moment."""
    with ExitStack() as stack:
        processes = [stack.enter_context(worker(job, root)) for _ in range(how_many)]
        answers = []
        for process in processes:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        for process in processes:
            out, _ = process.communicate(timeout=120)
            answers.append(json.loads(out))
        return answers


@pytest.fixture
def store(tmp_path: Path) -> FilesystemStore:
    return FilesystemStore.create(tmp_path / "objects")


def test_of_four_processes_that_create_one_object_one_wins(store: FilesystemStore) -> None:
    for _ in range(3):
        assert sorted(together("create", store.root, 4)) == [False, False, False, True]
        store.delete(KEY)


def test_four_processes_count_and_lose_nothing(store: FilesystemStore) -> None:
    store.put("counter", b"0")
    refused = together("count", store.root, 4)
    data, info = store.get("counter")
    assert int(data) == 400
    assert set(info.metadata) == {"by"}
    assert sum(refused) > 0, "they never met: the test proves nothing"


def test_a_writer_killed_at_any_moment_leaves_one_whole_object(store: FilesystemStore) -> None:
    seed = random.randrange(10**6)
    chance = random.Random(seed)
    store.put(KEY, content(0), metadata={"n": "0"})
    for _ in range(6):
        before = store.stat(KEY)
        with worker("rewrite", store.root):
            wait_for(lambda seen=before: store.stat(KEY).generation != seen.generation, what="the first rewrite")
            for _ in range(chance.randrange(300)):
                store.stat(KEY)
        data, info = store.get(KEY)
        n = int(data[:8])
        assert data == content(n), f"seed {seed}"
        assert dict(info.metadata) == {"n": str(n)}, f"seed {seed}"
        assert int(info.generation) > int(before.generation)
    assert store.put(KEY, b"the lock died with its holder", info.generation).size == 29


def test_a_writer_killed_before_each_of_its_system_calls(store: FilesystemStore) -> None:
    done = subprocess.run(
        command("die_at_each_step", store.root), cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    outcomes = json.loads(done.stdout)
    assert all(outcome["whole"] for outcome in outcomes), outcomes
    assert [outcome["killed"] for outcome in outcomes] == [True] * (len(outcomes) - 1) + [False]
    found = [outcome["found"] for outcome in outcomes]
    assert found == sorted(found), "old, old, ..., new, new: the rename is the one moment of change"
    assert found[0] == 0
    assert found[-2:] == [1, 1]
    assert len(outcomes) > 15


@pytest.mark.parametrize("options", ["size=700k", "size=50m,nr_inodes=60"], ids=["space", "inodes"])
def test_a_full_disk_leaves_the_old_object(tmp_path: Path, options: str) -> None:
    root = tmp_path / "disk"
    root.mkdir()
    wrapped = ["unshare", "-Urm", *command("fill", root, options)]
    allowed = subprocess.run(["unshare", "-Urm", "mount", "-t", "tmpfs", "t", str(root)], check=False)
    if allowed.returncode != 0:
        pytest.skip("no disk can be mounted here; test_folder_faults.py injects the same errors")
    done = subprocess.run(wrapped, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["old_is_whole"]
    assert found["refused"] == 2
    assert found["left_in_tmp"] == []
    assert found["listed"] == found["filled"] > 3
    assert found["after_deleting"]
    assert "free some space" in found["message"]
