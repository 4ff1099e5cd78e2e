"""The repair after a full disk: random trees, hostile globs, kills at each point, mounts, and a real life."""

from __future__ import annotations

import fcntl
import fnmatch
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from supervisor.agent.machine import repairs
from supervisor.agent.machine.repairs import Guard, Repair, Repaired
from supervisor.contract import runfiles, scratch, signs
from tests.agent.bench import RUN, job
from tests.agent.machine_rig import Rig
from tests.agent.scratch_trees import Place, play, write

GLOBS_TRIED = 400


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


# --- random trees -----------------------------------------------------------------------------------------------------


def test_nothing_outside_of_the_globs_is_ever_removed(tmp_path: Path) -> None:
    until, number = time.monotonic() + 2.0, 0
    while time.monotonic() < until and number < GLOBS_TRIED:
        number += 1
        assert play(tmp_path, number) == ""
    assert number > 20


def follow_links(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(repairs, "_FOLDER_FLAGS", os.O_RDONLY | os.O_DIRECTORY)


def keep_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Guard, "keeps", lambda *_: False)


def hidden_too(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(scratch, "matches", fnmatch.fnmatch)


@pytest.mark.parametrize("broken", [follow_links, keep_nothing, hidden_too])
def test_the_random_trees_find_each_broken_repair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, broken: Any) -> None:
    broken(monkeypatch)
    assert any(play(tmp_path, number) for number in range(GLOBS_TRIED))


# --- what is kept -----------------------------------------------------------------------------------------------------


def test_checkpoints_results_and_what_they_link_to_are_kept_under_every_name(place: Place) -> None:
    machine, base = place.machine, Path(place.machine.scratch)
    place.base = Path(machine.root) / "work"  # a working folder above all of them
    saved = write(Path(machine.checkpoints) / "step-7.pt")
    result = write(Path(machine.results) / "eval.json")
    copy, newest = write(base / "step-7.pt"), write(base / "step-9.pt")
    linked, best = write(base / "linked.bin"), write(base / "Best-model.pt")
    (Path(machine.results) / "model.bin").symlink_to(linked)
    gone = write(base / "cache" / "x.bin")
    done = place.repair("*/*", "*/", "*", names=("step-9.pt",))
    assert [path.exists() for path in (saved, result, copy, newest, linked, best, gone)] == [True] * 6 + [False]
    assert Path(machine.output).exists()
    assert (done.files, done.freed_bytes, done.complete) == (1, 4096, True)
    assert done.kept >= 5


def test_a_hard_link_frees_nothing_and_the_content_stays(place: Place) -> None:
    saved = write(Path(place.machine.checkpoints) / "other.pt")
    os.link(saved, place.base / "x.bin")
    assert place.repair("x.bin") == Repaired(0, 0, 0, True)
    assert saved.exists()
    assert not (place.base / "x.bin").exists()


def test_hostile_globs_remove_nothing(place: Place) -> None:
    write(place.outside / "a.bin")
    other = place.top / "others" / "m2"
    for name in ("job.json", "agent.json", "work/scratch/x.bin"):
        write(other / name)
    (place.base / "link").symlink_to(place.outside)
    (place.base / "links").symlink_to("/")
    before = place.paths()
    top = os.path.realpath(place.top)
    hostile = (
        "../outside/*", "link/*", "link/", "link", "links/*", "/", "//", "", ".", "./", "/*", "/*/*", "/etc/host*",
        f"{top}/others/*/work/scratch/*", f"{top}/others/", f"{top}/work/link/*", f"{top}/mach*/work/scr*/",
        "a\0b", "[", "x" * 600, "/".join("x" * 40), "**/*", f"{top}/work/../outside/*",
    )  # fmt: skip
    write(Path(place.machine.root) / "agent.json")
    write(Path(place.machine.root) / "job.json")
    before = place.paths()
    assert place.repair(*hostile).files == 0
    assert place.paths() == before
    (place.base / "away").mkdir()
    base = os.path.realpath(place.base)
    place.base.rename(place.top / "moved")
    place.base.symlink_to(place.outside)  # the command has put a link in the place of its folder
    assert Repair(job(scratch=("*",)), place.machine, base).run(10.0) == Repaired(0, 0, 0, True)
    assert (place.outside / "a.bin").exists()


def test_folders_go_with_their_links_pipes_and_hidden_files(place: Place) -> None:
    write(place.base / "hub" / "blobs" / "1", 8192)
    (place.base / "hub" / "snapshot").symlink_to(place.outside)
    os.mkfifo(place.base / "hub" / "pipe")
    write(place.base / "hub" / ".lock", 0)
    write(place.base / "file")
    done = place.repair("hub/", "file/", "missing/")
    assert sorted(os.listdir(place.base)) == ["file"]
    assert (done.files, done.freed_bytes) == (4, 8192)
    assert place.outside.exists()


