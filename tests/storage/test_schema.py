"""The schema: a new database gets the tables, another is migrated by command only, with the same result."""

import re
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from supervisor.domain.callers import NO_CAPS, Caps
from supervisor.domain.errors import SchemaMismatch, SettingsRefused
from supervisor.domain.machines import ZoneRecord
from supervisor.storage.engine import schema
from supervisor.storage.engine.database import Database
from supervisor.storage.engine.tables import metadata
from supervisor.storage.store import open_store
from tests.contracts.store_values import a_run, insert
from tests.contracts.tokens_suite import a_token, made
from tests.integration.postgres_server import PostgresServer


def shape(url: str) -> list[tuple[str, str]]:
    """All definitions in the database by name, in the database's own text."""
    database = Database(url)
    with database.defining() as connection:
        if database.dialect == "sqlite":
            rows = connection.exec_driver_sql("SELECT name, coalesce(sql, '') FROM sqlite_master").all()
        else:
            rows = connection.exec_driver_sql(
                "SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public' UNION ALL "
                "SELECT table_name || '.' || column_name, data_type || is_nullable || coalesce(column_default, '') "
                "FROM information_schema.columns WHERE table_schema = 'public' UNION ALL "
                "SELECT conname, pg_get_constraintdef(oid) FROM pg_constraint"
            ).all()
    database.close()
    return sorted((name, re.sub(r"\s+", " ", text)) for name, text in rows)


def difference(url: str) -> list[object]:
    database = Database(url)
    with database.defining() as connection:
        context = MigrationContext.configure(
            connection, opts={"version_table": schema.VERSION_TABLE, "compare_type": True}
        )
        found = compare_metadata(context, metadata)
    database.close()
    return list(found)


def test_migrations_make_exactly_the_tables(tmp_path: Path) -> None:
    migrated, created = f"sqlite:///{tmp_path}/migrated.db", f"sqlite:///{tmp_path}/created.db"
    schema.migrate(migrated)
    open_store(created, migrate=True).close()
    assert shape(migrated) == shape(created)
    assert difference(migrated) == []


def test_on_postgres_too(postgres_server: PostgresServer) -> None:
    names = [postgres_server.create_database() for _ in range(2)]
    migrated, created = map(postgres_server.url, names)
    schema.migrate(migrated)
    open_store(created, migrate=True).close()
    assert shape(migrated) == shape(created)
    assert difference(migrated) == []
    for name in names:
        postgres_server.drop_database(name)


def test_a_table_that_has_no_migration_is_noticed(url: str) -> None:
    schema.migrate(url)
    extra = sa.Table("forgotten", sa.MetaData(), sa.Column("key", sa.Integer, primary_key=True))
    database = Database(url)
    with database.defining() as connection:
        extra.create(connection)
    database.close()
    assert difference(url) != []


def test_head_is_the_newest_migration() -> None:
    config = Config()
    config.set_main_option("script_location", str(schema.migrations_folder()))
    assert ScriptDirectory.from_config(config).get_current_head() == schema.HEAD


def test_only_a_new_database_is_brought_up(url: str, path: Path) -> None:
    with pytest.raises(SchemaMismatch, match="spot migrate"):
        open_store(url, migrate=False)
    first = open_store(url, migrate=True)
    insert(first, a_run())
    first.close()
    again = open_store(url, migrate=True)
    assert again.supervisor_id == first.supervisor_id
    assert again.find("digits-1") is not None
    again.close()
    assert path.exists()


@pytest.mark.parametrize(("revision", "command"), [("0000", "spot migrate"), ("9999", "newer")])
def test_another_schema_is_refused_with_what_to_do(url: str, path: Path, revision: str, command: str) -> None:
    open_store(url, migrate=True).close()
    with sqlite3.connect(path) as raw:
        raw.execute("UPDATE schema_version SET version_num = ?", (revision,))
    raw.close()
    with pytest.raises(SchemaMismatch, match=command) as refused:
        open_store(url, migrate=True)
    assert refused.value.meta == {"found": revision, "needed": schema.HEAD}


def test_a_half_made_database_is_not_taken_for_a_new_one(url: str, path: Path) -> None:
    open_store(url, migrate=True).close()
    with sqlite3.connect(path) as raw:
        raw.execute("DROP TABLE schema_version")
    raw.close()
    with pytest.raises(SchemaMismatch, match="no schema of ours"):
        open_store(url, migrate=True)


