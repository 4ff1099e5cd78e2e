"""Both databases fulfil the contract of endpoints and deliveries, and the suite detects a broken one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from supervisor.storage.rows import deliveries
from supervisor.storage.store import SqlStore, open_store
from tests.contracts.store_endpoints import EndpointsSuite
from tests.contracts.test_postgres_store import EMPTY
from tests.integration.postgres_server import PostgresServer
from tests.services.fresh import open_fresh

CHANNELS = ("log", "webhooks")


class TestOnSqlite(EndpointsSuite):
    @pytest.fixture
    def told(self, tmp_path: Path) -> Iterator[SqlStore]:
        with closing(open_fresh(tmp_path / "x.db", CHANNELS)) as store:
            yield store


@pytest.fixture(scope="module")
def url(postgres_server: PostgresServer) -> Iterator[str]:
    name = postgres_server.create_database()
    yield postgres_server.url(name)
    postgres_server.drop_database(name)


class TestOnPostgres(EndpointsSuite):
    @pytest.fixture
    def told(self, url: str) -> Iterator[SqlStore]:
        with closing(open_store(url, True, CHANNELS)) as store:
            with store.database.defining() as connection:
                connection.execute(sa.text(EMPTY))
            yield store


def _everybody(*_: Any) -> bool:
    return True


def _nobody(*_: Any) -> bool:
    return False


@pytest.mark.parametrize("wants", [_everybody, _nobody])
def test_a_store_that_tells_the_wrong_ones_is_caught(
    wants: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deliveries, "wants", wants)
    with closing(open_fresh(tmp_path / "x.db", CHANNELS)) as store, pytest.raises(AssertionError):
        EndpointsSuite().test_each_hears_what_it_wants_and_of_whom_it_may(store)