def test_unfinished_downloads_go_unless_an_agent_continues_them(place: Place) -> None:
    folder = Path(place.machine.downloads)
    free, used, whole = write(folder / "1.part"), write(folder / "2.part"), write(folder / "3")
    with used.open("ab") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        done = place.repair(stage=(object(),))
    assert [path.exists() for path in (free, used, whole)] == [False, True, True]
    assert (done.files, done.freed_bytes) == (1, 4096)


# --- time and kills ---------------------------------------------------------------------------------------------------


def test_the_time_ends_it(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(50):
        write(place.base / f"{number}.bin", 1)
    plain = os.unlink

    def slow(*args: Any, **more: Any) -> None:
        time.sleep(0.02)
        plain(*args, **more)

    monkeypatch.setattr(os, "unlink", slow)
    done = place.repair("*.bin", seconds=0.2)
    assert not done.complete
    assert 0 < done.files < 50
    left = len(os.listdir(place.base))
    time.sleep(0.1)
    assert len(os.listdir(place.base)) == left, "nothing is removed after it has returned"
    monkeypatch.setattr(repairs, "HURRIED_S", 0.1)
    began = time.monotonic()
    paper = job(scratch=("*.bin",))
    Repair(paper, place.machine, os.path.realpath(place.base)).run(30.0, lambda: True)
    assert time.monotonic() - began < 5, "a preemption leaves it less"


@pytest.mark.parametrize("call", ["unlink", "rmdir"])
def test_a_kill_at_each_point_leaves_a_repair_that_can_be_repeated(place: Place, call: str) -> None:
    """The process is killed before or after its n-th removal; then the next repair ends it."""
    plain = getattr(os, call)
    for at in range(1, 16):
        for name in ("hub/a/1", "hub/a/2", "hub/b/c/3", "hub/4", "x.bin", "y.bin", "keep.txt"):
            write(place.base / name)
        pid = os.fork()
        if pid == 0:
            count = [0]

            def deadly(*args: Any, count: list[int] = count, at: int = at, **more: Any) -> None:
                count[0] += 1
                if count[0] == (at + 1) // 2 and at % 2:
                    os.kill(os.getpid(), signal.SIGKILL)
                plain(*args, **more)
                if count[0] == (at + 1) // 2:
                    os.kill(os.getpid(), signal.SIGKILL)

            setattr(os, call, deadly)
            place.repair("hub/", "*.bin")
            os._exit(0)
        _, status = os.waitpid(pid, 0)
        assert os.WIFSIGNALED(status) == (at <= 2 * {"unlink": 6, "rmdir": 4}[call])
        assert (place.base / "keep.txt").exists()
        assert place.repair("hub/", "*.bin").complete
        assert os.listdir(place.base) == ["keep.txt"]


# --- mounts and a real life -------------------------------------------------------------------------------------------


def test_another_mount_below_a_wildcard_is_left_alone(small_disk: Path, tmp_path: Path) -> None:
    place = Place(tmp_path / "here")
    write(small_disk / "cache" / "x.bin")
    inner = place.base / "inner"
    inner.mkdir()
    subprocess.run(["mount", "--bind", small_disk / "cache", inner], check=True)
    try:
        assert place.repair("*/*.bin", "*/", "inner/").files == 0
        assert (inner / "x.bin").exists()
        assert place.repair("inner/*.bin").files == 1, "it is the glob's own"
    finally:
        subprocess.run(["umount", inner], check=True)


FILLS = """
import os
with open("out.bin", "wb", buffering=0) as out:
    for _ in range(4):
        if out.write(b"x" * 2**20) < 2**20:
            raise OSError(28, os.strerror(28))
"""


def test_a_full_disk_is_repaired_and_the_next_attempt_succeeds(rig: Rig, small_disk: Path) -> None:
    for number in range(6):
        write(small_disk / "cache" / f"{number}.bin", 2**20)
    write(small_disk / "cache" / "best.bin", 10)
    more: dict[str, Any] = {"workdir": str(small_disk), "scratch": ["cache/*.bin", "../../etc/*"]}
    rig.start(sys.executable, "-S", "-c", FILLS, **more)
    last = rig.ended(60)
    assert last.exit is not None
    assert last.exit.code == 1, rig.console
    assert signs.decode(last.signs).repaired == (6, 6 * 2**20), rig.console
    part = json.loads(rig.store.get(runfiles.agent_evidence(RUN, 1))[0])
    assert part["repair"] == {
        "files": 6, "freed_bytes": 6 * 2**20, "kept": 1, "complete": True, "scratch": more["scratch"],
    }  # fmt: skip
    assert os.listdir(small_disk / "cache") == ["best.bin"]
    rig.start(sys.executable, "-S", "-c", FILLS, attempt=2, holder_gone=True, **more)
    last = rig.ended(60)
    assert last.exit is not None
    assert (last.exit.code, signs.decode(last.signs).repaired) == (0, None), rig.console
