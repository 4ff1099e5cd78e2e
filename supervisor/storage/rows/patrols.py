"""What the supervisor tells of itself. A row of `meta` says when it last did, so that no two replicas tell it both."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam, or_

from supervisor.domain.attempt import Attempt
from supervisor.domain.events import Event
from supervisor.ports.patrols import Lapse
from supervisor.storage.engine.database import Database
from supervisor.storage.engine.statements import Session, Statement, insert
from supervisor.storage.engine.tables import attempts, leases, meta, runs
from supervisor.storage.rows import events, rows
from supervisor.storage.rows.leases import database_now

NAME = "patrol_at"


def _begin(dialect: str) -> Any:
    return (
        insert(meta, dialect)
        .values(name=NAME, value=bindparam("now"))
        .on_conflict_do_nothing(index_elements=["name"])
    )


def _of_these(_dialect: str) -> Any:
    live = or_(runs.c.ended_at.is_(None), runs.c.ended_at >= bindparam("since"))
    keys = (
        sa.select(runs.c.key)
        .where(runs.c.key > bindparam("after"), live)
        .order_by(runs.c.key)
        .limit(bindparam("limit_"))
        .subquery()
    )
    return sa.select(keys.c.key, attempts.c.doc).outerjoin(attempts, attempts.c.run == keys.c.key)


LAST = Statement(lambda _: sa.select(meta.c.value).where(meta.c.name == NAME))
BEGIN = Statement(_begin)
GO_ON = Statement(
    lambda _: (
        sa.update(meta)
        .values(value=bindparam("now"))
        .where(meta.c.name == NAME, meta.c.value == bindparam("last"))
    )
)
OF_THESE = Statement(_of_these)
LEASE = Statement(
    lambda dialect: sa.select(leases.c.owner, leases.c.until, database_now(dialect)).where(
        leases.c.name == bindparam("lease_name")
    )
)


class SqlPatrols:
    """Implements ports/patrols.Patrols."""

    def __init__(self, database: Database, channels: Sequence[str]) -> None:
        self._database = database
        self._channels = tuple(channels)

    def last(self) -> float | None:
        with self._database.reading() as session:
            value = session.run(LAST, {}).scalar()
        return None if value is None else float(value)

    def tell(self, event: Event | None, last: float | None, now: float) -> bool:
        with self._database.writing() as session:
            if not self._ours(session, last, now):
                return False
            if event is not None:
                events.add_own(session, [event], self._channels, now)
        return True

    def _ours(self, session: Session, last: float | None, now: float) -> bool:
        if last is None:
            return session.run(BEGIN, {"now": repr(now)}).rowcount == 1
        return session.run(GO_ON, {"now": repr(now), "last": repr(last)}).rowcount == 1

    def attempts(self, since: float, after_key: int, limit: int) -> tuple[list[Attempt], int | None]:
        with self._database.reading() as session:
            found = list(session.run(OF_THESE, {"since": since, "after": after_key, "limit_": limit}))
        keys = {key for key, _ in found}
        more = max(keys) if len(keys) == limit else None
        return [rows.read_attempt(doc) for _, doc in found if doc is not None], more

    def lapse(self, lease: str, ttl_s: float) -> Lapse | None:
        with self._database.reading() as session:
            row = session.run(LEASE, {"lease_name": lease}).first()
        if row is None:
            return None
        owner, until, now = row
        if not owner:
            return Lapse(max(0.0, now - until) if until > 0 else None, held=False)
        return Lapse(max(0.0, now - until + ttl_s), held=until >= now)
