"""SQL that is built once for each database and then only executed, one row or many rows at a time.

Many rows travel as one JSON text and are unfolded inside the database, and long reads come back as few long texts:
the driver lets go of the interpreter at each row it steps over, and takes milliseconds to get it back when other
threads are busy. Ten thousand rows one by one took 2.5 s beside four busy threads, as one text 0.06 s.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any
from typing import cast as cast_type

import sqlalchemy as sa
from sqlalchemy import Column, Table, bindparam, cast, exc, func, literal_column
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import Connection, Dialect

from supervisor.storage.engine.codec import dumps

Incoming = sa.Subquery
Params = Mapping[str, Any]


@cache
def _dialect(name: str) -> Dialect:
    if name == "sqlite":
        return sqlite.dialect(paramstyle="named")
    from sqlalchemy.dialects.postgresql.psycopg import PGDialect_psycopg

    return PGDialect_psycopg()  # type: ignore[no-untyped-call]


class Statement:
    """`build` gets the name of the dialect. Compiled at its first use."""

    def __init__(self, build: Callable[[str], Any]) -> None:
        self._build = build
        self._compiled: dict[str, tuple[str, Params]] = {}

    def compiled(self, dialect: str) -> tuple[str, Params]:
        """(SQL with the driver's own placeholders, the values that it always has)."""
        compiled = self._compiled.get(dialect)
        if compiled is None:
            built = self._build(dialect).compile(dialect=_dialect(dialect))
            constants = {name: value for name, value in built.params.items() if value is not None}
            compiled = self._compiled[dialect] = (str(built), constants)
        return compiled


class Rows(list[Any]):
    """What a statement answered, all of it; `rowcount` is how many rows it touched."""

    def __init__(self, rows: Iterable[Any], rowcount: int) -> None:
        super().__init__(rows)
        self.rowcount = rowcount

    def first(self) -> Any:
        """None when there is no row."""
        return self[0] if self else None

    def scalar(self) -> Any:
        """The first value of the first row; None when there is no row."""
        return self[0][0] if self else None


class Session:
    """One transaction on one connection, which must have been begun. Statements go to the driver itself: SQLAlchemy's
    way there costs more than SQLite's whole answer. `committed`: what is to be done when the commit is done, and never
    where it failed; short, and it must not raise. `when_written` is done so, once, where events were written, and
    `when_announced` where one of them is announced."""

    def __init__(
        self,
        connection: Connection,
        dialect: str,
        when_written: Callable[[], None] = lambda: None,
        when_announced: Callable[[], None] = lambda: None,
    ) -> None:
        self.connection = connection
        self.dialect = dialect
        self.committed: list[Callable[[], None]] = []
        self._when_told, self._when_announced = when_written, when_announced
        driver = connection.connection.dbapi_connection
        assert driver is not None
        self._driver = driver

    def wrote_events(self, announced: bool) -> None:
        """Events are among what is written; `announced`: so are rows of the outbox."""
        for act in (self._when_told, self._when_announced) if announced else (self._when_told,):
            if act not in self.committed:
                self.committed.append(act)

    def run(
        self, statement: Statement, params: Params | None = None, rows: Sequence[Sequence[Any]] | None = None
    ) -> Rows:
        """`rows`: of a statement over `incoming` rows, instead of parameters; without any it is not executed. Raises
        ValueError for a parameter that two databases would store differently, DBAPIError."""
        if rows is not None and not rows:
            return Rows((), 0)
        for value in (params or {}).values():
            check(value)
        given = {"rows": dumps(rows)} if params is None else params
        text, constants = statement.compiled(self.dialect)
        cursor = self._driver.cursor()
        try:
            cursor.execute(text, {**constants, **given})
            return Rows(cursor.fetchall() if cursor.description else (), cursor.rowcount)
        except self.connection.dialect.loaded_dbapi.Error as error:
            raise as_sqlalchemy_says(self.connection.dialect, error) from error
        finally:
            cursor.close()


def as_sqlalchemy_says(dialect: Dialect, error: Exception) -> BaseException:
    """The driver's error in the one tree that the rest of storage knows; without the statement and its values."""
    return exc.DBAPIError.instance(None, None, error, dialect.loaded_dbapi.Error, dialect=dialect)


def check(value: object) -> None:
    if isinstance(value, str):
        if "\x00" in value:
            raise ValueError("a text holds NUL, which cannot be stored")
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a number is not finite and cannot be stored")


def incoming(dialect: str, *columns: Column[Any], name: str = "rows") -> Incoming:
    """The rows of `Session.run`, each a list of values in the order of `columns`, under the columns' names. `name`: of
    the parameter that holds them."""
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


def insert_incoming(table: Table, dialect: str, columns: Sequence[Column[Any]]) -> sqlite.Insert:
    """INSERT of the incoming rows, ready for an ON CONFLICT."""
    rows = incoming(dialect, *columns)
    # SQLite cannot tell ON CONFLICT from a join's ON unless the SELECT has a WHERE.
    source = sa.select(*rows.c).where(literal_column("1") == literal_column("1"))
    return insert(table, dialect).from_select([column.key for column in columns], source)


def insert(table: Table, dialect: str) -> sqlite.Insert:
    """The dialect's own INSERT: both know ON CONFLICT, in the same words."""
    if dialect == "sqlite":
        return sqlite.insert(table)
    from sqlalchemy.dialects import postgresql

    return cast_type("sqlite.Insert", postgresql.insert(table))


def in_chunks(items: Sequence[Any], size: int) -> Iterable[Sequence[Any]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
