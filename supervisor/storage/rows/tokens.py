"""Tokens in the database (ports/tokens.Tokens)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam, func

from supervisor.domain.access.callers import Scope, Token
from supervisor.domain.events import Event
from supervisor.storage.engine.codec import dumps
from supervisor.storage.engine.database import Database
from supervisor.storage.engine.statements import Statement, insert
from supervisor.storage.engine.tables import tokens
from supervisor.storage.rows import events
from supervisor.storage.rows.rows import readable

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
            found = readable(session.run(NEWEST, {"limit_": limit}), _token, "tokens")
        return [token for token in found if token is not None]

    def revoke(self, token_id: str, event: Event, now: float) -> bool:
        with self._database.writing() as session:
            if session.run(REVOKE, {"id_": token_id, "now": now}).rowcount == 0:
                return False
            events.add_own(session, [event], self._channels, now)
            return True

    def note_used(self, used: Mapping[str, float]) -> None:
        with self._database.writing() as session:
            for token_id, at in sorted(
                used.items()
            ):  # in one order, so that two replicas never wait in a ring
                session.run(USED, {"id_": token_id, "at": at})


def _token(row: Any) -> Token | None:
    if row is None:
        return None
    scopes = frozenset(Scope(word) for word in json.loads(row[3]))
    token_id, name, owner, _, created_at, created_by, expires_at, most, used_at, revoked_at = row
    found = Token(token_id, name, owner, scopes, created_at, created_by, expires_at, most)
    return replace(found, last_used_at=used_at, revoked_at=revoked_at)
