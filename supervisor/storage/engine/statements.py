"""SQL statements that are compiled once per database and then only executed, for one row or for many rows.

Many rows are sent as one JSON text that the database unpacks, and long reads return few long texts. The driver releases
the interpreter lock at each row, and needs milliseconds to get it back beside busy threads: ten thousand rows one by
one took 2.5 s beside four busy threads, and 0.06 s as one text.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar
from typing import cast as cast_type

import sqlalchemy as sa
from sqlalchemy import Column, Table, bindparam, cast, exc, func, literal_column
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import Connection, Dialect

from supervisor.storage.engine.codec import dumps

Incoming = sa.Subquery
Result = TypeVar("Result")
Params = Mapping[str, Any]
# How the statements begin that change what a list of runs counts.
LISTED = tuple(f"{verb} {table}" for verb in ("INSERT INTO", "UPDATE", "DELETE FROM") for table in ("runs ", "labels "))
COUNTS_KEPT = 100  # filters


@cache
def _dialect(name: str) -> Dialect:
    if name == "sqlite":
        return sqlite.dialect(paramstyle="named")
    from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

    return PGDialect_psycopg()  # type: ignore[no-untyped-call]


class Statement:
    """`source`: the statement, or a function of the dialect's name that returns it. Compiled at its first use."""

    def __init__(self, source: sa.ClauseElement | Callable[[str], sa.ClauseElement]) -> None:
        self._source = source
        self._compiled: dict[str, tuple[str, Params]] = {}

    def compiled(self, dialect: str) -> tuple[str, Params]:
        """(SQL with the driver's placeholders, its constant values)."""
        compiled = self._compiled.get(dialect)
        if compiled is None:
            source = self._source if isinstance(self._source, sa.ClauseElement) else self._source(dialect)
            built = source.compile(dialect=_dialect(dialect))
            constants = {name: value for name, value in built.params.items() if value is not None}
            compiled = self._compiled[dialect] = (str(built), constants)
        return compiled


class Rows(list[Any]):
    """All rows that a statement returned. `rowcount`: the number of rows that it changed."""

    def __init__(self, rows: Iterable[Any], rowcount: int) -> None:
        super().__init__(rows)
        self.rowcount = rowcount

    def first(self) -> Any:
        """None = there is no row."""
        return self[0] if self else None

    def scalar(self) -> Any:
        """The first value of the first row; None = there is no row."""
        return self[0][0] if self else None


class Counts:
    """Counts of lists, kept until a row is written that a list counts. For SQLite, where one process writes.

    `changes` is odd from the first such write of a transaction until the transaction has ended. A reader notes it
    before its snapshot begins, and compares it afterwards: the same even number means that no such transaction ended
    in between, so its snapshot has the rows of this number."""

    def __init__(self) -> None:
        self.changes = 0
        self._kept: tuple[int, dict[Hashable, Any]] = (0, {})

    def begin(self) -> None:
        """Called before such a write, by the holder of the write lock."""
        self.changes |= 1

    def end(self) -> None:
        """Called after the commit or the rollback, by the holder of the write lock."""
        self.changes += self.changes % 2

    def of(self, key: Hashable, noted: int, count: Callable[[], Result]) -> Result:
        """`noted`: `changes` before the snapshot. `key`: of all that `count` depends on. It is called in the
        snapshot, after a first read."""
        if noted % 2 or noted != self.changes:
            return count()
        number, kept = self._kept
        if number != noted or len(kept) >= COUNTS_KEPT:
            number, kept = self._kept = (noted, {})
        if key not in kept:
            kept[key] = count()
        counted: Result = kept[key]
        return counted


class Session:
    """One transaction that has begun on one connection. Statements go to the driver directly: SQLAlchemy's execution
    costs more than SQLite's whole response. `channels`: the outbox channels of announced events. `counts`: None on
    Postgres. `wrote_events`, `announced`: set where events, and announcements of events, are among the writes.
    `after_commit`: short functions that must not raise."""

    def __init__(
        self, connection: Connection, dialect: str, channels: Sequence[str] = (), counts: Counts | None = None
    ) -> None:
        self.connection = connection
        self.counts = counts
        self.dialect = dialect
        self.channels = channels
        self.wrote_events = self.announced = False
        self.after_commit: list[Callable[[], None]] = []
        driver = connection.connection.dbapi_connection
        assert driver is not None
        self._driver = driver

    def run(
        self, statement: Statement, params: Params | None = None, rows: Sequence[Sequence[Any]] | None = None
    ) -> Rows:
        """`rows`: for a statement over `incoming` rows, instead of parameters; without rows it is not executed. Raises
        ValueError for a parameter that the two databases store differently, DBAPIError."""
        if rows is not None and not rows:
            return Rows((), 0)
        for value in (params or {}).values():
            check(value)
        given = {"rows": dumps(rows)} if rows is not None else params or {}
        text, constants = statement.compiled(self.dialect)
        if self.counts is not None and text.startswith(LISTED):
            self.counts.begin()
        cursor = self._driver.cursor()
        try:
            cursor.execute(text, {**constants, **given})
            return Rows(cursor.fetchall() if cursor.description else (), cursor.rowcount)
        except self.connection.dialect.loaded_dbapi.Error as error:
            raise sqlalchemy_error(self.connection.dialect, error) from error
        finally:
            cursor.close()


