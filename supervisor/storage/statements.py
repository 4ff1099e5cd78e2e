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
from sqlalchemy import Column, Table, bindparam, cast, func, literal_column
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import Connection, CursorResult, Dialect

from supervisor.storage.codec import dumps

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
        known = self._compiled.get(dialect)
        if known is None:
            built = self._build(dialect).compile(dialect=_dialect(dialect))
            constants = {name: value for name, value in built.params.items() if value is not None}
            known = self._compiled[dialect] = (str(built), constants)
        return known


class Session:
    """One transaction on one connection."""

    def __init__(self, connection: Connection, dialect: str) -> None:
        self.connection = connection
        self.dialect = dialect

    def run(self, statement: Statement, params: Params) -> CursorResult[Any]:
        """Raises ValueError for a parameter that two databases would store differently."""
        for value in params.values():
            check(value)
        text, constants = statement.compiled(self.dialect)
        return self.connection.exec_driver_sql(text, {**constants, **params})

    def many(self, statement: Statement, rows: Sequence[Sequence[Any]]) -> int:
        """A statement over `incoming` rows; how many rows it touched."""
        if not rows:
            return 0
        text, constants = statement.compiled(self.dialect)
        return self.connection.exec_driver_sql(text, {**constants, "rows": dumps(rows)}).rowcount

    def query(self, select: sa.Select[Any] | sa.CompoundSelect[Any]) -> CursorResult[Any]:
        """For statements whose shape depends on what is asked."""
        return self.connection.execute(select)


def check(value: object) -> None:
    if isinstance(value, str):
        if "\x00" in value:
            raise ValueError("a text holds NUL, which cannot be stored")
    elif isinstance(value, float) and not math.isfinite(value):
        raise ValueError("a number is not finite and cannot be stored")


def incoming(dialect: str, *columns: Column[Any]) -> Incoming:
    """The rows of `Session.many`, each a list of values in the order of `columns`, under the columns' names."""
    rows = bindparam("rows", type_=sa.Text)
    cells: list[sa.ColumnElement[Any]]
    if dialect == "sqlite":
        each = func.json_each(rows).table_valued("value", name="each")
        cells = [func.json_extract(each.c.value, literal_column(f"'$[{n}]'")) for n in range(len(columns))]
    else:
        each = func.jsonb_array_elements(rows.op("::")(literal_column("jsonb"))).table_valued(
            "value", name="each"
        )
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
