"""A bed on SQLite in a fresh folder; `any_bed` on Postgres as well."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from supervisor.storage.store import open_store
from tests.services.bed import Bed, make_bed


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    with closing(open_store(f"sqlite:///{tmp_path / 'supervisor.db'}", migrate=True)) as store:
        yield make_bed(store, tmp_path)


@pytest.fixture(params=["sqlite", "postgres"])
def any_bed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bed]:
    sqlite = f"sqlite:///{tmp_path / 'supervisor.db'}"
    url = sqlite if request.param == "sqlite" else request.getfixturevalue("postgres_database")
    with closing(open_store(url, migrate=True)) as store:
        yield make_bed(store, tmp_path)
