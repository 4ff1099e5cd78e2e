"""A bed on SQLite in a fresh folder."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.storage.store import open_store
from tests.services.bed import Bed, make_bed


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    store = open_store(f"sqlite:///{tmp_path / 'supervisor.db'}", migrate=True)
    yield make_bed(store, tmp_path)
    store.close()
