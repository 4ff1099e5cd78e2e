"""The process that serves a data folder is found without its lock."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from supervisor.storage.engine import data_folder
from supervisor.storage.engine.data_folder import FolderLock, database_file, holder
from supervisor.wiring.examining import port_line


def test_the_holder_of_a_folder_is_named_and_keeps_it(tmp_path: Path) -> None:
    assert holder(tmp_path / "none") is None
    lock = FolderLock(tmp_path)
    lock.take()
    assert holder(tmp_path) == str(os.getpid())
    told = port_line(tmp_path, "127.0.0.1", 8787)
    assert (told.result, told.fact.endswith(f"by pid {os.getpid()}")) == ("ok", True)
    lock.give_back()
    assert holder(tmp_path) is None, "the file that is left says nothing"


@pytest.mark.parametrize(
    ("line", "held"),
    [
        ("1: FLOCK  ADVISORY  WRITE 4711 00:1f:{inode} 0 EOF", True),
        ("1: FLOCK  ADVISORY  WRITE 4712 00:1f:{inode} 0 EOF", False),
        ("1: FLOCK  ADVISORY  WRITE 4711 00:1f:1{inode} 0 EOF", False),
        ("1: POSIX  ADVISORY  WRITE 4711 00:1f:{inode} 0 EOF", False),
    ],
)
def test_where_the_kernel_shows_another_device_the_pid_in_the_lock_must_agree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, held: bool
) -> None:
    """On btrfs stat() and /proc/locks have different devices for the same file."""
    lock, locks = tmp_path / "lock", tmp_path / "locks"
    lock.write_text("4711\n")
    locks.write_text(line.format(inode=lock.stat().st_ino) + "\n")
    monkeypatch.setattr(data_folder, "LOCKS", locks)
    assert holder(tmp_path) == ("4711" if held else None)


def test_a_port_is_free_or_taken(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        taken = port_line(tmp_path, "127.0.0.1", port)
    assert (taken.result, taken.fix.startswith("spot serve --port 0")) == ("fail", True)
    assert port_line(tmp_path, "127.0.0.1", port).result == "ok"
    assert port_line(tmp_path, "127.0.0.1", 0).fact == "any free one is taken at the start"


def test_only_a_database_of_sqlite_is_a_file() -> None:
    assert database_file("sqlite:////var/lib/spot/s.db") == Path("/var/lib/spot/s.db")
    assert database_file("postgresql://h/spot") is None
