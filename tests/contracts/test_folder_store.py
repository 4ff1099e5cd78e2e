"""The folder store for the agent, with the agent's errors."""

from pathlib import Path

import pytest

from supervisor.contract.stores import promise
from supervisor.contract.stores.folder import FolderStore
from tests.contracts.objectstore_suite import AgentStoreSuite


class TestFolderStore(AgentStoreSuite):
    words = promise

    @pytest.fixture
    def store(self, tmp_path: Path) -> FolderStore:
        return FolderStore.create(tmp_path / "objects")

    def make_unreadable(self, store: FolderStore, prefix: str) -> None:
        folder = Path(store.root, prefix.rstrip("/"))
        folder.rename(folder.with_name("elsewhere"))
        folder.write_bytes(b"")
