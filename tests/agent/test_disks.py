"""File systems of the training's folders: bytes, inodes, and when one of them is full."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from supervisor.agent.facts import looks
from supervisor.agent.machine import vitals

MIB = 2**20


def statvfs(monkeypatch: pytest.MonkeyPatch, **more: int) -> None:
    plain = {
        "f_frsize": 4096, "f_blocks": 1000 * 256, "f_bfree": 600 * 256, "f_bavail": 500 * 256, "f_files": 1000,
        "f_ffree": 900, "f_favail": 800,
    }  # fmt: skip
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(**{**plain, **more}))


def test_free_space_is_that_of_an_ordinary_user(monkeypatch: pytest.MonkeyPatch) -> None:
    statvfs(monkeypatch)
    assert vitals.read_disk("/") == vitals.Disk(500.0 * MIB, 1000.0 * MIB, 800.0, 1000.0)


def test_a_file_system_that_counts_no_inodes_has_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    statvfs(monkeypatch, f_files=0, f_favail=0)
    assert vitals.read_disk("/") == vitals.Disk(500.0 * MIB, 1000.0 * MIB)
    assert vitals.full_disks({"results": str(tmp_path)}) == ""


def test_a_missing_folder_is_absent(tmp_path: Path) -> None:
    assert vitals.read_disk(str(tmp_path / "gone")) is None
    assert vitals.disks_by_role({"results": str(tmp_path / "gone")}) == {}
    assert vitals.full_disks({"results": str(tmp_path / "gone")}) == ""


def test_roles_that_share_a_file_system_are_shown_once(tmp_path: Path) -> None:
    (tmp_path / "results").mkdir()
    disks = vitals.disks_by_role({"checkpoints": str(tmp_path), "results": str(tmp_path / "results"), "shm": "/proc"})
    assert set(disks) == {"checkpoints", "shm"}
    assert (disks["checkpoints"].total_bytes or 0) > 0


@pytest.mark.parametrize(
    ("figures", "text"),
    [
        ({"f_bavail": 0}, "checkpoints: 0 of 1000 MiB are free"),
        ({"f_bavail": 10 * 256}, "checkpoints: 10 of 1000 MiB are free"),
        ({"f_bavail": 11 * 256}, ""),
        # One percent of a large disk is much space.
        ({"f_blocks": 10**6 * 256, "f_bavail": 65 * 256}, ""),
        ({"f_blocks": 10**6 * 256, "f_bavail": 64 * 256}, "checkpoints: 64 of 1000000 MiB are free"),
        # On a small disk a failed write may have released the last pages.
        ({"f_blocks": 16 * 256, "f_bavail": 200}, "checkpoints: 0 of 16 MiB are free"),
        ({"f_favail": 0}, "checkpoints: 0 of 1000 inodes are free, and 500 MiB"),
        ({"f_favail": 11}, ""),
        ({"f_files": 10**8, "f_favail": 101}, ""),
        ({"f_files": 10**8, "f_favail": 100}, "checkpoints: 100 of 100000000 inodes are free, and 500 MiB"),
        ({"f_blocks": 0, "f_bavail": 0, "f_files": 0}, ""),  # a file system of no size, such as /proc
    ],
)
def test_when_a_disk_is_full(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, figures: dict[str, int], text: str
) -> None:
    statvfs(monkeypatch, **figures)
    assert vitals.full_disks({"checkpoints": str(tmp_path), "results": str(tmp_path)}) == text


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A real file system of 4 MiB and 64 inodes."""
    folder = tmp_path / "small"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=4m,nr_inodes=64", "tmpfs", str(folder)]
    allowed = os.geteuid() == 0 and subprocess.run(command, capture_output=True, check=False).returncode == 0
    if not allowed:
        pytest.skip("a tmpfs may not be mounted here: the figures above stand for it")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def test_a_real_disk_without_bytes(small: Path, tmp_path: Path) -> None:
    assert vitals.full_disks({"checkpoints": str(tmp_path), "results": str(small)}) == ""
    with pytest.raises(OSError, match="No space left"):
        (small / "big").write_bytes(b"x" * (5 * MIB))
    assert vitals.full_disks({"checkpoints": str(tmp_path), "results": str(small)}).startswith("results: 0 of 4 MiB")


def test_a_real_disk_without_inodes(small: Path) -> None:
    for number in range(63):  # one is the folder itself
        (small / str(number)).touch()
    with pytest.raises(OSError, match="No space left"):
        (small / "more").touch()
    assert vitals.full_disks({"scratch": str(small)}) == "scratch: 0 of 64 inodes are free, and 4 MiB"


def test_of_a_folder_with_many_files_only_some_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken variant: the limit was checked between folders, so one folder with millions of files filled the memory."""
    for number in range(50):
        (tmp_path / str(number)).touch()
    monkeypatch.setattr(looks, "ENTRIES", 20)
    rows, complete = looks._files({"results": str(tmp_path)}, time.monotonic() + 60)
    assert (len(rows), complete) == (20, False)
    assert looks._files({"results": str(tmp_path)}, time.monotonic() - 1) == ([], False)
