"""A bed on SQLite in a fresh folder; `any_bed` on Postgres as well."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from supervisor.storage.store import open_store
from tests.services.bed import Bed, make_bed
from tests.services.fresh import open_fresh


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    with closing(open_fresh(tmp_path / "supervisor.db")) as store:
        yield make_bed(store, tmp_path)


@pytest.fixture(params=["sqlite", "postgres"])
def any_bed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bed]:
    if request.param == "sqlite":
        opened = open_fresh(tmp_path / "supervisor.db")
    else:
        opened = open_store(request.getfixturevalue("postgres_database"), migrate=True)
    with closing(opened) as store:
        yield make_bed(store, tmp_path)
