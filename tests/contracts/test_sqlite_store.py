"""The store on SQLite fulfils its contract."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.storage.store import SqlStore, open_store
from tests.contracts.store_suite import StoreSuite


class TestSqliteStore(StoreSuite):
    @pytest.fixture
    def url(self, tmp_path: Path) -> str:
        return f"sqlite:///{tmp_path}/supervisor.db"

    @pytest.fixture
    def store(self, url: str) -> Iterator[SqlStore]:
        opened = open_store(url, migrate=True)
        yield opened
        opened.close()

    @pytest.fixture
    def reopened(self, url: str, store: SqlStore) -> Iterator[SqlStore]:
        opened = open_store(url, migrate=False)
        yield opened
        opened.close()
