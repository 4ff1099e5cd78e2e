"""A full, locked, missing or unreadable database gives a typed error, and nothing is half-written."""

import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from supervisor.ports.store import Change, StoreDown
from supervisor.storage.engine import database as database_module
from supervisor.storage.engine.database import Readers
from supervisor.storage.engine.statements import Session
from supervisor.storage.engine.tables import runs
from supervisor.storage.rows.runs import VERSIONS
from supervisor.storage.store import SqlStore, open_store
from tests.contracts.store_values import CELL, NOW, SPEC, STARTED, SUBMITTED, a_run, insert, lease_of, running
from tests.waiting import wait_for


def test_a_full_disk_loses_nothing_and_heals(store: SqlStore) -> None:
    kept = insert(store, *(a_run(f"run-{n}") for n in range(20)))
    lease = lease_of(store)
    with store.database.writing() as session:
        pages = session.connection.exec_driver_sql("PRAGMA page_count").scalar()
        session.connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
    big = {"command": "x" * 100_000}
    with pytest.raises(StoreDown, match=r"full.*nothing was changed.*free some space"), store.begin(NOW) as tx:
        tx.insert(a_run("too-much"), big, {}, [SUBMITTED])
    with pytest.raises(StoreDown, match="full"):
        store.apply_all([Change(run, running(run, hold="x" * 20_000), (STARTED,)) for run in kept], NOW, lease)
    assert store.find("too-much") is None
    assert store.active(CELL, {})[0] == kept
    assert len(store.events(None, 0, 99)) == 20

    with store.database.writing() as session:
        session.connection.exec_driver_sql("PRAGMA max_page_count = 1000000")
    insert(store, a_run("enough-now"))
    store.check()


def test_each_check_really_writes(store: SqlStore, path: Path) -> None:
    """A check without a change would report a full disk as healthy."""
    with closing(sqlite3.connect(path)) as onlooker:
        versions = []
        for _ in range(3):
            versions.append(onlooker.execute("PRAGMA data_version").fetchone())
            store.check()
        versions.append(onlooker.execute("PRAGMA data_version").fetchone())
    assert len(set(versions)) == 4


def test_a_file_that_another_program_holds(store: SqlStore, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_module, "BUSY_TIMEOUT_S", 0.05)
    impatient = open_store(f"sqlite:///{path}", migrate=False)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreDown, match=r"locked.*another program"):
        insert(impatient, a_run())
    with pytest.raises(StoreDown, match="locked"):
        impatient.check()
    assert impatient.find("digits-1") is None  # readers do not wait for writers
    holder.execute("ROLLBACK")
    holder.close()
    insert(impatient, a_run())
    impatient.close()


def test_a_turn_that_does_not_come(store: SqlStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_module, "TURN_TIMEOUT_S", 0.05)
    inside, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with store.begin(NOW):
            inside.set()
            leave.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    assert inside.wait(30)
    with pytest.raises(StoreDown, match="not free within"):
        insert(store, a_run())
    leave.set()
    thread.join()
    insert(store, a_run())


def test_a_folder_in_the_place_of_the_file(tmp_path: Path) -> None:
    (tmp_path / "supervisor.db").mkdir()
    with pytest.raises(StoreDown, match="check that the file"):
        open_store(f"sqlite:///{tmp_path}/supervisor.db", migrate=True)


def test_a_folder_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(StoreDown, match="check that the file"):
        open_store(f"sqlite:///{tmp_path}/nowhere/supervisor.db", migrate=True)


def test_a_file_that_is_no_database(path: Path, url: str) -> None:
    path.write_bytes(b"this is not a database, and it is long enough to be read as one" * 100)
    with pytest.raises(StoreDown, match="not a database"):
        open_store(url, migrate=True)


def test_errors_tell_nothing_of_the_values(store: SqlStore) -> None:
    with store.database.writing() as session:
        session.connection.exec_driver_sql("PRAGMA max_page_count = 1")
    with pytest.raises(StoreDown) as down, store.begin(NOW) as tx:
        tx.insert(a_run(), {"env": {"TOKEN": "secret" * 20_000}}, {}, [])
    assert "secret" not in str(down.value)
    assert "INSERT" not in str(down.value)


def test_a_mistake_of_ours_is_not_taken_for_an_outage(store: SqlStore) -> None:
    with pytest.raises(sa.exc.IntegrityError), store.database.writing() as session:
        session.connection.execute(sa.insert(runs).values(key=1))


def test_a_postgres_that_cuts_us_off_is_used_again_when_it_is_back(postgres_database: str) -> None:
    store = open_store(postgres_database, migrate=True)
    insert(store, a_run())
    other = open_store(postgres_database, migrate=False)
    with other.database.writing() as session:
        session.connection.exec_driver_sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
    with pytest.raises(StoreDown, match="nothing was changed"), store.begin(NOW) as tx:
        tx.insert(a_run("lost"), SPEC, {}, [])
    wait_for(lambda: insert(store, a_run("found")), what="a new connection")
    assert store.find("lost") is None
    store.close()
    other.close()


def test_a_postgres_that_is_not_there() -> None:
    with pytest.raises(StoreDown, match="the database failed"):
        open_store("postgresql://nobody@127.0.0.1:1/nothing", migrate=True)


def test_a_read_that_fails_leaves_no_snapshot_behind(store: SqlStore) -> None:
    def fail(session: Session) -> None:
        session.run(VERSIONS, {"cell": "cell"})  # the snapshot begins
        raise KeyError

    with pytest.raises(KeyError):
        store.database.read(fail)
    insert(store, a_run())
    assert store.find("digits-1") is not None
    assert store.database.connections == 0


def test_a_reader_beyond_the_most_waits_for_its_turn(store: SqlStore) -> None:
    readers = store.database._readers
    assert readers is not None
    few = Readers(readers._engine, kept=1, most=1, timeout_s=0.05)
    with few.connection() as first:
        with pytest.raises(TimeoutError), few.connection():
            pass
        assert few.in_use == 1
    with few.snapshot() as again:
        assert again is first, "it stays open"
    few.close()
