"""History and outbox: written in the transaction of the change they tell of, so neither exists without the other.

Events of a run are numbered from 1; the count stands in the run's row, whose lock keeps two writers from the same
number. Whoever should hear of an event gets one outbox row for each channel.

One log line for every change that somebody asked for, written when it is committed and never otherwise.

The history is the audit; this is for those who collect logs. What was asked for is an event that names its request:
whoever makes it, it passes through here. Texts and values stay in the history: they may be anybody's words.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy import and_, bindparam, func, literal, literal_column

from supervisor.domain.announcements import announced as word_of
from supervisor.domain.events import Event, EventKind
from supervisor.domain.run import Run
from supervisor.ports.endpoints import WEBHOOKS
from supervisor.ports.history import StoredEvent
from supervisor.ports.store import OutboxItem
from supervisor.storage.engine.codec import dumps
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
    told = incoming(dialect, events.c.run, events.c.sequence, events.c.at, outbox.c.channel)
    source = (
        sa.select(events.c.id, told.c.channel, literal(0), told.c.at, literal(""))
        .join(told, and_(events.c.run == told.c.run, events.c.sequence == told.c.sequence))
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
        .returning(
            runs.c.events, runs.c.generation, runs.c.attempt, runs.c.try_attempt, runs.c.owner, runs.c.run_id
        )
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


def told(run: Run, before: int, new: Sequence[Event]) -> Told:
    return Told(run.key, run.run_id, run.owner, before, run.generation, rows.attempt_of(run), new)


def add(session: Session, batch: Iterable[Told], channels: Sequence[str], now: float) -> None:
    """Events of runs whose count was raised already, and their outbox rows."""
    written: list[list[Any]] = []
    announced: list[list[Any]] = []
    for key, run_id, owner, before, generation, attempt, new in batch:
        log_later(session, new, run_id, owner)
        for sequence, event in enumerate(new, before + 1):
            written.append([key, sequence, now, generation, attempt, *_cells(event), owner])
            if word_of(event) is not None:
                announced += [[key, sequence, now, channel] for channel in channels]
    session.many(INSERT, written)
    if written:
        session.told(bool(announced))
    session.many(INSERT_OUTBOX, announced)


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
        session.told(any(word_of(event) is not None for event in new))
    for event in new:
        cells = [None, 0, now, 0, 0, *_cells(event), ""]
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
    asked = {"run_id": run_id, "owner": owner, "actor": actor, "before": before_id}

    def more(last_id: int | None, count: int) -> list[Sequence[Any]]:
        bounds = {"after": after_id} | asked
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
        found = more(last_id, count)
        kept += rows.readable(found, stored, "events")
        if len(found) < count or len(kept) == limit:
            return kept
        last_id = found[-1][0]


@cache
def _page(given: tuple[str, ...], newest_first: bool, by_supervisor: bool) -> Statement:
    """What the supervisor does by itself is most of all events, and has no place in the index of actors."""
    select = (
        sa.select(*STORED).outerjoin(runs, runs.c.key == events.c.run).where(events.c.id > bindparam("after"))
    )
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
    found = session.run(DUE, {"now": now, "limit_": limit})
    items, unreadable = rows.parted(
        found, lambda row: OutboxItem(row[0], row[1], row[2], row[3], stored(row[4:])), "outbox"
    )
    return items, [row[0] for row in unreadable]


def put_aside(session: Session, item_ids: Iterable[int], now: float) -> None:
    for item_id in item_ids:
        settle(session, item_id, False, None, rows.PUT_ASIDE, now)


def settle(
    session: Session, item_id: int, delivered: bool, next_at: float | None, detail: str, now: float
) -> None:
    session.run(
        SETTLE,
        {
            "id": item_id,
            "next_at": None if delivered else next_at,
            "delivered_at": now if delivered else None,
            "detail": detail,
        },
    )


def _cells(event: Event) -> tuple[str, str, str, str]:
    return str(event.kind), event.actor, event.text, dumps(event.data)


def stored(row: Sequence[Any]) -> StoredEvent:
    event_id, key, run_id, at, generation, attempt, kind, text, actor, data, owner = row
    event = Event(EventKind(kind), text, actor, json.loads(data))
    return StoredEvent(event_id, key, run_id, at, generation, attempt, event, owner)
