"""The store on Postgres fulfils its contract. All tests share one database, which is emptied before each: to create one
takes longer than most tests."""

from collections.abc import Iterator

import pytest
import sqlalchemy as sa

from supervisor.storage.engine.tables import metadata
from supervisor.storage.store import SqlStore, open_store
from tests.contracts.store_suite import StoreSuite
from tests.integration.postgres_server import PostgresServer

EMPTY = "TRUNCATE " + ", ".join(name for name in metadata.tables if name != "meta") + " RESTART IDENTITY"

FORGET = "DELETE FROM meta WHERE name NOT IN ('supervisor_id', 'secret')"  # these are made with the database


@pytest.fixture(scope="module")
def url(postgres_server: PostgresServer) -> Iterator[str]:
    name = postgres_server.create_database()
    yield postgres_server.url(name)
    postgres_server.drop_database(name)


class TestPostgresStore(StoreSuite):
    @pytest.fixture
    def store(self, url: str) -> Iterator[SqlStore]:
        opened = open_store(url, migrate=True)
        with opened.database.defining() as connection:
            connection.execute(sa.text(EMPTY))
            connection.execute(sa.text(FORGET))
        yield opened
        opened.close()

    @pytest.fixture
    def reopened(self, url: str, store: SqlStore) -> Iterator[SqlStore]:
        opened = open_store(url, migrate=False)
        yield opened
        opened.close()