def test_migrate_can_be_repeated_and_keeps_everything(url: str) -> None:
    assert schema.migrate(url) == schema.HEAD
    store = open_store(url, migrate=False)
    (run,) = insert(store, a_run())
    store.close()
    schema.migrate(url)
    again = open_store(url, migrate=False)
    assert again.find("digits-1") == run
    assert again.supervisor_id == store.supervisor_id
    again.close()


def to_revision(url: str, revision: str) -> None:
    config = Config()
    config.set_main_option("script_location", str(schema.migrations_folder()))
    database = Database(url)
    with database.defining() as connection:
        config.attributes["connection"] = connection
        (command.upgrade if revision == schema.HEAD else command.downgrade)(config, revision)
    database.close()


def test_incidents_go_and_come_with_their_table(url: str) -> None:
    schema.migrate(url)
    head = shape(url)
    to_revision(url, "0004")
    assert not any("incidents" in name for name, _ in shape(url))
    schema.migrate(url)
    assert shape(url) == head


def test_what_zones_taught_survives_the_way_back_and_forth(url: str) -> None:
    key = ("gce", "us-east1-b", "t4", True)
    store = open_store(url, migrate=True)
    insert(store, a_run())
    store.put_zone("cell", key, ZoneRecord(2, 1234.5, "no_capacity", "none left", (1000.0, 1100.5)))
    store.close()
    head = shape(url)
    to_revision(url, "0001")
    assert "lost_at" not in dict(shape(url))["zones"]
    with pytest.raises(SchemaMismatch, match="spot migrate"):
        open_store(url, migrate=True)
    schema.migrate(url)
    assert shape(url) == head
    again = open_store(url, migrate=False)
    assert again.zones("cell") == {key: ZoneRecord(2, 1234.5, "no_capacity", "none left")}
    assert again.find("digits-1") is not None
    again.close()


def test_tokens_survive_the_way_back_and_forth_without_their_caps(url: str) -> None:
    store = open_store(url, migrate=True)
    token = made(store, a_token(caps=Caps(20.5, 0.01, plans_only=True)))
    store.close()
    head = shape(url)
    to_revision(url, "0006")
    assert not any("plans_only" in text or "allowances" in text for _, text in shape(url))
    schema.migrate(url)
    assert shape(url) == head
    again = open_store(url, migrate=False)
    assert again.tokens.get("tok-1") == replace(token, caps=NO_CAPS)
    again.close()


def test_a_schema_that_changes_under_a_server_is_noticed(url: str, path: Path) -> None:
    store = open_store(url, migrate=True)
    store.check()
    with sqlite3.connect(path) as raw:
        raw.execute("UPDATE schema_version SET version_num = '9999'")
    raw.close()
    with pytest.raises(SchemaMismatch, match="newer"):
        store.check()
    store.close()


def test_two_servers_may_meet_the_same_new_database(postgres_database: str) -> None:
    with ThreadPoolExecutor(4) as pool:
        stores = list(pool.map(lambda _: open_store(postgres_database, migrate=True), range(4)))
    assert len({store.supervisor_id for store in stores}) == 1
    for store in stores:
        store.close()


def test_rows_that_refer_to_a_table_survive_its_remaking(url: str) -> None:
    """SQLite changes a table by a copy and a drop of the old one, which deletes the rows that refer to it."""
    store = open_store(url, migrate=True)
    (run,) = insert(store, a_run())
    with store.database.defining() as connection:
        connection.exec_driver_sql("CREATE TABLE runs_new AS SELECT * FROM runs")
        connection.exec_driver_sql("DROP TABLE runs")
        connection.exec_driver_sql("ALTER TABLE runs_new RENAME TO runs")
    assert store.find("digits-1") == run
    assert len(store.events("digits-1", 0, 9)) == 1
    store.close()


def test_serving_does_not_load_the_migrations(url: str) -> None:
    code = (
        "import sys\nfrom supervisor.storage.store import open_store\n"
        f"open_store({url!r}, migrate=True).close()\n"
        "print([name for name in ('alembic', 'mako', 'psycopg', 'sqlalchemy.dialects.postgresql')"
        " if name in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.parametrize("wrong", ["mysql://host/name", "not a url", "sqlite://", "sqlite:///:memory:", ""])
def test_a_url_that_cannot_serve_is_refused(wrong: str) -> None:
    with pytest.raises(SettingsRefused, match="database_url"):
        open_store(wrong, migrate=True)
