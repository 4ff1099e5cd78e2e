"""The history as readers follow it, and the record of patrols: implements ports/history.

A reader must not pass an id that may still be filled. SQLite has one writer at a time, so ids become visible in their
order. In Postgres an INSERT holds the lock ROW EXCLUSIVE on the table from before its first id until after its rows are
visible (the lock is freed behind the commit), so the holders of that lock in pg_locks are all transactions that may
still fill a gap. Transaction ids do not show this: the xmax of a snapshot follows the newest *ended* transaction, and
an open one may be far above it.

A row of `meta` has the time of the last patrol, so two replicas never report it twice.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam, func, literal_column, or_

from supervisor.domain.attempt import Attempt
from supervisor.domain.events import Event
from supervisor.ports.history import EventFilter, LeaseGap, StoredEvent, Writers
from supervisor.storage.engine.database import Database
from supervisor.storage.engine.statements import Session, Statement, insert_one
from supervisor.storage.engine.tables import attempts, events, meta, runs
from supervisor.storage.rows import cells, rows
from supervisor.storage.rows.events import STORED, add_own, stored_event

SCANNED = 5000  # ids in one read: bounds the cost of a filter that few events match
PATROL_AT = "patrol_at"  # name in `meta`
NEWEST = Statement(sa.select(func.max(events.c.id)))
TIME_OF = Statement(sa.select(events.c.at).where(events.c.id <= bindparam("id")).order_by(events.c.id.desc()).limit(1))
WRITERS = Statement(
    sa.text(
        "SELECT virtualtransaction FROM pg_locks WHERE locktype = 'relation' AND mode = 'RowExclusiveLock' AND granted "
        "AND database = (SELECT oid FROM pg_database WHERE datname = current_database()) "
        "AND relation = CAST('events' AS regclass)"
    )
)
LAST = Statement(sa.select(meta.c.value).where(meta.c.name == PATROL_AT))
BEGIN = Statement(lambda dialect: insert_one(meta, dialect).on_conflict_do_nothing(index_elements=["name"]))
ADVANCE = Statement(
    sa.update(meta).values(value=bindparam("now")).where(meta.c.name == PATROL_AT, meta.c.value == bindparam("last"))
)


def _attempts_since() -> Any:
    live = or_(runs.c.ended_at.is_(None), runs.c.ended_at >= bindparam("since"))
    keys = (
        sa.select(runs.c.key)
        .where(runs.c.key > bindparam("after"), live)
        .order_by(runs.c.key)
        .limit(bindparam("limit_"))
        .subquery()
    )
    return sa.select(keys.c.key, attempts.c.doc).outerjoin(attempts, attempts.c.run == keys.c.key)


ATTEMPTS_SINCE = Statement(_attempts_since())


class SqlHistory:
    """Implements ports/history.History. `wake_others` is called after our own commits, to wake other processes."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._wake: Callable[[], None] = _nothing
        self.wake_others: Callable[[], None] = _nothing
        database.when_written = self._written

    def newest(self) -> int:
        return self._database.read(Session.run, NEWEST).scalar() or 0

    def writers(self) -> Writers:
        if self._database.dialect == "sqlite":
            return frozenset()
        return frozenset(holder for (holder,) in self._database.read(Session.run, WRITERS))

    def after(self, event_id: int, limit: int) -> list[StoredEvent]:
        return self._database.read(page, EventFilter(), event_id, limit)

    def between(self, where: EventFilter, after: int, to: int, limit: int) -> tuple[list[StoredEvent], int]:
        last = to if where.run_id is not None else min(to, after + SCANNED)
        events_read = self._database.read(page, where, after, limit, before_id=last + 1)
        return events_read, events_read[-1].id if len(events_read) == limit else last

    def time_of(self, event_id: int) -> float | None:
        written_at: float | None = self._database.read(Session.run, TIME_OF, {"id": event_id}).scalar()
        return written_at

    def on_written(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def written_elsewhere(self) -> None:
        """Another process has written events."""
        self._wake()

    def _written(self) -> None:
        self._wake()
        self.wake_others()


class SqlPatrols:
    """Implements ports/history.Patrols."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def last(self) -> float | None:
        value = self._database.read(Session.run, LAST).scalar()
        return None if value is None else float(value)

    def record(self, event: Event | None, last: float | None, now: float) -> bool:
        with self._database.writing() as session:
            if last is None:
                written = session.run(BEGIN, {"name": PATROL_AT, "value": repr(now)})
            else:
                written = session.run(ADVANCE, {"now": repr(now), "last": repr(last)})
            if written.rowcount != 1:
                return False
            if event is not None:
                add_own(session, [event], now)
        return True

    def attempts(self, since: float, after_key: int, limit: int) -> tuple[list[Attempt], int | None]:
        stored = self._database.read(Session.run, ATTEMPTS_SINCE, {"since": since, "after": after_key, "limit_": limit})
        keys = {key for key, _ in stored}
        next_key = max(keys) if len(keys) == limit else None
        return [rows.read_attempt(doc) for _, doc in stored if doc is not None], next_key

    def lease_gap(self, lease: str, ttl_s: float) -> LeaseGap | None:
        return self._database.read(cells.lease_gap, lease, ttl_s)


def page(
    session: Session,
    where: EventFilter,
    after_id: int,
    limit: int,
    *,
    before_id: int | None = None,
    newest_first: bool = False,
) -> list[StoredEvent]:
    """`limit` readable events with after_id < id < before_id that match, or all that are left: a short page is the last
    one for a reader that reads page by page."""
    filters = {"run_id": where.run_id, "owner": where.owner, "actor": where.actor, "before": before_id}
    params: dict[str, Any] = {name: value for name, value in filters.items() if value is not None}
    if newest_first:
        params.setdefault("before", 2**62)  # the bound that moves from page to page
    statement = _page(tuple(params), len(where.kinds), newest_first, where.actor == "supervisor")
    params |= {f"kind_{n}": kind for n, kind in enumerate(sorted(where.kinds))}
    params["after"] = after_id
    kept: list[StoredEvent] = []
    while True:
        count = limit - len(kept)
        stored = session.run(statement, {**params, "limit_": count})
        kept += rows.readable(stored, stored_event, "events")
        if len(stored) < count or len(kept) == limit:
            return kept
        params["before" if newest_first else "after"] = stored[-1][0]


@cache
def _page(names: tuple[str, ...], kinds: int, newest_first: bool, by_supervisor: bool) -> Statement:
    """`names`: of the filters. Most events have the actor `supervisor`, which the index of actors leaves out."""
    select = sa.select(*STORED).outerjoin(runs, runs.c.key == events.c.run).where(events.c.id > bindparam("after"))
    if "before" in names:
        select = select.where(events.c.id < bindparam("before"))
    order = events.c.id
    of_run = "run_id" in names
    for name in ("owner", "actor"):
        if name in names:  # within a run the index of the run is the right one
            column = func.coalesce(events.c[name], "") if of_run else events.c[name]
            select = select.where(column == bindparam(name))
    if "actor" in names and not by_supervisor:
        select = select.where(events.c.actor != literal_column("'supervisor'"))
    if kinds:
        select = select.where(or_(*(events.c.kind == bindparam(f"kind_{n}") for n in range(kinds))))
    if of_run:
        run_key = sa.select(runs.c.key).where(runs.c.run_id == bindparam("run_id")).scalar_subquery()
        select = select.where(events.c.run == run_key)
        order = events.c.sequence  # the same order within a run, and it has an index
    return Statement(select.order_by(order.desc() if newest_first else order).limit(bindparam("limit_")))


def _nothing() -> None:
    return