def run_plain(connection: Connection, text: str) -> None:
    """A statement without parameters or rows, by the driver itself: through SQLAlchemy BEGIN and COMMIT would take a
    third of the time of a short transaction. Raises DBAPIError."""
    driver = connection.connection.dbapi_connection
    assert driver is not None
    try:
        driver.cursor().execute(text)
    except connection.dialect.loaded_dbapi.Error as error:
        raise sqlalchemy_error(connection.dialect, error) from error


def sqlalchemy_error(dialect: Dialect, error: Exception) -> BaseException:
    """The driver's error as SQLAlchemy's, which the rest of storage handles; without the statement and its values."""
    return exc.DBAPIError.instance(None, None, error, dialect.loaded_dbapi.Error, dialect=dialect)


def check(value: object) -> None:
    if isinstance(value, str):
        if "\x00" in value:
            raise ValueError("a text contains NUL, which cannot be stored")
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a number is not finite and cannot be stored")


def incoming(dialect: str, *columns: Column[Any], name: str = "rows") -> Incoming:
    """The rows of `Session.run` as a table with these columns; each row is a list of values in this order. `name`: of
    the parameter with the rows."""
    rows = bindparam(name, type_=sa.Text)
    cells: list[sa.ColumnElement[Any]]
    if dialect == "sqlite":
        each = func.json_each(rows).table_valued("value", name="each")
        cells = [func.json_extract(each.c.value, literal_column(f"'$[{n}]'")) for n in range(len(columns))]
    else:
        each = func.jsonb_array_elements(rows.op("::")(literal_column("jsonb"))).table_valued("value", name="each")
        cells = [cast(each.c.value.op("->>")(literal_column(str(n))), c.type) for n, c in enumerate(columns)]
    named = [cell.label(column.key) for cell, column in zip(cells, columns, strict=True)]
    return sa.select(*named).select_from(each).subquery("incoming")


def incoming_texts(dialect: str) -> Incoming:
    """The object `rows` (whole number -> text) as a table with the columns `key` and `value`. SQLite parses it once, a
    list of rows once more for each row: half the cost of long texts."""
    rows = bindparam("rows", type_=sa.Text)
    if dialect == "sqlite":
        each = func.json_each(rows).table_valued("key", "value", name="each")
    else:
        each = func.jsonb_each_text(rows.op("::")(literal_column("jsonb"))).table_valued("key", "value", name="each")
    return sa.select(cast(each.c.key, sa.BigInteger).label("key"), each.c.value).select_from(each).subquery("incoming")


def insert_incoming(table: Table, dialect: str, columns: Sequence[Column[Any]]) -> sqlite.Insert:
    """INSERT of `incoming` rows, to which an ON CONFLICT may be added."""
    rows = incoming(dialect, *columns)
    # Without a WHERE in the SELECT, SQLite reads ON CONFLICT as the ON of a join.
    source = sa.select(*rows.c).where(literal_column("1") == literal_column("1"))
    return insert(table, dialect).from_select([column.key for column in columns], source)


def insert(table: Table, dialect: str) -> sqlite.Insert:
    """The dialect's own INSERT: both have the same ON CONFLICT."""
    if dialect == "sqlite":
        return sqlite.insert(table)
    from sqlalchemy.dialects import postgresql

    return cast_type("sqlite.Insert", postgresql.insert(table))


def insert_one(table: Table, dialect: str, without: str = "") -> sqlite.Insert:
    """INSERT of one row with a parameter for each column but `without`."""
    names = [column.key for column in table.c if column.key != without]
    return insert(table, dialect).values({name: bindparam(name) for name in names})


def owner_lock(number: int) -> Statement:
    """An advisory lock for an owner until the end of the transaction, for Postgres: `number` names what it guards."""
    return Statement(
        sa.select(func.pg_advisory_xact_lock(literal_column(str(number)), func.hashtext(bindparam("owner"))))
    )


def in_chunks(items: Sequence[Any], size: int) -> Iterable[Sequence[Any]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
