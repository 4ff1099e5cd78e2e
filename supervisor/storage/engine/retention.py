"""What is deleted, and when (RULES section 8): nothing in the database grows for ever.

Points of a series: all for a day, one in ten minutes for 30 days. Events, with their outbox rows and deliveries: until
90 days after the end of their run. Idempotency keys: 7 days. Tokens: 90 days after they have expired or were revoked;
that of a data folder stays, because a start that does not find it makes another one. Runs, attempts and specs stay:
they are what people look up.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy import and_, bindparam, literal, or_, tuple_

from supervisor.domain.callers import FOLDER_CREATOR
from supervisor.ports.history import KEPT_S
from supervisor.storage.engine.database import Database
from supervisor.storage.engine.statements import Statement
from supervisor.storage.engine.tables import events, idempotency, runs, samples, tokens

DAY_S = 86_400.0
# What lies further ahead than it is kept goes, too: a wrong clock wrote it, and it would stay for years.
FINE_S, COARSE_S, EVENTS_S, KEYS_S, TOKENS_S = DAY_S, 30 * DAY_S, KEPT_S, 7 * DAY_S, KEPT_S
PART = 500  # rows in one transaction


def _samples(coarse: int, ahead: bool) -> Statement:
    """Two statements: with both conditions in one, SQLite reads every sample of this grain."""
    at = samples.c.at_ms
    old = (
        sa.select(samples.c.run, at)
        .where(samples.c.coarse == literal(coarse))
        .where(at > bindparam("ahead") if ahead else at < bindparam("before"))
        .limit(bindparam("limit_"))
    )
    return Statement(lambda _: sa.delete(samples).where(tuple_(samples.c.run, at).in_(old)))


def _events(_dialect: str) -> sa.Delete:
    ended = and_(runs.c.settled == 1, runs.c.ended_at < bindparam("before"))
    old = (
        sa.select(events.c.id)
        .outerjoin(runs, runs.c.key == events.c.run)
        .where(events.c.at < bindparam("before"), or_(events.c.run.is_(None), ended))
        .limit(bindparam("limit_"))
    )
    return sa.delete(events).where(events.c.id.in_(old))


def _keys(_dialect: str) -> sa.Delete:
    old = (
        sa.select(idempotency.c.scope, idempotency.c.key)
        .where(or_(idempotency.c.created_at < bindparam("before"), idempotency.c.created_at > bindparam("ahead")))
        .limit(bindparam("limit_"))
    )
    return sa.delete(idempotency).where(tuple_(idempotency.c.scope, idempotency.c.key).in_(old))


def _tokens(_dialect: str) -> sa.Delete:
    before: Any = bindparam("before")
    old = (
        sa.select(tokens.c.id)
        .where(or_(tokens.c.expires_at < before, tokens.c.revoked_at < before))
        .where(tokens.c.created_by.not_like(f"{FOLDER_CREATOR}%"))
        .limit(bindparam("limit_"))
    )
    return sa.delete(tokens).where(tokens.c.id.in_(old))


FINE, FINE_AHEAD = _samples(0, False), _samples(0, True)
COARSE, COARSE_AHEAD = _samples(1, False), _samples(1, True)
EVENTS, KEYS = Statement(_events), Statement(_keys)
TOKENS = Statement(_tokens)


def prune(database: Database, now: float, limit: int) -> int:
    """Delete at most `limit` rows, in short transactions; how many were deleted."""
    steps: tuple[tuple[Statement, dict[str, Any]], ...] = (
        (FINE, {"before": (now - FINE_S) * 1000}),
        (FINE_AHEAD, {"ahead": (now + FINE_S) * 1000}),
        (COARSE, {"before": (now - COARSE_S) * 1000}),
        (COARSE_AHEAD, {"ahead": (now + COARSE_S) * 1000}),
        (EVENTS, {"before": now - EVENTS_S}),
        (KEYS, {"before": now - KEYS_S, "ahead": now + KEYS_S}),
        (TOKENS, {"before": now - TOKENS_S}),
    )
    deleted = 0
    for statement, params in steps:
        deleted += _delete(database, statement, params, limit - deleted)
    return deleted


def _delete(database: Database, statement: Statement, params: dict[str, Any], limit: int) -> int:
    deleted = 0
    while deleted < limit:
        most = min(PART, limit - deleted)
        with database.writing() as session:
            count = session.run(statement, {**params, "limit_": most}).rowcount
        deleted += count
        if count < most:
            break
    return deleted
