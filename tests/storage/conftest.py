"""A store on a new SQLite file."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.storage.store import SqlStore, open_store


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "supervisor.db"


@pytest.fixture
def url(path: Path) -> str:
    return f"sqlite:///{path}"


@pytest.fixture
def store(url: str) -> Iterator[SqlStore]:
    opened = open_store(url, migrate=True)
    yield opened
    opened.close()
