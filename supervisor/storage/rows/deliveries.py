"""Deliveries: one announcement for one endpoint each, the log of their tries, and the backlog.

The endpoints that want an announcement are selected here, when its outbox row is taken, and not when the event is
written: a submit or a tick never reads the endpoints. The pair of endpoint and event is unique, so a row that is taken
twice makes nothing twice. Each count of the backlog reads an index of waiting rows only, and stops at a limit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import sqlalchemy as sa
from sqlalchemy import and_, bindparam, func, literal, literal_column, or_, select

from supervisor.domain.events import KINDS, Event, EventKind, announced
from supervisor.ports.notifier import (
    BY_PERSON,
    DELIVERED,
    GIVEN_UP,
    NOT_SET,
    PENDING,
    WEBHOOKS,
    Delivery,
    DeliveryResult,
    Endpoint,
    EndpointHealth,
)
from supervisor.ports.store import COUNTED_TO, Backlog
from supervisor.storage.engine.database import Database
from supervisor.storage.engine.statements import Session, Statement, incoming, insert_incoming
from supervisor.storage.engine.tables import deliveries, endpoints, outbox, runs
from supervisor.storage.engine.tables import events as history
from supervisor.storage.rows import endpoints as stored_endpoints
from supervisor.storage.rows import events
from supervisor.storage.rows.rows import PUT_ASIDE, parted, readable

TOLERANCE_S = 60.0  # other processes write times too: a time less than this ahead is not from a wrong clock
LONGEST_BACKOFF_S = 1.1 * 86_400.0 + TOLERANCE_S  # between two tries
LONGEST_DELAY_S = 8 * 3600.0 + TOLERANCE_S  # that a receiver may ask for

_NOW = bindparam("now", type_=sa.Double)
_PENDING, _DELIVERED = deliveries.c.next_at.is_not(None), deliveries.c.delivered_at.is_not(None)
_GIVEN_UP = and_(deliveries.c.next_at.is_(None), deliveries.c.delivered_at.is_(None))
_ENABLED = endpoints.c.disabled_at.is_(None)
_OPEN = and_(deliveries.c.endpoint == endpoints.c.id, _PENDING)
_FIELDS = (
    deliveries.c.id, deliveries.c.endpoint, deliveries.c.kind, deliveries.c.tries, deliveries.c.next_at,
    deliveries.c.delivered_at, deliveries.c.last_at, deliveries.c.status, deliveries.c.detail, history.c.id,
    history.c.sequence, func.coalesce(runs.c.run_id, ""), history.c.at, history.c.text, history.c.data,
)  # fmt: skip
_NAMES = tuple(field.name for field in fields(Delivery))  # in the order of _FIELDS
_SELECT = (
    sa.select(*_FIELDS)
    .join(history, history.c.id == deliveries.c.event)
    .outerjoin(runs, runs.c.key == history.c.run)
    .where(deliveries.c.endpoint == bindparam("endpoint"))
)
_PAGE = (
    _SELECT.where(deliveries.c.event < bindparam("before"))
    .order_by(deliveries.c.event.desc())
    .limit(bindparam("limit_"))
)
_REPLAY = (
    sa.update(deliveries)
    .values(tries=0, next_at=_NOW, delivered_at=sa.null(), detail="")
    .where(deliveries.c.endpoint == bindparam("endpoint_"), deliveries.c.next_at.is_(None))
)


def _insert(dialect: str) -> Any:
    columns = (deliveries.c.endpoint, deliveries.c.event, deliveries.c.kind, deliveries.c.tries, deliveries.c.next_at)
    return insert_incoming(deliveries, dialect, (*columns, deliveries.c.detail)).on_conflict_do_nothing()


def _taken(dialect: str) -> sa.Update:
    done = incoming(dialect, outbox.c.id, outbox.c.delivered_at)
    return (
        sa.update(outbox)
        .values(tries=outbox.c.tries + 1, next_at=sa.null(), delivered_at=done.c.delivered_at)
        .where(outbox.c.id == done.c.id)
    )


def _settle(dialect: str) -> sa.Update:
    columns = (deliveries.c.id, deliveries.c.tries, deliveries.c.next_at, deliveries.c.delivered_at)
    result = incoming(dialect, *columns, deliveries.c.last_at, deliveries.c.status, deliveries.c.detail)
    names = ("next_at", "delivered_at", "last_at", "status", "detail")
    return (
        sa.update(deliveries)
        .values(tries=deliveries.c.tries + 1, **{name: result.c[name] for name in names})
        .where(
            deliveries.c.id == result.c.id,
            or_(
                result.c.delivered_at.is_not(None),
                and_(deliveries.c.tries == result.c.tries, deliveries.c.next_at.is_not(None)),
            ),
        )
    )


def _set_health(dialect: str) -> sa.Update:
    new = incoming(dialect, endpoints.c.id, endpoints.c.failing_since, endpoints.c.next_message_at)
    return (
        sa.update(endpoints)
        .values(failing_since=new.c.failing_since, next_message_at=new.c.next_message_at)
        .where(endpoints.c.id == new.c.id)
    )


def _wrong_clock(column: sa.Column[Any], longest_s: float, *reasons: sa.ColumnElement[bool]) -> Statement:
    """Sets to now a time that is ahead, if it is ahead by more than `longest_s` or has another of these reasons."""
    wrong = or_(column > _NOW + literal(longest_s, sa.Double), *reasons)
    ahead = column > _NOW + literal(TOLERANCE_S, sa.Double)
    return Statement(sa.update(column.table).values({column.key: _NOW}).where(ahead, wrong))


def _count(rows: sa.Select[Any]) -> Statement:
    return Statement(select(func.count()).select_from(rows.limit(bindparam("most")).subquery()))


TAKE = Statement(
    sa.select(
        outbox.c.id, history.c.id, history.c.kind, history.c.text, history.c.actor, history.c.data, history.c.owner
    )
    .join(history, history.c.id == outbox.c.event)
    .where(outbox.c.next_at <= bindparam("now"), outbox.c.channel == literal_column(f"'{WEBHOOKS}'"))
    .order_by(outbox.c.id)
    .limit(bindparam("limit_"))
)
INSERT, TAKEN = Statement(_insert), Statement(_taken)
SETTLE, SET_HEALTH = Statement(_settle), Statement(_set_health)
FIX_TIMES = (
    _wrong_clock(
        deliveries.c.next_at,
        LONGEST_BACKOFF_S,
        deliveries.c.tries == 0,  # a first try has no backoff
        deliveries.c.last_at > _NOW + literal(TOLERANCE_S, sa.Double),
    ),
    _wrong_clock(outbox.c.next_at, LONGEST_BACKOFF_S, outbox.c.tries == 0),
    _wrong_clock(endpoints.c.next_message_at, LONGEST_DELAY_S),
)
WANTING = Statement(
    sa.select(endpoints)
    .where(
        _ENABLED,
        endpoints.c.next_message_at <= bindparam("now"),
        sa.exists().where(deliveries.c.endpoint == endpoints.c.id, deliveries.c.next_at <= bindparam("now")),
    )
    .order_by(endpoints.c.created_at, endpoints.c.id)
)
DUE = Statement(
    _SELECT.where(deliveries.c.next_at <= bindparam("now"))
    .order_by(deliveries.c.next_at, deliveries.c.id)
    .limit(bindparam("limit_"))
)
PAGES = {
    "": Statement(_PAGE),
    PENDING: Statement(_PAGE.where(_PENDING)),
    DELIVERED: Statement(_PAGE.where(deliveries.c.next_at.is_(None), _DELIVERED)),
    GIVEN_UP: Statement(_PAGE.where(_GIVEN_UP)),
}
REPLAY_ONE = Statement(_REPLAY.where(deliveries.c.id == bindparam("id_")))
REPLAY_GIVEN_UP = Statement(_REPLAY.where(_GIVEN_UP, deliveries.c.last_at >= bindparam("since")))
OUTBOX_OPEN = _count(select(outbox.c.next_at).where(outbox.c.next_at.is_not(None)))
OUTBOX_DUE = Statement(select(func.min(outbox.c.next_at)).where(outbox.c.next_at.is_not(None)))
DELIVERIES_OPEN = _count(select(deliveries.c.next_at).join(endpoints, _OPEN).where(_ENABLED))
# Per endpoint, because people create them one by one: there are few.
DELIVERIES_DUE = Statement(
    select(endpoints.c.next_message_at, select(func.min(deliveries.c.next_at)).where(_OPEN).scalar_subquery()).where(
        _ENABLED
    )
)
_ON_PURPOSE: list[sa.ColumnElement[str]] = [literal_column(f"'{why}'") for why in (BY_PERSON, NOT_SET)]
ENDPOINTS_DISABLED = Statement(
    select(func.count())
    .select_from(endpoints)
    .where(endpoints.c.disabled_at.is_not(None), endpoints.c.disabled_why.not_in(_ON_PURPOSE))
)


class SqlDeliveries:
    """Implements ports/notifier.Deliveries."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.written_elsewhere: Callable[[], None] = database.when_announced  # another process has written events

    def on_announced(self, wake: Callable[[], None]) -> None:
        self.written_elsewhere = self._database.when_announced = wake

    def fan_out(self, now: float, limit: int) -> int:
        if not self._database.read(Session.run, TAKE, {"now": now, "limit_": 1}):
            return 0  # the usual case, without the write lock
        with self._database.writing() as session:
            rows = session.run(TAKE, {"now": now, "limit_": limit})
            enabled = [endpoint for endpoint in stored_endpoints.all_of(session, None) if endpoint.disabled_at is None]
            new = [
                [endpoint.id, event_id, kind, 0, now, ""]
                for event_id, kind, owner in _announcements(rows)
                for endpoint in enabled
                if wants(endpoint, kind, owner)
            ]
            session.run(INSERT, rows=new)
            session.run(TAKEN, rows=[[row[0], now] for row in rows])
            return len(rows)

    def fix_times(self, now: float) -> int:
        with self._database.writing() as session:
            return sum(session.run(statement, {"now": now}).rowcount for statement in FIX_TIMES)

    def due(self, now: float, limit: int) -> list[tuple[Endpoint, list[Delivery]]]:
        batches, unreadable = self._database.read(_due, now, limit)
        if not unreadable:
            return batches
        with self._database.writing() as session:
            session.run(SETTLE, rows=[[id_, tries, None, None, now, None, PUT_ASIDE] for id_, tries in unreadable])
            return _due(session, now, limit)[0]

    def settle(self, results: Sequence[DeliveryResult], health: Sequence[EndpointHealth], now: float) -> None:
        rows = [
            [
                item.delivery_id, item.tries, None if item.delivered else item.next_at,
                now if item.delivered else None, now, item.status, item.detail,
            ]
            for item in results
        ]  # fmt: skip
        with self._database.writing() as session:
            session.run(SETTLE, rows=rows)
            session.run(
                SET_HEALTH, rows=[[item.endpoint_id, item.failing_since, item.next_message_at] for item in health]
            )

    def page(self, endpoint_id: str, before_event: int | None, limit: int, state: str = "") -> list[Delivery]:
        before = 2**62 if before_event is None else before_event
        params = {"endpoint": endpoint_id, "before": before, "limit_": limit}
        return readable(self._database.read(Session.run, PAGES[state], params), _delivery, "deliveries")

    def replay(self, endpoint_id: str, delivery_id: int | None, since: float, event: Event, now: float) -> int:
        params: dict[str, Any] = {"endpoint_": endpoint_id, "now": now}
        with self._database.writing() as session:
            if delivery_id is not None:
                count = session.run(REPLAY_ONE, {**params, "id_": delivery_id}).rowcount
            else:
                count = session.run(REPLAY_GIVEN_UP, {**params, "since": since}).rowcount
            if count:
                events.add_own(session, [event], now)
            return count


