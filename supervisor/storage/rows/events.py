"""Events and their outbox rows, written in the transaction of the change, so neither exists without the other.

The events of a run are numbered from 1; the count is in the run's row, whose lock keeps two writers from the same
number. An announced event gets one outbox row per channel. Each action of a caller is also one log line after its
commit, without its texts and values, which may come from anyone.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy import and_, bindparam, func, literal

from supervisor.domain.events import Event, EventKind, announced
from supervisor.domain.run import Run
from supervisor.ports.history import StoredEvent
from supervisor.ports.notifier import WEBHOOKS
from supervisor.ports.store import OutboxItem
from supervisor.storage.engine.codec import dumps
from supervisor.storage.engine.statements import Session, Statement, incoming, insert, insert_incoming, insert_one
from supervisor.storage.engine.tables import events, outbox, runs
from supervisor.storage.rows import rows
from supervisor.telemetry import logs as telemetry

LOG = logging.getLogger(__name__)

_WRITTEN = tuple(column for column in events.c if column.key != "id")
_OF_NO_RUN = {"run": None, "sequence": 0, "generation": 0, "attempt": 0, "owner": ""}
STORED = (
    events.c.id, events.c.run, func.coalesce(runs.c.run_id, ""), events.c.at, events.c.generation, events.c.attempt,
    events.c.kind, events.c.text, events.c.actor, events.c.data, events.c.owner,
)  # fmt: skip


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
INSERT_OWN = Statement(lambda dialect: insert_one(events, dialect, "id").returning(events.c.id))
INSERT_OWN_OUTBOX = Statement(
    sa.insert(outbox).values(
        event=bindparam("event"), channel=bindparam("channel"), tries=0, next_at=bindparam("at"), detail=""
    )
)
COUNT = Statement(
    sa.update(runs)
    .values(events=runs.c.events + bindparam("more", type_=sa.BigInteger))
    .where(runs.c.key == bindparam("key"))
    .returning(runs.c.events, runs.c.generation, runs.c.attempt, runs.c.try_attempt, runs.c.owner, runs.c.run_id)
)
DUE = Statement(
    sa.select(outbox.c.id, outbox.c.channel, outbox.c.tries, events.c.sequence, *STORED)
    .join(events, events.c.id == outbox.c.event)
    .outerjoin(runs, runs.c.key == events.c.run)
    .where(outbox.c.next_at <= bindparam("now"), outbox.c.channel != literal(WEBHOOKS))
    .order_by(outbox.c.id)
    .limit(bindparam("limit_"))
)
SETTLE = Statement(
    sa.update(outbox)
    .values(
        tries=outbox.c.tries + 1,
        next_at=bindparam("next_at"),
        delivered_at=bindparam("delivered_at"),
        detail=bindparam("detail"),
    )
    .where(outbox.c.id == bindparam("id"))
)


class NewEvents(NamedTuple):
    """The next events of one run. `before`: the number of its events before them."""

    key: int
    run_id: str
    owner: str
    before: int
    generation: int
    attempt: int
    new: Sequence[Event]


def next_events(run: Run, before: int, new: Sequence[Event]) -> NewEvents:
    """The attempt is the current one, also while it is being placed; 0 = none yet."""
    attempt = run.try_.attempt if run.try_ is not None else run.attempt.number if run.attempt is not None else 0
    return NewEvents(run.key, run.run_id, run.owner, before, run.generation, attempt, new)


def add(session: Session, batch: Iterable[NewEvents], now: float) -> None:
    """Events of runs whose count is already raised, and their outbox rows."""
    event_rows: list[list[Any]] = []
    outbox_rows: list[list[Any]] = []
    for key, run_id, owner, before, generation, attempt, new in batch:
        _log_after_commit(session, new, run_id, owner)
        for sequence, event in enumerate(new, before + 1):
            texts = (str(event.kind), event.actor, event.text, dumps(event.data))
            event_rows.append([key, sequence, now, generation, attempt, *texts, owner])
            if announced(event) is not None:
                outbox_rows += [[key, sequence, now, channel] for channel in session.channels]
    session.run(INSERT, rows=event_rows)
    session.run(INSERT_OUTBOX, rows=outbox_rows)
    session.wrote_events |= bool(event_rows)
    session.announced |= bool(outbox_rows)


def add_to_run(session: Session, key: int, new: Sequence[Event], now: float) -> None:
    """Raises KeyError when there is no such run."""
    row = session.run(COUNT, {"key": key, "more": len(new)}).first()
    if row is None:
        raise KeyError(key)
    count, generation, attempt, try_attempt, owner, run_id = row
    newest = max(attempt, try_attempt)
    add(session, [NewEvents(key, run_id, owner, count - len(new), generation, newest, new)], now)


def add_own(session: Session, new: Sequence[Event], now: float, owner: str = "") -> None:
    """Events about the supervisor itself, which belong to no run. `owner`: who may read them too, "" = nobody."""
    _log_after_commit(session, new, owner=owner)
    for event in new:
        session.wrote_events = True
        values = {"kind": str(event.kind), "actor": event.actor, "text": event.text, "data": dumps(event.data)}
        event_id = session.run(INSERT_OWN, {**_OF_NO_RUN, "owner": owner, "at": now, **values}).scalar()
        if announced(event) is not None:
            session.announced = True
            for channel in session.channels:
                session.run(INSERT_OWN_OUTBOX, {"event": event_id, "channel": channel, "at": now})


def due(session: Session, now: float, limit: int) -> tuple[list[OutboxItem], list[int]]:
    """The oldest first; and the ids of the rows that cannot be read."""
    items, unreadable = rows.parted(
        session.run(DUE, {"now": now, "limit_": limit}),
        lambda row: OutboxItem(row[0], row[1], row[2], row[3], stored_event(row[4:])),
        "outbox",
    )
    return items, [row[0] for row in unreadable]


def put_aside(session: Session, item_ids: Iterable[int], now: float) -> None:
    for item_id in item_ids:
        settle(session, item_id, now, delivered=False, next_at=None, detail=rows.PUT_ASIDE)


def settle(session: Session, item_id: int, now: float, *, delivered: bool, next_at: float | None, detail: str) -> None:
    params = {"next_at": None if delivered else next_at, "delivered_at": now if delivered else None}
    session.run(SETTLE, {"id": item_id, "detail": detail, **params})


def stored_event(row: Sequence[Any]) -> StoredEvent:
    """`row`: the columns STORED."""
    event_id, key, run_id, at, generation, attempt, kind, text, actor, data, owner = row
    event = Event(EventKind(kind), text, actor, json.loads(data))
    return StoredEvent(event_id, key, run_id, at, generation, attempt, event, owner)


def _log_after_commit(session: Session, new: Sequence[Event], run_id: str = "", owner: str = "") -> None:
    """`run_id`, `owner`: "" = about the supervisor itself."""
    for event in new:
        if "request_id" in event.data:
            session.after_commit.append(partial(_log, event, run_id, owner))


def _log(event: Event, run_id: str, owner: str) -> None:
    LOG.info(
        "Requested and committed.",
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
