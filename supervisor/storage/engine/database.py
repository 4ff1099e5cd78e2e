"""Connections and transactions on SQLite or Postgres.

SQLite: WAL, synchronous=FULL, one connection that writes for all queued writers, with BEGIN IMMEDIATE, and a pool that
reads. Postgres: one pool; a read sees one snapshot. A failure of the database is a StoreDown, with the transaction
rolled back; a value that cannot be stored is a ValueError.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Concatenate, ParamSpec, TypeVar

import sqlalchemy as sa
from sqlalchemy import event, exc
from sqlalchemy.engine import URL, Connection, Engine, make_url
from sqlalchemy.pool import QueuePool

from supervisor.domain.errors import SettingsRefused
from supervisor.domain.texts import clause
from supervisor.ports.store import StoreDown
from supervisor.storage.engine import tables
from supervisor.storage.engine.group import Checkpointer, GroupWriter
from supervisor.storage.engine.statements import Counts, Session, run_plain
from supervisor.telemetry import metrics

JOURNAL_BYTES = 64 * 1024 * 1024
WAL_PAGES = 8000  # from here on a commit moves the WAL by itself: the thread that does it is late
BUSY_TIMEOUT_S = 10.0  # for writers in other processes; ours are queued
TURN_TIMEOUT_S = 30.0
SQLITE_MIN = (3, 35, 0)  # RETURNING
SQLITE_MIN_TEXT = "3.35"
READERS = 8
READERS_MAX = 40
WRITERS_CACHE_KIB, READERS_CACHE_KIB = 8192, 2048
# A leader that is suspended inside a transaction holds the row of its lease. After so long PostgreSQL ends the
# transaction, before another supervisor that waits for the row gives up.
IDLE_S, LOCK_S = 8, 10
POSTGRES = {
    "connect_timeout": 5,
    "keepalives_idle": 10,
    "tcp_user_timeout": 10_000,  # ms; detects a server that has disappeared
    "options": f"-c lock_timeout={LOCK_S}s -c idle_in_transaction_session_timeout={IDLE_S}s -c timezone=UTC",
}
# Signs in an error of the database -> the end of our sentence.
FIXES: tuple[tuple[str, str], ...] = (
    ("disk is full", "; free some space on its disk"),
    ("No space left", "; free some space on its disk"),
    ("unable to open", "; check that the file and its folder can be written"),
    ("readonly", "; check that the file and its folder can be written"),
    ("locked", "; another program holds the file"),
)

Result = TypeVar("Result")
P = ParamSpec("P")


class Readers:
    """SQLite's connections that read: taken for one read, and kept open for the next one. To check a connection out of
    SQLAlchemy's pool, and to begin and end a transaction through its events, costs twice as much as most of our reads.
    Thread-safe. `kept`: how many stay open; `most`: how many are in use at once, others wait for `timeout_s`."""

    def __init__(self, engine: Engine, kept: int, most: int, timeout_s: float) -> None:
        self._engine, self._kept, self._timeout_s = engine, kept, timeout_s
        self._free = threading.Semaphore(most)
        self._idle: list[Connection] = []
        self._in_use: set[Connection] = set()

    @property
    def in_use(self) -> int:
        return len(self._in_use)

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """For one statement, which sees one instant by itself. Raises TimeoutError, DBAPIError."""
        if not self._free.acquire(timeout=self._timeout_s):
            raise TimeoutError
        try:
            connection = self._taken()
            try:
                yield connection
            except BaseException:
                connection.close()  # whatever it was in the middle of
                raise
            finally:
                self._in_use.discard(connection)
            self._give_back(connection)
        finally:
            self._free.release()

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """All reads in the block see one instant. Raises the same."""
        with self.connection() as connection:
            run_plain(connection, "BEGIN")
            yield connection
            run_plain(connection, "COMMIT")

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()
        self._engine.dispose()

    def _taken(self) -> Connection:
        try:
            connection = self._idle.pop()  # the last one that was given back: its cache is warm
        except IndexError:
            connection = self._engine.connect()
        self._in_use.add(connection)
        return connection

    def _give_back(self, connection: Connection) -> None:
        if len(self._idle) < self._kept:
            self._idle.append(connection)
        else:
            connection.close()


class Database:
    """`channels`: the outbox channels of announced events. `group`: None on Postgres, where writers lock rows and the
    server groups their commits."""

    def __init__(self, url: str, channels: Sequence[str] = ()) -> None:
        """Connects on first use. Raises SettingsRefused for a URL that is neither SQLite nor Postgres."""
        parsed = self._url = _parse(url)
        self.dialect = parsed.get_backend_name()
        self.channels = tuple(channels)
        self.group: GroupWriter | None = None
        self._counts: Counts | None = None
        self._readers: Readers | None = None
        self._snapshot: Callable[[], AbstractContextManager[Connection]]
        self._connection: Callable[[], AbstractContextManager[Connection]]
        # Called after each commit with events, and after each with announcements.
        self.when_written: Callable[[], None] = lambda: None
        self.when_announced: Callable[[], None] = lambda: None
        if self.dialect == "sqlite":
            _check_sqlite(parsed)
            self._writer = _sqlite_engine(parsed, pool_size=1, pool_max=1, cache_kib=WRITERS_CACHE_KIB)
            self._readers = Readers(_sqlite_engine(parsed, 1, READERS_MAX), READERS, READERS_MAX, TURN_TIMEOUT_S)
            self._snapshot, self._connection = self._readers.snapshot, self._readers.connection
            self._checkpoints = _sqlite_engine(parsed, pool_size=1, pool_max=1)
            self._counts = Counts()
            self.group = GroupWriter(self._writer, Checkpointer(self._checkpoints), self._counts.end)  # it begins
        else:
            tables.for_postgres()
            engine = self._writer = _postgres_engine(parsed)
            self._snapshot = engine.execution_options(isolation_level="REPEATABLE READ").begin
            self._connection = engine.execution_options(isolation_level="AUTOCOMMIT").connect

    def writing(self) -> AbstractContextManager[Session]:
        """One write transaction: commits at the end of the block, rolls back when it raises. Raises StoreDown,
        ValueError."""
        return self.writing_as(lambda session: session)

    @contextmanager
    def writing_as(self, wrap: Callable[[Session], Result]) -> Iterator[Result]:
        """The same, as the object that `wrap` makes of the session."""
        with _port_errors(), self._begun() as connection:
            session = Session(connection, self.dialect, self.channels, self._counts)
            yield wrap(session)
        for act in session.after_commit:
            act()
        if session.wrote_events:
            self.when_written()
        if session.announced:
            self.when_announced()

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """All reads in the block see one instant. Raises StoreDown."""
        with _port_errors(), self._snapshot() as connection:
            yield Session(connection, self.dialect, counts=self._counts)

    def read(self, query: Callable[Concatenate[Session, P], Result], *args: P.args, **kwargs: P.kwargs) -> Result:
        """The result of this function of a session, in a transaction of its own. Raises StoreDown."""
        with self.reading() as session:
            return query(session, *args, **kwargs)

    def read_one(self, query: Callable[Concatenate[Session, P], Result], *args: P.args, **kwargs: P.kwargs) -> Result:
        """The same for a function that runs one statement, which needs no transaction: BEGIN and COMMIT cost more than
        most of these, and on Postgres each of them waits for the server. Raises StoreDown."""
        with _port_errors(), self._connection() as connection:
            return query(Session(connection, self.dialect), *args, **kwargs)

    def write(self, change: Callable[Concatenate[Session, P], Result], *args: P.args, **kwargs: P.kwargs) -> Result:
        """The same in a write transaction. Raises StoreDown, ValueError."""
        with self.writing() as session:
            return change(session, *args, **kwargs)

    @contextmanager
    def defining(self) -> Iterator[Connection]:
        """A write transaction for schema changes. SQLite changes a table by a copy and a drop of the old one: with
        foreign keys on, that would delete the rows that refer to it."""
        engine = self._writer
        if self.dialect == "sqlite":
            engine = _sqlite_engine(self._url, pool_size=1, pool_max=1, foreign_keys=False)
            event.listen(engine, "begin", lambda connection: run_plain(connection, "BEGIN IMMEDIATE"))
        try:
            with _port_errors(), engine.begin() as connection:
                yield connection
        finally:
            if engine is not self._writer:
                engine.dispose()

    def connect_alone(self) -> Any:
        """A psycopg connection to Postgres outside the pool, in autocommit; the caller closes it. Raises
        psycopg.Error."""
        pooled = sa.create_engine(self._url, poolclass=sa.NullPool, connect_args=POSTGRES).raw_connection()
        connection = pooled.driver_connection
        pooled.detach()
        assert connection is not None
        connection.autocommit = True
        return connection

    def close(self) -> None:
        if self.group is not None:
            self.group.close()
            self._checkpoints.dispose()
        if self._readers is not None:
            self._readers.close()
        self._writer.dispose()

    @property
    def connections(self) -> int:
        """The connections of the pool that are in use now, without SQLite's one writer, which is always open."""
        if self._readers is not None:
            return self._readers.in_use
        pool = self._writer.pool
        return pool.checkedout() if isinstance(pool, QueuePool) else 0

    def _begun(self) -> AbstractContextManager[Connection]:
        return _begun(self._writer) if self.group is None else self.group.writing(TURN_TIMEOUT_S)


