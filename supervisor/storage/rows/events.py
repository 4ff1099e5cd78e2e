"""History and outbox: written in the transaction of the change they tell of, so neither exists without the other.

Events of a run are numbered from 1; the count stands in the run's row, whose lock keeps two writers from the same
number. Each channel that should hear of an event gets one outbox row. Every change that a person asked for is also one
log line after its commit; texts and values stay in the history, because they may be anybody's words.

A follower of the history must not pass an id that may still be filled. SQLite has one writer at a time, so ids are seen
in their order. In Postgres an INSERT holds the lock ROW EXCLUSIVE on the table from before its first id is taken until
after its rows can be seen (the lock is given back behind the commit), so the holders of that lock in pg_locks are all
who may still fill a hole. Transaction ids do not say as much: the xmax of a snapshot is the follower of the newest
transaction that has *ended*, and an open one may be far above it.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy import and_, bindparam, func, literal, literal_column

from supervisor.domain.events import Event, EventKind
from supervisor.domain.events import announced as word_of
from supervisor.domain.run import Run
from supervisor.ports.history import EventFilter, StoredEvent, Writers
from supervisor.ports.notifier import WEBHOOKS
from supervisor.ports.store import OutboxItem
from supervisor.storage.engine.codec import dumps
from supervisor.storage.engine.database import Database
from supervisor.storage.engine.statements import Session, Statement, incoming, insert, insert_incoming
from supervisor.storage.engine.tables import events, outbox, runs
from supervisor.storage.rows import rows
from supervisor.telemetry import logs as telemetry

LOG = logging.getLogger(__name__)


def log_later(session: Session, new: Sequence[Event], run_id: str = "", owner: str = "") -> None:
    """`run_id`, `owner`: "" for what is about the supervisor itself."""
    for event in new:
        if "request_id" in event.data:
            session.committed.append(partial(_log, event, run_id, owner))


def _log(event: Event, run_id: str, owner: str) -> None:
    LOG.info(
        "Asked for and committed.",
        extra={
            telemetry.ACTION: "audit",
            telemetry.EVENT: str(event.kind),
            telemetry.ACTOR: event.actor,
            telemetry.OWNER: owner,
            telemetry.RUN_ID: run_id,
            telemetry.REQUEST_ID: event.data["request_id"],
            telemetry.TOKEN_ID: event.data.get("token_id", ""),
        },
    )


_WRITTEN = tuple(column for column in events.c if column.key != "id")


def _insert_outbox(dialect: str) -> Any:
    new = incoming(dialect, events.c.run, events.c.sequence, events.c.at, outbox.c.channel)
    source = (
        sa.select(events.c.id, new.c.channel, literal(0), new.c.at, literal(""))
        .join(new, and_(events.c.run == new.c.run, events.c.sequence == new.c.sequence))
        .order_by(events.c.id)
    )
    return insert(outbox, dialect).from_select(["event", "channel", "tries", "next_at", "detail"], source)


INSERT = Statement(lambda dialect: insert_incoming(events, dialect, _WRITTEN))
INSERT_OUTBOX = Statement(_insert_outbox)
INSERT_OWN = Statement(
    lambda dialect: (
        insert(events, dialect)
        .values({column.key: bindparam(column.key) for column in _WRITTEN})
        .returning(events.c.id)
    )
)
INSERT_OWN_OUTBOX = Statement(
    lambda dialect: insert(outbox, dialect).values(
        event=bindparam("event"), channel=bindparam("channel"), tries=0, next_at=bindparam("at"), detail=""
    )
)
COUNT = Statement(
    lambda _: (
        sa.update(runs)
        .values(events=runs.c.events + bindparam("more", type_=sa.BigInteger))
        .where(runs.c.key == bindparam("key"))
        .returning(runs.c.events, runs.c.generation, runs.c.attempt, runs.c.try_attempt, runs.c.owner, runs.c.run_id)
    )
)
STORED = (
    events.c.id, events.c.run, func.coalesce(runs.c.run_id, ""), events.c.at, events.c.generation, events.c.attempt,
    events.c.kind, events.c.text, events.c.actor, events.c.data, events.c.owner,
)  # fmt: skip
DUE = Statement(
    lambda _: (
        sa.select(outbox.c.id, outbox.c.channel, outbox.c.tries, events.c.sequence, *STORED)
        .join(events, events.c.id == outbox.c.event)
        .outerjoin(runs, runs.c.key == events.c.run)
        .where(outbox.c.next_at <= bindparam("now"), outbox.c.channel != literal(WEBHOOKS))
        .order_by(outbox.c.id)
        .limit(bindparam("limit_"))
    )
)
SETTLE = Statement(
    lambda _: (
        sa.update(outbox)
        .values(
            tries=outbox.c.tries + 1,
            next_at=bindparam("next_at"),
            delivered_at=bindparam("delivered_at"),
            detail=bindparam("detail"),
        )
        .where(outbox.c.id == bindparam("id"))
    )
)


class Told(NamedTuple):
    """The next events of one run. `before`: how many it had."""

    key: int
    run_id: str
    owner: str
    before: int
    generation: int
    attempt: int
    new: Sequence[Event]


def next_events(run: Run, before: int, new: Sequence[Event]) -> Told:
    """The attempt is the one that the run is at: the one being placed counts, 0 = none yet."""
    attempt = run.try_.attempt if run.try_ is not None else run.attempt.number if run.attempt is not None else 0
    return Told(run.key, run.run_id, run.owner, before, run.generation, attempt, new)


def add(session: Session, batch: Iterable[Told], channels: Sequence[str], now: float) -> None:
    """Events of runs whose count was raised already, and their outbox rows."""
    written: list[list[Any]] = []
    announced: list[list[Any]] = []
    for key, run_id, owner, before, generation, attempt, new in batch:
        log_later(session, new, run_id, owner)
        for sequence, event in enumerate(new, before + 1):
            written.append([key, sequence, now, generation, attempt, *_cells(event), dumps(event.data), owner])
            if word_of(event) is not None:
                announced += [[key, sequence, now, channel] for channel in channels]
    session.run(INSERT, rows=written)
    if written:
        session.wrote_events(bool(announced))
    session.run(INSERT_OUTBOX, rows=announced)


def add_to_run(session: Session, key: int, new: Sequence[Event], channels: Sequence[str], now: float) -> None:
    """Raises KeyError when there is no such run."""
    row = session.run(COUNT, {"key": key, "more": len(new)}).first()
    if row is None:
        raise KeyError(key)
    count, generation, attempt, try_attempt, owner, run_id = row
    newest = max(attempt, try_attempt)
    add(session, [Told(key, run_id, owner, count - len(new), generation, newest, new)], channels, now)


def add_own(session: Session, new: Sequence[Event], channels: Sequence[str], now: float) -> None:
    """Events about the supervisor itself; they belong to no run."""
    log_later(session, new)
    if new:
        session.wrote_events(any(word_of(event) is not None for event in new))
    for event in new:
        cells = [None, 0, now, 0, 0, *_cells(event), dumps(event.data), ""]
        names = [column.key for column in _WRITTEN]
        event_id = session.run(INSERT_OWN, dict(zip(names, cells, strict=True))).scalar()
        for channel in channels if word_of(event) is not None else ():
            session.run(INSERT_OWN_OUTBOX, {"event": event_id, "channel": channel, "at": now})


def page(
    session: Session,
    run_id: str | None,
    after_id: int,
    limit: int,
    newest_first: bool,
    owner: str | None = None,
    actor: str | None = None,
    before_id: int | None = None,
) -> list[StoredEvent]:
    """Of one run, or of all and the supervisor itself; with an id above `after_id` and below `before_id`."""
    filters = {"run_id": run_id, "owner": owner, "actor": actor, "before": before_id}

    def more(last_id: int | None, count: int) -> list[Sequence[Any]]:
        bounds = {"after": after_id} | filters
        if last_id is not None:
            bounds["before" if newest_first else "after"] = last_id
        given = {name: value for name, value in bounds.items() if name != "after" and value is not None}
        statement = _page(tuple(given), newest_first, actor == "supervisor")
        return list(session.run(statement, {"after": bounds["after"], "limit_": count, **given}))

    return whole_page(more, limit)


def whole_page(more: Callable[[int | None, int], list[Sequence[Any]]], limit: int) -> list[StoredEvent]:
    """`limit` events that can be read, or all that are left: a shorter page means the end to whoever reads page by
    page. `more(last_id, count)`: the next rows after the event `last_id` (None = the first ones)."""
    kept: list[StoredEvent] = []
    last_id: int | None = None
    while True:
        count = limit - len(kept)
        rows_read = more(last_id, count)
        kept += rows.readable(rows_read, stored, "events")
        if len(rows_read) < count or len(kept) == limit:
            return kept
        last_id = rows_read[-1][0]


@cache
def _page(given: tuple[str, ...], newest_first: bool, by_supervisor: bool) -> Statement:
    """What the supervisor does by itself is most of all events, and has no place in the index of actors."""
    select = sa.select(*STORED).outerjoin(runs, runs.c.key == events.c.run).where(events.c.id > bindparam("after"))
    if "before" in given:
        select = select.where(events.c.id < bindparam("before"))
    order = events.c.id
    of_run = "run_id" in given
    for name in ("owner", "actor"):
        if name in given:  # within a run, its own index is the one to use
            column = func.coalesce(events.c[name], "") if of_run else events.c[name]
            select = select.where(column == bindparam(name))
    if "actor" in given and not by_supervisor:
        select = select.where(events.c.actor != literal_column("'supervisor'"))
    if of_run:
        its_key = sa.select(runs.c.key).where(runs.c.run_id == bindparam("run_id")).scalar_subquery()
        select = select.where(events.c.run == its_key)
        order = events.c.sequence  # the same order within a run, and the one that has an index
    select = select.order_by(order.desc() if newest_first else order).limit(bindparam("limit_"))
    return Statement(lambda _: select)


def due(session: Session, now: float, limit: int) -> tuple[list[OutboxItem], list[int]]:
    """Oldest first; and which rows among them cannot be read."""
    rows_due = session.run(DUE, {"now": now, "limit_": limit})
    items, unreadable = rows.parted(
        rows_due, lambda row: OutboxItem(row[0], row[1], row[2], row[3], stored(row[4:])), "outbox"
    )
    return items, [row[0] for row in unreadable]


def put_aside(session: Session, item_ids: Iterable[int], now: float) -> None:
    for item_id in item_ids:
        settle(session, item_id, False, None, rows.PUT_ASIDE, now)


def settle(session: Session, item_id: int, delivered: bool, next_at: float | None, detail: str, now: float) -> None:
    session.run(
        SETTLE,
        {
            "id": item_id,
            "next_at": None if delivered else next_at,
            "delivered_at": now if delivered else None,
            "detail": detail,
        },
    )


def _cells(event: Event) -> tuple[str, str, str]:
    return str(event.kind), event.actor, event.text


def stored(row: Sequence[Any]) -> StoredEvent:
    event_id, key, run_id, at, generation, attempt, kind, text, actor, data, owner = row
    event = Event(EventKind(kind), text, actor, json.loads(data))
    return StoredEvent(event_id, key, run_id, at, generation, attempt, event, owner)


LOOKED_AT = 5000  # ids in one read: what a stranger's history costs is bounded, however little of it is asked for
NEWEST = Statement(lambda _: sa.select(func.max(events.c.id)))
TIME_OF = Statement(
    lambda _: sa.select(events.c.at).where(events.c.id <= bindparam("id")).order_by(events.c.id.desc()).limit(1)
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
    """Implements ports/history.History. `wake_others` is called after our own commits, to wake other processes."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._wake: Callable[[], None] = _nothing
        self.wake_others: Callable[[], None] = _nothing
        database.when_written = self._written

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
            return page(session, None, event_id, limit, False)

    def between(self, where: EventFilter, after: int, to: int, limit: int) -> tuple[list[StoredEvent], int]:
        last = to if where.run_id is not None else min(to, after + LOOKED_AT)
        with self._database.reading() as session:
            page_events = _between(session, where, after, last, limit)
        return page_events, page_events[-1].id if len(page_events) == limit else last

    def time_of(self, event_id: int) -> float | None:
        with self._database.reading() as session:
            written_at: float | None = session.run(TIME_OF, {"id": event_id}).scalar()
        return written_at

    def on_written(self, wake: Callable[[], None]) -> None:
        self._wake = wake

    def written_elsewhere(self) -> None:
        """Another process has written events."""
        self._wake()

    def _written(self) -> None:
        self._wake()
        self.wake_others()


def _between(session: Session, where: EventFilter, after: int, last: int, limit: int) -> list[StoredEvent]:
    params: dict[str, Any] = {"last": last}
    given = {name: getattr(where, name) for name in ("run_id", "owner", "actor") if getattr(where, name) is not None}
    kinds = tuple(sorted(where.kinds))
    params |= given | {f"kind_{n}": kind for n, kind in enumerate(kinds)}
    statement = _select(frozenset(given), len(kinds))

    def more(last_id: int | None, count: int) -> list[Sequence[Any]]:
        begin = after if last_id is None else last_id
        return list(session.run(statement, {**params, "after": begin, "limit_": count}))

    return whole_page(more, limit)


@cache
def _select(given: frozenset[str], kinds: int) -> Statement:
    select = (
        sa.select(*STORED)
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
