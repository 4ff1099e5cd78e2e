"""The store on SQLite fulfils its contract."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from supervisor.storage.store import SqlStore, open_store
from tests.contracts.store_suite import StoreSuite
from tests.services.fresh import open_fresh


class TestSqliteStore(StoreSuite):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Iterator[SqlStore]:
        with closing(open_fresh(tmp_path / "supervisor.db")) as opened:
            yield opened

    @pytest.fixture
    def reopened(self, tmp_path: Path, store: SqlStore) -> Iterator[SqlStore]:
        with closing(open_store(f"sqlite:///{tmp_path}/supervisor.db", migrate=False)) as opened:
            yield opened
