"""Tokens, and the keys by which a repeated request is known.

A token's row holds what it stands for and its HMAC. Of an Idempotency-Key the first to insert it owns it; the answer is
kept in the same transaction as the deed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy import and_, bindparam, exc, func

from supervisor.domain.callers import Scope, Token
from supervisor.domain.events import Event
from supervisor.ports.store import KeptResponse, KeyHeld
from supervisor.storage.engine.codec import dumps
from supervisor.storage.engine.database import Database
from supervisor.storage.engine.statements import Session, Statement, insert
from supervisor.storage.engine.tables import idempotency, tokens
from supervisor.storage.rows import events
from supervisor.storage.rows.rows import readable

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


def take_key(session: Session, scope: str, key: str, fingerprint: str, now: float) -> KeptResponse | None:
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
    kept = kept_response(session, scope, key)
    if kept is None:  # its time was over at this very moment
        raise KeyHeld
    return kept


def kept_response(session: Session, scope: str, key: str) -> KeptResponse | None:
    row = session.run(READ, {"scope_": scope, "key_": key}).first()
    return None if row is None else KeptResponse(*row)


def keep_response(session: Session, scope: str, key: str, answer: KeptResponse) -> None:
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


_SHOWN = (
    tokens.c.id, tokens.c.name, tokens.c.owner, tokens.c.scopes, tokens.c.created_at, tokens.c.created_by,
    tokens.c.expires_at, tokens.c.max_active_runs, tokens.c.last_used_at, tokens.c.revoked_at,
)  # fmt: skip
INSERT = Statement(
    lambda dialect: insert(tokens, dialect).values({column.key: bindparam(column.key) for column in tokens.c})
)
FIND = Statement(lambda _: sa.select(*_SHOWN).where(tokens.c.hash == bindparam("hash")))
GET = Statement(lambda _: sa.select(*_SHOWN).where(tokens.c.id == bindparam("id")))
NEWEST = Statement(
    lambda _: (
        sa.select(*_SHOWN)
        .order_by(tokens.c.revoked_at.is_not(None), tokens.c.created_at.desc(), tokens.c.id)
        .limit(bindparam("limit_"))
    )
)
REVOKE = Statement(
    lambda _: (
        sa.update(tokens)
        .values(revoked_at=bindparam("now"))
        .where(tokens.c.id == bindparam("id_"), tokens.c.revoked_at.is_(None))
    )
)
USED = Statement(
    lambda _: (
        sa.update(tokens)
        .values(last_used_at=bindparam("at"))
        .where(tokens.c.id == bindparam("id_"), func.coalesce(tokens.c.last_used_at, 0) < bindparam("at"))
    )
)


class SqlTokens:
    """`channels`: where announced events go; none of these is announced."""

    def __init__(self, database: Database, channels: Sequence[str]) -> None:
        self._database, self._channels = database, channels

    def add(self, token: Token, digest: str, event: Event) -> None:
        row = {
            "id": token.token_id,
            "hash": digest,
            "name": token.name,
            "owner": token.owner,
            "scopes": dumps(sorted(token.scopes)),
            "max_active_runs": token.max_active_runs,
            "created_at": token.created_at,
            "created_by": token.created_by,
            "expires_at": token.expires_at,
            "last_used_at": token.last_used_at,
            "revoked_at": token.revoked_at,
        }
        with self._database.writing() as session:
            session.run(INSERT, row)
            events.add_own(session, [event], self._channels, token.created_at)

    def find(self, digest: str) -> Token | None:
        with self._database.reading() as session:
            return _token(session.run(FIND, {"hash": digest}).first())

    def get(self, token_id: str) -> Token | None:
        with self._database.reading() as session:
            return _token(session.run(GET, {"id": token_id}).first())

    def newest(self, limit: int) -> list[Token]:
        with self._database.reading() as session:
            tokens_read = readable(session.run(NEWEST, {"limit_": limit}), _token, "tokens")
        return [token for token in tokens_read if token is not None]

    def revoke(self, token_id: str, event: Event, now: float) -> bool:
        with self._database.writing() as session:
            if session.run(REVOKE, {"id_": token_id, "now": now}).rowcount == 0:
                return False
            events.add_own(session, [event], self._channels, now)
            return True

    def note_used(self, used: Mapping[str, float]) -> None:
        with self._database.writing() as session:
            for token_id, at in sorted(used.items()):  # in one order, so that two replicas never wait in a ring
                session.run(USED, {"id_": token_id, "at": at})


def _token(row: Any) -> Token | None:
    if row is None:
        return None
    scopes = frozenset(Scope(word) for word in json.loads(row[3]))
    token_id, name, owner, _, created_at, created_by, expires_at, most, used_at, revoked_at = row
    token = Token(token_id, name, owner, scopes, created_at, created_by, expires_at, most)
    return replace(token, last_used_at=used_at, revoked_at=revoked_at)
