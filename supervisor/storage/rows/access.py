"""Who calls, and which request is a repeat: the tokens of callers and their Idempotency-Keys.

A token's row has its record and its HMAC. The first transaction that inserts an Idempotency-Key owns it; the response
is stored in the same transaction as the action.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy import and_, bindparam, exc, func

from supervisor.domain.callers import Scope, Token
from supervisor.domain.events import Event
from supervisor.ports.store import KeptResponse, KeyHeld
from supervisor.storage.engine.codec import dumps
from supervisor.storage.engine.database import Database
from supervisor.storage.engine.statements import Session, Statement, insert_one
from supervisor.storage.engine.tables import idempotency, tokens
from supervisor.storage.rows import events
from supervisor.storage.rows.rows import readable

LOCK_NOT_AVAILABLE = "55P03"  # SQLSTATE of Postgres: lock_timeout is over
_RESPONSE = (idempotency.c.fingerprint, idempotency.c.status, idempotency.c.body, idempotency.c.location)
_THIS_KEY = and_(idempotency.c.scope == bindparam("scope_"), idempotency.c.key == bindparam("key_"))
TAKE = Statement(lambda dialect: insert_one(idempotency, dialect).on_conflict_do_nothing())
READ = Statement(sa.select(*_RESPONSE).where(_THIS_KEY))
KEEP = Statement(
    sa.update(idempotency).values({column.key: bindparam(column.key) for column in _RESPONSE}).where(_THIS_KEY)
)

_RECORD = (
    tokens.c.id, tokens.c.name, tokens.c.owner, tokens.c.scopes, tokens.c.created_at, tokens.c.created_by,
    tokens.c.expires_at, tokens.c.max_active_runs, tokens.c.last_used_at, tokens.c.revoked_at,
)  # fmt: skip
INSERT = Statement(lambda dialect: insert_one(tokens, dialect).on_conflict_do_nothing(index_elements=["hash"]))
FIND = Statement(sa.select(*_RECORD).where(tokens.c.hash == bindparam("hash")))
GET = Statement(sa.select(*_RECORD).where(tokens.c.id == bindparam("id")))
NEWEST = Statement(
    sa.select(*_RECORD)
    .order_by(tokens.c.revoked_at.is_not(None), tokens.c.created_at.desc(), tokens.c.id)
    .limit(bindparam("limit_"))
)
REVOKE = Statement(
    sa.update(tokens)
    .values(revoked_at=bindparam("now"))
    .where(tokens.c.id == bindparam("id_"), tokens.c.revoked_at.is_(None))
)
USED = Statement(
    sa.update(tokens)
    .values(last_used_at=bindparam("at"))
    .where(tokens.c.id == bindparam("id_"), func.coalesce(tokens.c.last_used_at, 0) < bindparam("at"))
)


def take_key(session: Session, scope: str, key: str, fingerprint: str, now: float) -> KeptResponse | None:
    """None: the key is ours. On Postgres this waits for another transaction that takes the same key. Raises KeyHeld."""
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
    if kept is None:  # retention has deleted it in this moment
        raise KeyHeld
    return kept


def kept_response(session: Session, scope: str, key: str) -> KeptResponse | None:
    row = session.run(READ, {"scope_": scope, "key_": key}).first()
    return None if row is None else KeptResponse(*row)


def keep_response(session: Session, scope: str, key: str, response: KeptResponse) -> None:
    values = {column.key: getattr(response, column.key) for column in _RESPONSE}
    session.run(KEEP, {"scope_": scope, "key_": key, **values})


class SqlTokens:
    """Implements ports/store.Tokens."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, token: Token, digest: str, event: Event) -> bool:
        fields = {column.key: getattr(token, column.key) for column in _RECORD if column.key not in ("id", "scopes")}
        row = {"id": token.token_id, "hash": digest, "scopes": dumps(sorted(token.scopes)), **fields}
        with self._database.writing() as session:
            if session.run(INSERT, row).rowcount == 0:
                return False
            events.add_own(session, [event], token.created_at)
            return True

    def find(self, digest: str) -> Token | None:
        return self._read_token(FIND, {"hash": digest})

    def get(self, token_id: str) -> Token | None:
        return self._read_token(GET, {"id": token_id})

    def newest(self, limit: int) -> list[Token]:
        return readable(self._database.read(Session.run, NEWEST, {"limit_": limit}), _token, "tokens")

    def revoke(self, token_id: str, event: Event, now: float) -> bool:
        with self._database.writing() as session:
            if session.run(REVOKE, {"id_": token_id, "now": now}).rowcount == 0:
                return False
            events.add_own(session, [event], now)
            return True

    def note_used(self, used: Mapping[str, float]) -> None:
        with self._database.writing() as session:
            for token_id, at in sorted(used.items()):  # in one order, so two replicas cannot deadlock
                session.run(USED, {"id_": token_id, "at": at})

    def _read_token(self, statement: Statement, params: dict[str, Any]) -> Token | None:
        row = self._database.read_one(Session.run, statement, params).first()
        return None if row is None else _token(row)


def _token(row: Any) -> Token:
    fields = dict(zip((column.key for column in _RECORD), row, strict=True))
    scopes = frozenset(Scope(word) for word in json.loads(fields.pop("scopes")))
    return Token(token_id=fields.pop("id"), scopes=scopes, **fields)