@contextmanager
def _begun(engine: Engine) -> Iterator[Connection]:
    began = time.perf_counter()
    with engine.begin() as connection:
        metrics.WRITE_WAIT_S.observe(time.perf_counter() - began)
        yield connection
        done = time.perf_counter()
    metrics.COMMIT_S.observe(time.perf_counter() - done)


def _parse(url: str) -> URL:
    try:
        parsed = make_url(url)
    except exc.ArgumentError:
        raise SettingsRefused("database_url is not a database URL such as sqlite:///PATH.") from None
    backend = parsed.get_backend_name()
    if backend in ("postgres", "postgresql"):
        return parsed.set(drivername="postgresql+psycopg")
    if backend == "sqlite":
        return parsed.set(drivername="sqlite+pysqlite")
    raise SettingsRefused(f"database_url begins with {backend}; this can use sqlite:///PATH or postgresql://HOST/NAME.")


def _check_sqlite(url: URL) -> None:
    if sqlite3.sqlite_version_info < SQLITE_MIN:
        raise SettingsRefused(
            f"SQLite {sqlite3.sqlite_version} is too old: at least {SQLITE_MIN_TEXT} is needed, or use Postgres."
        )
    if url.database in (None, "", ":memory:"):
        raise SettingsRefused("database_url names no file: a database in memory would lose all runs at a restart.")


