"""The folder store for the supervisor."""

from pathlib import Path

import pytest

from supervisor.objectstores.filesystem import FilesystemStore
from tests.contracts.objectstore_suite import ObjectStoreSuite


class TestFilesystemStore(ObjectStoreSuite):
    @pytest.fixture
    def store(self, tmp_path: Path) -> FilesystemStore:
        return FilesystemStore.create(tmp_path / "objects")

    def make_unreadable(self, store: FilesystemStore, prefix: str) -> None:
        # A file in the folder's place: as root there is no folder that cannot be read.
        folder = store.folder / prefix.rstrip("/")
        folder.rename(folder.with_name("elsewhere"))
        folder.write_bytes(b"")
