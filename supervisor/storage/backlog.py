"""Counts for whoever watches: each comes from an index of what waits alone, and stops at a bound."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy import bindparam, func, select

from supervisor.ports.backlog import COUNTED_TO, Backlog
from supervisor.storage.database import Database
from supervisor.storage.statements import Session, Statement
from supervisor.storage.tables import deliveries, endpoints, outbox


def _waiting(table: sa.Table) -> Statement:
    due = select(table.c.next_at).where(table.c.next_at.is_not(None)).limit(bindparam("most")).subquery()
    return Statement(lambda _: select(func.count()).select_from(due))


def _oldest(table: sa.Table) -> Statement:
    return Statement(lambda _: select(func.min(table.c.next_at)).where(table.c.next_at.is_not(None)))


OUTBOX, OUTBOX_DUE = _waiting(outbox), _oldest(outbox)
DELIVERIES, DELIVERIES_DUE = _waiting(deliveries), _oldest(deliveries)
# A person names endpoints one by one: there are few.
DISABLED = Statement(
    lambda _: select(func.count()).select_from(endpoints).where(endpoints.c.disabled_at.is_not(None))
)


def read(session: Session, database: Database) -> Backlog:
    most = {"most": COUNTED_TO}
    return Backlog(
        outbox_pending=session.run(OUTBOX, most).scalar(),
        outbox_due_at=session.run(OUTBOX_DUE, {}).scalar(),
        deliveries_pending=session.run(DELIVERIES, most).scalar(),
        deliveries_due_at=session.run(DELIVERIES_DUE, {}).scalar(),
        endpoints_disabled=session.run(DISABLED, {}).scalar(),
        connections=database.connections - 1,  # but for the one that asks
    )
