"""The files of the data folder are private whatever its mode, and none is opened through a link."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

from supervisor.domain.errors import SettingsRefused
from supervisor.storage.engine.data_folder import FolderLock, make_private, readable_by_others
from supervisor.storage.store import open_store


@pytest.fixture
def open_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    folder.chmod(0o755)
    return folder


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_new_database_is_private_from_its_creation_with_its_log(open_folder: Path) -> None:
    database = open_folder / "supervisor.db"
    before = os.umask(0o022)
    try:
        make_private(open_folder, database)
        assert mode(database) == 0o600
        with closing(open_store(f"sqlite:///{database}", migrate=True)) as store:
            store.check()
            assert {path.name: mode(path) for path in open_folder.glob("supervisor.db*")} == {
                "supervisor.db": 0o600,
                "supervisor.db-wal": 0o600,
                "supervisor.db-shm": 0o600,
            }
    finally:
        os.umask(before)


def test_what_an_earlier_version_left_is_tightened(open_folder: Path) -> None:
    database = open_folder / "supervisor.db"
    for name in ("supervisor.db", "supervisor.db-wal", "lock", "server.json", "admin-token"):
        (open_folder / name).touch()
        (open_folder / name).chmod(0o644)
    (open_folder / "objects").mkdir()
    (open_folder / "objects").chmod(0o755)
    told = ["supervisor.db", "supervisor.db-wal", "lock", "admin-token", "server.json", "objects"]
    assert readable_by_others(open_folder, database) == told
    make_private(open_folder, database)
    assert readable_by_others(open_folder, database) == []
    assert mode(database) == 0o600
    assert mode(open_folder / "objects") == 0o700
    assert mode(open_folder) == 0o755, "the folder itself may hold other things"


def test_a_link_is_neither_followed_nor_tightened(open_folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "passwd"
    target.write_text("precious")
    target.chmod(0o644)
    for name in ("lock", "server.json"):
        (open_folder / name).symlink_to(target)
    make_private(open_folder, None)
    assert mode(target) == 0o644
    with pytest.raises(SettingsRefused, match="lock in it is a link"):
        FolderLock(open_folder).take()
    assert target.read_text() == "precious"


def test_nobody_else_gets_into_a_private_folder(open_folder: Path) -> None:
    (open_folder / "lock").touch()
    open_folder.chmod(0o700)
    assert readable_by_others(open_folder, None) == []
    assert readable_by_others(open_folder / "nowhere", None) == []
