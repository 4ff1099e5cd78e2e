"""Following the history on a real PostgreSQL, where a higher id can be committed before a lower one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from supervisor.domain.events import Event, EventKind
from supervisor.ports.history import EventFilter, StoredEvent, Writers
from supervisor.services.reading.following import Follower
from supervisor.storage.rows.history import SqlHistory
from supervisor.storage.store import SqlStore, open_store
from tests.fakes.clock import FakeClock

pytestmark = pytest.mark.xdist_group("postgres")
Connection = psycopg.Connection[tuple[object, ...]]


@dataclass
class Scene:
    """The store, and two writers whose transactions the test holds open."""

    store: SqlStore
    early: Connection
    late: Connection


@pytest.fixture
def bed(postgres_database: str, tmp_path: Path) -> Iterator[Scene]:
    plain = postgres_database.replace("+psycopg", "")
    with ExitStack() as opened:
        store = opened.enter_context(closing(open_store(postgres_database, migrate=True)))
        early, late = (opened.enter_context(closing(psycopg.connect(plain))) for _ in range(2))
        yield Scene(store, early, late)


def write(connection: Connection) -> int:
    row = connection.execute(
        "INSERT INTO events (sequence, at, generation, attempt, kind, actor, text, data, owner) "
        "VALUES (0, 0, 0, 0, 'patrol', 'supervisor', 'All is well.', '{}', '') RETURNING id"
    ).fetchone()
    assert row is not None
    return int(str(row[0]))


class Reader:
    def __init__(self, history: SqlHistory) -> None:
        self.told: list[int] = []
        self.follower = Follower(history, FakeClock(), self._hand_out, lambda: None)
        self.look()

    def _hand_out(self, found: Sequence[StoredEvent], passed: int) -> None:
        self.told += [stored.id for stored in found]

    def look(self) -> list[int]:
        for _ in range(3):
            self.follower.look()
        return self.told


class ByTransactionId(SqlHistory):
    """Reads snapshots instead of locks: a transaction is open while it is below the xmax of the first snapshot."""

    def writers(self) -> Writers:
        with self._database.reading() as session:
            driver = session.connection.connection.dbapi_connection
            assert driver is not None
            cursor = driver.cursor()
            cursor.execute("SELECT pg_snapshot_xip(pg_current_snapshot())::text")
            return frozenset(str(row[0]) for row in cursor.fetchall())


class Trusting(SqlHistory):
    """Assumes that ids become visible in their order."""

    def writers(self) -> Writers:
        return frozenset()


def late_commit_of_the_lower_id(bed: Scene, history: SqlHistory) -> tuple[list[int], list[int]]:
    """(events read, events written): the lower id belongs to the later transaction and is committed last."""
    reader = Reader(history)
    bed.early.execute("SELECT pg_current_xact_id()")
    bed.late.execute("SELECT pg_current_xact_id()")
    lower, higher = write(bed.late), write(bed.early)
    assert lower < higher
    bed.early.commit()
    reader.look()
    bed.late.commit()
    return reader.look(), [lower, higher]


def test_a_lower_id_that_is_committed_later_is_told_first(bed: Scene) -> None:
    told, written = late_commit_of_the_lower_id(bed, bed.store.history)
    assert told == written


@pytest.mark.parametrize("broken", [Trusting, ByTransactionId])
def test_that_test_catches_readers_that_trust_ids_or_snapshots(bed: Scene, broken: type[SqlHistory]) -> None:
    told, written = late_commit_of_the_lower_id(bed, broken(bed.store.database))
    assert told != written
    assert len(told) < len(written)


def test_nothing_is_told_beyond_a_hole_that_may_still_be_filled(bed: Scene) -> None:
    reader = Reader(bed.store.history)
    write(bed.late)
    higher = write(bed.early)
    bed.early.commit()
    assert reader.look() == []
    bed.late.rollback()  # the hole stays for ever
    assert reader.look() == [higher]


def test_a_writer_of_other_tables_is_not_waited_for(bed: Scene) -> None:
    reader = Reader(bed.store.history)
    bed.late.execute("UPDATE meta SET value = value")
    write(bed.early)
    bed.early.rollback()
    seen = write(bed.early)
    bed.early.commit()
    assert reader.look() == [seen]


def test_an_own_commit_wakes_once_whatever_it_wrote_and_nothing_else_does(bed: Scene) -> None:
    woken: list[int] = []
    bed.store.history.on_written(lambda: woken.append(1))
    patrol = Event(EventKind.PATROL, "All is well.")
    bed.store.add_events(None, [patrol] * 5, 0.0)
    assert len(woken) == 1
    bed.store.check()
    assert len(woken) == 1
    found, upto = bed.store.history.between(EventFilter(kinds=frozenset({"patrol"})), 0, 1000, 3)
    assert (len(found), upto) == (3, found[-1].id)
