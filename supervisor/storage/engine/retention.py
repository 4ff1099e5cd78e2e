"""Retention: what is deleted, and when (RULES section 8). Nothing in the database grows forever.

Points of a series: all for a day, one in ten minutes for 30 days. Events with their outbox rows and deliveries: until
90 days after the end of their run. Incidents: 90 days after they were closed. Idempotency keys: 7 days. Tokens: 90
days after their expiry or revocation; the token of a data folder stays, because a start without it makes another one.
Runs, attempts and specs stay, because people look them up.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy import and_, bindparam, literal, or_, tuple_

from supervisor.domain.callers import FOLDER_CREATOR
from supervisor.ports.history import KEPT_S
from supervisor.storage.engine.database import Database
from supervisor.storage.engine.statements import Session, Statement
from supervisor.storage.engine.tables import events, idempotency, incidents, runs, samples, tokens

DAY_S = 86_400.0
FINE_S, COARSE_S, EVENTS_S, KEYS_S, TOKENS_S = DAY_S, 30 * DAY_S, KEPT_S, 7 * DAY_S, KEPT_S
PART = 500  # rows in one transaction
_BEFORE: sa.BindParameter[float] = bindparam("before")
# A time further ahead than its retention is from a wrong clock: without this its row would stay for years.
_AHEAD: sa.BindParameter[float] = bindparam("ahead")


def _delete(*keys: sa.Column[Any], where: Any, source: Any = None) -> Statement:
    """At most `limit_` rows of the table of these key columns. `source`: the tables of `where`, if there are others."""
    old = sa.select(*keys).where(where).limit(bindparam("limit_"))
    return Statement(
        sa.delete(keys[0].table).where(tuple_(*keys).in_(old if source is None else old.select_from(source)))
    )


def _samples(coarse: int, time_limit: Any) -> Statement:
    """One statement per limit: with both limits in one statement, SQLite reads all samples."""
    return _delete(samples.c.run, samples.c.at_ms, where=and_(samples.c.coarse == literal(coarse), time_limit))


FINE, FINE_AHEAD = _samples(0, samples.c.at_ms < _BEFORE), _samples(0, samples.c.at_ms > _AHEAD)
COARSE, COARSE_AHEAD = _samples(1, samples.c.at_ms < _BEFORE), _samples(1, samples.c.at_ms > _AHEAD)
_ENDED = and_(runs.c.settled == 1, runs.c.ended_at < _BEFORE)
EVENTS = _delete(
    events.c.id,
    where=and_(events.c.at < _BEFORE, or_(events.c.run.is_(None), _ENDED)),
    source=events.outerjoin(runs, runs.c.key == events.c.run),
)
INCIDENTS = _delete(incidents.c.id, where=incidents.c.closed_at < _BEFORE)
KEYS = _delete(
    idempotency.c.scope,
    idempotency.c.key,
    where=or_(idempotency.c.created_at < _BEFORE, idempotency.c.created_at > _AHEAD),
)
TOKENS = _delete(
    tokens.c.id,
    where=and_(
        or_(tokens.c.expires_at < _BEFORE, tokens.c.revoked_at < _BEFORE),
        tokens.c.created_by.not_like(f"{FOLDER_CREATOR}%"),
    ),
)


def prune(database: Database, now: float, limit: int) -> int:
    """Delete at most `limit` rows, in short transactions; returns their number."""
    steps: tuple[tuple[Statement, dict[str, float]], ...] = (
        (FINE, {"before": (now - FINE_S) * 1000}),
        (FINE_AHEAD, {"ahead": (now + FINE_S) * 1000}),
        (COARSE, {"before": (now - COARSE_S) * 1000}),
        (COARSE_AHEAD, {"ahead": (now + COARSE_S) * 1000}),
        (EVENTS, {"before": now - EVENTS_S}),
        (INCIDENTS, {"before": now - EVENTS_S}),
        (KEYS, {"before": now - KEYS_S, "ahead": now + KEYS_S}),
        (TOKENS, {"before": now - TOKENS_S}),
    )
    deleted = 0
    for statement, params in steps:
        full = True
        while full and deleted < limit:
            most = min(PART, limit - deleted)
            count = database.write(Session.run, statement, {**params, "limit_": most}).rowcount
            deleted += count
            full = count == most
    return deleted
