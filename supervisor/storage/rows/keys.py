"""Idempotency keys: the first to insert the key owns it; the answer is kept in the same transaction as the deed."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy import and_, bindparam, exc

from supervisor.ports.store import KeptAnswer, KeyHeld
from supervisor.storage.engine.statements import Session, Statement, insert
from supervisor.storage.engine.tables import idempotency

LOCK_NOT_AVAILABLE = "55P03"  # SQLSTATE of Postgres: lock_timeout is over
_IT = and_(idempotency.c.scope == bindparam("scope_"), idempotency.c.key == bindparam("key_"))
TAKE = Statement(
    lambda dialect: (
        insert(idempotency, dialect)
        .values({column.key: bindparam(column.key) for column in idempotency.c})
        .on_conflict_do_nothing()
    )
)
READ = Statement(
    lambda _: sa.select(
        idempotency.c.fingerprint, idempotency.c.status, idempotency.c.body, idempotency.c.location
    ).where(_IT)
)
KEEP = Statement(
    lambda _: (
        sa.update(idempotency)
        .values({name: bindparam(name) for name in ("fingerprint", "status", "body", "location")})
        .where(_IT)
    )
)


def take(session: Session, scope: str, key: str, fingerprint: str, now: float) -> KeptAnswer | None:
    """None: the key is ours. On Postgres this waits for another transaction that is about to take the same key. Raises
    KeyHeld."""
    row = {
        "scope": scope, "key": key, "fingerprint": fingerprint, "status": 0, "body": "", "location": "",
        "created_at": now,
    }  # fmt: skip
    try:
        if session.run(TAKE, row).rowcount == 1:
            return None
    except exc.DBAPIError as error:
        if getattr(error.orig, "sqlstate", "") == LOCK_NOT_AVAILABLE:
            raise KeyHeld from error
        raise
    found = kept(session, scope, key)
    if found is None:  # its time was over at this very moment
        raise KeyHeld
    return found


def kept(session: Session, scope: str, key: str) -> KeptAnswer | None:
    row = session.run(READ, {"scope_": scope, "key_": key}).first()
    return None if row is None else KeptAnswer(*row)


def keep(session: Session, scope: str, key: str, answer: KeptAnswer) -> None:
    session.run(
        KEEP,
        {
            "scope_": scope,
            "key_": key,
            "fingerprint": answer.fingerprint,
            "status": answer.status,
            "body": answer.body,
            "location": answer.location,
        },
    )
