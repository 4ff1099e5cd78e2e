"""Endpoints: receivers that people have named, each change written with the event that tells of it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam, func, literal_column

from supervisor.domain.events import Event
from supervisor.ports.notifier import NOT_SET, SETTINGS_ID, Endpoint, Form, Secret
from supervisor.storage.engine.codec import dumps
from supervisor.storage.engine.database import Database
from supervisor.storage.engine.statements import Session, Statement, insert
from supervisor.storage.engine.tables import deliveries, endpoints
from supervisor.storage.engine.tables import events as history
from supervisor.storage.rows import events
from supervisor.storage.rows.rows import readable

LINE = 0x454E4450  # of our advisory locks on Postgres: whose endpoints are counted
# What a person may change; the rest is learned from deliveries, or fixed when the endpoint is made.
_CHANGEABLE = ("url", "form", "everything", "kinds", "note", "secrets", "disabled_at", "disabled_why")
_IT = endpoints.c.id == bindparam("id_")

ALL = Statement(lambda _: sa.select(endpoints).order_by(endpoints.c.created_at, endpoints.c.id))
OF_OWNER = Statement(
    lambda _: (
        sa.select(endpoints)
        .where(endpoints.c.owner == bindparam("owner"))
        .order_by(endpoints.c.created_at, endpoints.c.id)
    )
)
FIND = Statement(lambda _: sa.select(endpoints).where(_IT))
LOCK = Statement(lambda _: sa.select(endpoints).where(_IT).with_for_update())
IN_LINE = Statement(
    lambda _: sa.select(func.pg_advisory_xact_lock(literal_column(str(LINE)), func.hashtext(bindparam("owner"))))
)
COUNT = Statement(
    lambda _: (
        sa.select(func.count())
        .select_from(endpoints)
        .where(endpoints.c.owner == bindparam("owner"), endpoints.c.id != literal_column(f"'{SETTINGS_ID}'"))
    )
)
DELETE = Statement(lambda _: sa.delete(endpoints).where(_IT))
OF_OTHERS = Statement(
    lambda _: sa.delete(deliveries).where(
        deliveries.c.endpoint == bindparam("id_"),
        ~sa.exists().where(history.c.id == deliveries.c.event, history.c.owner == bindparam("owner")),
    )
)
DISABLE = Statement(
    lambda _: (
        sa.update(endpoints)
        .values(disabled_at=bindparam("at"), disabled_why=bindparam("why"))
        .where(_IT, endpoints.c.disabled_at.is_(None))
    )
)
CHANGE = Statement(
    lambda _: (
        sa.update(endpoints)
        .values({name: bindparam(name) for name in (*_CHANGEABLE, "failing_since", "next_message_at")})
        .where(_IT)
    )
)


def _insert(dialect: str) -> Any:
    return insert(endpoints, dialect).values({column.key: bindparam(column.key) for column in endpoints.c})


INSERT = Statement(_insert)


class SqlEndpoints:
    """Implements ports/notifier.Endpoints."""

    def __init__(self, database: Database, channels: Sequence[str]) -> None:
        self._database, self._channels = database, channels

    def find(self, endpoint_id: str) -> Endpoint | None:
        with self._database.reading() as session:
            return _stored(session, FIND, endpoint_id)

    def of_owner(self, owner: str | None) -> list[Endpoint]:
        with self._database.reading() as session:
            return all_of(session, owner)

    def add(self, endpoint: Endpoint, event: Event, most: int, now: float) -> bool:
        with self._database.writing() as session:
            # SQLite has one writer; on Postgres those of one owner would all count the same.
            if session.dialect != "sqlite":
                session.run(IN_LINE, {"owner": endpoint.owner})
            if session.run(COUNT, {"owner": endpoint.owner}).scalar() >= most:
                return False
            session.run(INSERT, _cells(endpoint))
            events.add_own(session, [event], self._channels, now)
            return True

    def change(self, before: Endpoint, after: Endpoint, event: Event, now: float) -> bool:
        with self._database.writing() as session:
            stored = _stored(session, LOCK, before.id)
            if stored is None or _wishes(stored) != _wishes(before):
                return False
            enabled = stored.disabled_at is not None and after.disabled_at is None
            cells = _cells(after)
            params = {name: cells[name] for name in _CHANGEABLE}
            params["failing_since"] = None if enabled else stored.failing_since
            params["next_message_at"] = 0.0 if enabled else stored.next_message_at
            session.run(CHANGE, {"id_": before.id, **params})
            if stored.everything and not after.everything:  # its owner may look at them from now on
                session.run(OF_OTHERS, {"id_": before.id, "owner": stored.owner})
            events.add_own(session, [event], self._channels, now)
            return True

    def remove(self, endpoint_id: str, event: Event, now: float) -> bool:
        with self._database.writing() as session:
            if session.run(DELETE, {"id_": endpoint_id}).rowcount == 0:
                return False
            events.add_own(session, [event], self._channels, now)
            return True

    def disable(self, endpoint_id: str, why: str, event: Event, now: float) -> bool:
        with self._database.writing() as session:
            if session.run(DISABLE, {"id_": endpoint_id, "at": now, "why": why}).rowcount == 0:
                return False
            events.add_own(session, [event], self._channels, now)
            return True

    def put_settings(self, endpoint: Endpoint | None, now: float) -> None:
        with self._database.writing() as session:
            stored = _stored(session, LOCK, SETTINGS_ID)
            if endpoint is None:
                if stored is not None:
                    session.run(DISABLE, {"id_": SETTINGS_ID, "at": now, "why": NOT_SET})
                return
            if stored is None:
                session.run(INSERT, _cells(endpoint))
                return
            cells = _cells(endpoint)
            # Whoever starts the supervisor has looked at its settings: what was held against the receiver is forgotten.
            kept = {"failing_since": None, "next_message_at": 0.0}
            params = {name: cells[name] for name in _CHANGEABLE}
            session.run(CHANGE, {"id_": SETTINGS_ID, **params, **kept})


def all_of(session: Session, owner: str | None) -> list[Endpoint]:
    rows = session.run(ALL, {}) if owner is None else session.run(OF_OWNER, {"owner": owner})
    return readable(rows, endpoint_of, "webhooks")


def _stored(session: Session, statement: Statement, endpoint_id: str) -> Endpoint | None:
    row = session.run(statement, {"id_": endpoint_id}).first()
    return None if row is None else endpoint_of(row)


def _wishes(endpoint: Endpoint) -> dict[str, Any]:
    cells = _cells(endpoint)
    return {name: cells[name] for name in _CHANGEABLE}


def _cells(endpoint: Endpoint) -> dict[str, Any]:
    plain = {column.key: getattr(endpoint, column.key) for column in endpoints.c}
    return {
        **plain,
        "everything": int(endpoint.everything),
        "form": str(endpoint.form),
        "secrets": dumps([[secret.text, secret.until] for secret in endpoint.secrets]),
        "kinds": dumps(list(endpoint.kinds)),
    }


def endpoint_of(row: Sequence[Any]) -> Endpoint:
    cells = dict(zip((column.key for column in endpoints.c), row, strict=True))
    cells["everything"] = bool(cells["everything"])
    cells["form"] = Form(cells["form"])
    cells["secrets"] = tuple(Secret(text, until) for text, until in json.loads(cells["secrets"]))
    cells["kinds"] = tuple(json.loads(cells["kinds"]))
    return Endpoint(**cells)