def _sqlite_engine(
    url: URL, pool_size: int, pool_max: int, cache_kib: int = READERS_CACHE_KIB, foreign_keys: bool = True
) -> Engine:
    engine = sa.create_engine(
        url,
        paramstyle="named",
        pool_size=pool_size,
        max_overflow=pool_max - pool_size,
        pool_timeout=TURN_TIMEOUT_S,
        # isolation_level None: the driver starts no transactions of its own.
        connect_args={"timeout": BUSY_TIMEOUT_S, "isolation_level": None, "check_same_thread": False},
    )

    @event.listens_for(engine, "connect")
    def configure(connection: Any, _record: object) -> None:
        for pragma in (
            "journal_mode=WAL",
            "synchronous=FULL",
            f"foreign_keys={'ON' if foreign_keys else 'OFF'}",
            "temp_store=MEMORY",
            f"journal_size_limit={JOURNAL_BYTES}",  # after one long reader the WAL shrinks again
            f"cache_size=-{cache_kib}",
            f"wal_autocheckpoint={WAL_PAGES}",
        ):
            connection.execute(f"PRAGMA {pragma}")

    return engine


def _postgres_engine(url: URL) -> Engine:
    try:
        return sa.create_engine(
            url,
            pool_size=READERS,
            max_overflow=READERS_MAX - READERS,
            pool_timeout=TURN_TIMEOUT_S,
            connect_args=POSTGRES,
        )
    except ModuleNotFoundError:
        raise SettingsRefused(
            "database_url names Postgres, but its driver is missing: pip install 'spot-supervisor[postgres]'."
        ) from None


@contextmanager
def _port_errors() -> Iterator[None]:
    """Turns the driver's errors into the port's. Their text has the database's message, never our statement or its
    values."""
    try:
        yield
    except (exc.DataError, OverflowError) as error:
        raise ValueError(f"a value cannot be stored: {_message(error)}") from error
    except (exc.IntegrityError, exc.ProgrammingError):
        raise  # ours, not the database's: a bug must show
    except exc.DBAPIError as error:
        message = _message(error)
        fix = next((fix for sign, fix in FIXES if sign in message), "")
        raise StoreDown(f"the database failed: {message}; nothing was changed{fix}") from error
    except (exc.TimeoutError, TimeoutError) as error:
        raise StoreDown(f"the database was not free within {TURN_TIMEOUT_S:g} s; nothing was changed") from error


def _message(error: Exception) -> str:
    text = str(error.orig if isinstance(error, exc.DBAPIError) else error).strip()
    return clause(text.splitlines()[0]) if text else type(error).__name__
