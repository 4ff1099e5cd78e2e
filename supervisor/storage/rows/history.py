"""Following the history in SQL, and the bell that rings after a commit that wrote events.

SQLite: one writer at a time, so ids are seen in their order. Postgres: an INSERT holds the lock ROW EXCLUSIVE on the
table from before its first id is taken until after its rows can be seen (the lock is given back behind the commit), so
the holders of that lock in pg_locks are all who may still fill a hole. Transaction ids do not say as much: the xmax of
a snapshot is the follower of the newest transaction that has *ended*, and an open one may be far above it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam, func

from supervisor.ports.history import EventFilter, StoredEvent, Writers
from supervisor.storage.engine.database import Database
from supervisor.storage.engine.statements import Session, Statement
from supervisor.storage.engine.tables import events, runs
from supervisor.storage.rows import events as rows

LOOKED_AT = (
    5000  # ids in one read: what a stranger's history costs is bounded, however little of it is asked for
)
NEWEST = Statement(lambda _: sa.select(func.max(events.c.id)))
TIME_OF = Statement(
    lambda _: (
        sa.select(events.c.at).where(events.c.id <= bindparam("id")).order_by(events.c.id.desc()).limit(1)
    )
)
WRITERS = Statement(
    lambda _: sa.text(
        "SELECT virtualtransaction FROM pg_locks WHERE locktype = 'relation' AND mode = 'RowExclusiveLock' AND granted "
        "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
        "AND relation = CAST('events' AS regclass)"
    )
)


def _nothing() -> None:
    return


class SqlHistory:
    """Implements ports/history.History. `tell_others` is called after our own commits, to wake other processes."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._wake: Callable[[], None] = _nothing
        self.tell_others: Callable[[], None] = _nothing
        database.when_told = self._written

    def newest(self) -> int:
        with self._database.reading() as session:
            return session.run(NEWEST, {}).scalar() or 0

    def writers(self) -> Writers:
        if self._database.dialect == "sqlite":
            return frozenset()
        with self._database.reading() as session:
            return frozenset(holder for (holder,) in session.run(WRITERS, {}))

    def after(self, event_id: int, limit: int) -> list[StoredEvent]:
        with self._database.reading() as session:
            return rows.page(session, None, event_id, limit, False)

    def between(self, where: EventFilter, after: int, to: int, limit: int) -> tuple[list[StoredEvent], int]:
        last = to if where.run_id is not None else min(to, after + LOOKED_AT)
        with self._database.reading() as session:
            found = _between(session, where, after, last, limit)
        return found, found[-1].id if len(found) == limit else last

    def time_of(self, event_id: int) -> float | None:
        with self._database.reading() as session:
            found: float | None = session.run(TIME_OF, {"id": event_id}).scalar()
        return found

    def on_written(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def heard(self) -> None:
        """Another process has written events."""
        self._wake()

    def _written(self) -> None:
        self._wake()
        self.tell_others()


def _between(session: Session, where: EventFilter, after: int, last: int, limit: int) -> list[StoredEvent]:
    params: dict[str, Any] = {"last": last}
    given = {
        name: getattr(where, name)
        for name in ("run_id", "owner", "actor")
        if getattr(where, name) is not None
    }
    kinds = tuple(sorted(where.kinds))
    params |= given | {f"kind_{n}": kind for n, kind in enumerate(kinds)}
    statement = _select(frozenset(given), len(kinds))

    def more(last_id: int | None, count: int) -> list[Sequence[Any]]:
        begin = after if last_id is None else last_id
        return list(session.run(statement, {**params, "after": begin, "limit_": count}))

    return rows.whole_page(more, limit)


@cache
def _select(given: frozenset[str], kinds: int) -> Statement:
    select = (
        sa.select(*rows.STORED)
        .outerjoin(runs, runs.c.key == events.c.run)
        .where(events.c.id > bindparam("after"), events.c.id <= bindparam("last"))
    )
    order = events.c.id
    if "run_id" in given:
        its_key = sa.select(runs.c.key).where(runs.c.run_id == bindparam("run_id")).scalar_subquery()
        select = select.where(events.c.run == its_key)
        order = events.c.sequence  # the same order within a run, and the one that has an index
    for name in ("owner", "actor"):
        if name in given:
            select = select.where(events.c[name] == bindparam(name))
    if kinds:
        select = select.where(sa.or_(*(events.c.kind == bindparam(f"kind_{n}") for n in range(kinds))))
    select = select.order_by(order).limit(bindparam("limit_"))
    return Statement(lambda _: select)
