"""The file that names the daemon, its data folder, and the message of a full disk."""

import json
import logging
from pathlib import Path

import pytest

from supervisor.api.server import ServerFile
from supervisor.domain.errors import SettingsRefused
from supervisor.ports.store import StoreDown
from supervisor.services.reading.health import full_disk
from supervisor.storage.engine.data_folder import FolderLock


def test_it_is_written_again_and_removed_at_the_end(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "folder" / "server.json"
    path.parent.mkdir()
    with ServerFile(path, "http://127.0.0.1:1") as told:
        path.unlink()
        told.keep()
        assert json.loads(path.read_text())["url"] == "http://127.0.0.1:1"
        path.unlink()
        path.parent.rmdir()
        with caplog.at_level(logging.WARNING):
            told.keep()  # the folder is away: said, and tried again later
        assert "server file could not be written" in caplog.text
        path.parent.mkdir()
        told.keep()
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize("below", ["", "deeper"])
def test_a_plain_file_is_no_data_folder(tmp_path: Path, below: str) -> None:
    plain = tmp_path / "plain"
    plain.write_text("")
    with pytest.raises(SettingsRefused, match="cannot be used"):
        FolderLock(plain / below).take()


def test_a_full_disk_is_reported_without_paths() -> None:
    assert full_disk(StoreDown("database or disk is full; x")) == "the disk of the data folder is full"
    assert full_disk(StoreDown("No space left on device: /srv")) == "the disk of the database is full"
    assert full_disk(StoreDown("locked")) == ""