def _due(
    session: Session, now: float, limit: int
) -> tuple[list[tuple[Endpoint, list[Delivery]]], list[tuple[int, int]]]:
    """Also (id, tries) of each unreadable delivery. Deliveries to an unreadable endpoint wait for a fix."""
    batches, unreadable = [], []
    wanting = session.run(WANTING, {"now": now})  # usually empty
    for endpoint in readable(wanting, stored_endpoints.endpoint_of, "webhooks"):
        rows = session.run(DUE, {"endpoint": endpoint.id, "now": now, "limit_": limit})
        kept, torn = parted(rows, _delivery, "deliveries")
        batches.append((endpoint, kept))
        unreadable += [(row[0], row[3]) for row in torn]
    return batches, unreadable


def wants(endpoint: Endpoint, kind: str, owner: str | None) -> bool:
    """`owner` None: the announcement is the supervisor's own."""
    if not endpoint.everything and owner != endpoint.owner:
        return False
    if endpoint.kinds:
        return kind in endpoint.kinds
    return KINDS[kind].usual or not endpoint.form.chat


def _announcements(rows: Sequence[Any]) -> list[tuple[int, str, str | None]]:
    """(event id, kind of the announcement, owner). Events of the supervisor about an owned item have the owner in their
    data."""

    def announcement(row: Sequence[Any]) -> tuple[int, str | None, str | None]:
        _, event_id, kind, text, actor, data, owner = row
        event = Event(EventKind(kind), text, actor, json.loads(data))
        return event_id, announced(event), owner or str(event.data.get("owner") or "") or None

    announcements = readable(rows, announcement, "events")
    return [(event_id, kind, owner) for event_id, kind, owner in announcements if kind is not None and kind in KINDS]


def _delivery(row: Sequence[Any]) -> Delivery:
    cells = dict(zip(_NAMES, row, strict=True))
    return Delivery(**{**cells, "data": json.loads(cells["data"])})


def read_backlog(session: Session, database: Database) -> Backlog:
    most = {"most": COUNTED_TO}
    # Nothing is due before the time that a receiver has asked for.
    due = [max(not_before, at) for not_before, at in session.run(DELIVERIES_DUE) if at is not None]
    return Backlog(
        outbox_pending=session.run(OUTBOX_OPEN, most).scalar(),
        outbox_due_at=session.run(OUTBOX_DUE).scalar(),
        deliveries_pending=session.run(DELIVERIES_OPEN, most).scalar(),
        deliveries_due_at=min(due, default=None),
        endpoints_disabled=session.run(ENDPOINTS_DISABLED).scalar(),
        connections=database.connections - 1,  # without the one of this read
    )
