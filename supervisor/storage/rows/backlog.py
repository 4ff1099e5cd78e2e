"""Counts for whoever watches: each comes from an index of what waits alone, and stops at a bound."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy import and_, bindparam, func, literal_column, select

from supervisor.ports.backlog import COUNTED_TO, Backlog
from supervisor.ports.endpoints import BY_PERSON, NOT_SET
from supervisor.storage.engine.database import Database
from supervisor.storage.engine.statements import Session, Statement
from supervisor.storage.engine.tables import deliveries, endpoints, outbox


def _count(due: sa.Select[Any]) -> Statement:
    some = due.limit(bindparam("most")).subquery()
    return Statement(lambda _: select(func.count()).select_from(some))


OUTBOX = _count(select(outbox.c.next_at).where(outbox.c.next_at.is_not(None)))
OUTBOX_DUE = Statement(lambda _: select(func.min(outbox.c.next_at)).where(outbox.c.next_at.is_not(None)))
# What is kept for an endpoint that is switched off waits for a person, and for nobody who should send it.
_EACH = and_(deliveries.c.endpoint == endpoints.c.id, deliveries.c.next_at.is_not(None))
DELIVERIES = _count(
    select(deliveries.c.next_at).join(endpoints, _EACH).where(endpoints.c.disabled_at.is_(None))
)
# A person names endpoints one by one: there are few.
DELIVERIES_DUE = Statement(
    lambda _: (
        select(endpoints.c.next_message_at, select(func.min(deliveries.c.next_at)).where(_EACH).scalar_subquery())
        .where(endpoints.c.disabled_at.is_(None))
    )
)  # fmt: skip
_WANTED: list[sa.ColumnElement[str]] = [literal_column(f"'{why}'") for why in (BY_PERSON, NOT_SET)]
DISABLED = Statement(
    lambda _: (
        select(func.count())
        .select_from(endpoints)
        .where(endpoints.c.disabled_at.is_not(None), endpoints.c.disabled_why.not_in(_WANTED))
    )
)


def read(session: Session, database: Database) -> Backlog:
    most = {"most": COUNTED_TO}
    # A receiver that has asked for a pause is owed nothing before its end.
    due = [max(not_before, at) for not_before, at in session.run(DELIVERIES_DUE, {}) if at is not None]
    return Backlog(
        outbox_pending=session.run(OUTBOX, most).scalar(),
        outbox_due_at=session.run(OUTBOX_DUE, {}).scalar(),
        deliveries_pending=session.run(DELIVERIES, most).scalar(),
        deliveries_due_at=min(due, default=None),
        endpoints_disabled=session.run(DISABLED, {}).scalar(),
        connections=database.connections - 1,  # but for the one that asks
    )
