"""Endpoints: the receivers of announcements. Each change is written with its event."""

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
from supervisor.storage.engine.statements import Session, Statement, insert_one, owner_lock
from supervisor.storage.engine.tables import deliveries, endpoints
from supervisor.storage.engine.tables import events as history
from supervisor.storage.rows import events
from supervisor.storage.rows.rows import readable

# Fields that a person may change; the others follow from deliveries, or are fixed at the creation.
_CHANGEABLE = ("url", "form", "everything", "kinds", "note", "secrets", "disabled_at", "disabled_why")
_THIS_ID = endpoints.c.id == bindparam("id_")

ALL = Statement(sa.select(endpoints).order_by(endpoints.c.created_at, endpoints.c.id))
OF_OWNER = Statement(
    sa.select(endpoints).where(endpoints.c.owner == bindparam("owner")).order_by(endpoints.c.created_at, endpoints.c.id)
)
FIND = Statement(sa.select(endpoints).where(_THIS_ID))
LOCK = Statement(sa.select(endpoints).where(_THIS_ID).with_for_update())
LOCK_OWNER = owner_lock(0x454E4450)  # whose endpoints are counted
COUNT = Statement(
    sa.select(func.count())
    .select_from(endpoints)
    .where(endpoints.c.owner == bindparam("owner"), endpoints.c.id != literal_column(f"'{SETTINGS_ID}'"))
)
INSERT = Statement(lambda dialect: insert_one(endpoints, dialect))
DELETE = Statement(sa.delete(endpoints).where(_THIS_ID))
DELETE_OF_OTHERS = Statement(
    sa.delete(deliveries).where(
        deliveries.c.endpoint == bindparam("id_"),
        ~sa.exists().where(history.c.id == deliveries.c.event, history.c.owner == bindparam("owner")),
    )
)
DISABLE = Statement(
    sa.update(endpoints)
    .values(disabled_at=bindparam("at"), disabled_why=bindparam("why"))
    .where(_THIS_ID, endpoints.c.disabled_at.is_(None))
)
CHANGE = Statement(
    sa.update(endpoints)
    .values({name: bindparam(name) for name in (*_CHANGEABLE, "failing_since", "next_message_at")})
    .where(_THIS_ID)
)


class SqlEndpoints:
    """Implements ports/notifier.Endpoints."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def find(self, endpoint_id: str) -> Endpoint | None:
        return self._database.read(_find, FIND, endpoint_id)

    def of_owner(self, owner: str | None) -> list[Endpoint]:
        return self._database.read(all_of, owner)

    def add(self, endpoint: Endpoint, event: Event, most: int, now: float) -> bool:
        with self._database.writing() as session:
            # SQLite has one writer; on Postgres concurrent transactions of one owner would have the same count.
            if session.dialect != "sqlite":
                session.run(LOCK_OWNER, {"owner": endpoint.owner})
            if session.run(COUNT, {"owner": endpoint.owner}).scalar() >= most:
                return False
            session.run(INSERT, _cells(endpoint))
            events.add_own(session, [event], now)
            return True

    def change(self, before: Endpoint, after: Endpoint, event: Event, now: float) -> bool:
        with self._database.writing() as session:
            stored = _find(session, LOCK, before.id)
            if stored is None or _changeable(stored) != _changeable(before):
                return False
            enabled = stored.disabled_at is not None and after.disabled_at is None
            params = {"id_": before.id, **_changeable(after)}
            params["failing_since"] = None if enabled else stored.failing_since
            params["next_message_at"] = 0.0 if enabled else stored.next_message_at
            session.run(CHANGE, params)
            if stored.everything and not after.everything:  # its owner may read its deliveries from now on
                session.run(DELETE_OF_OTHERS, {"id_": before.id, "owner": stored.owner})
            events.add_own(session, [event], now)
            return True

    def remove(self, endpoint_id: str, event: Event, now: float) -> bool:
        return self._change_with(event, now, DELETE, {"id_": endpoint_id})

    def disable(self, endpoint_id: str, why: str, event: Event, now: float) -> bool:
        return self._change_with(event, now, DISABLE, {"id_": endpoint_id, "at": now, "why": why})

    def put_settings(self, endpoint: Endpoint | None, now: float) -> None:
        with self._database.writing() as session:
            if endpoint is None:
                session.run(DISABLE, {"id_": SETTINGS_ID, "at": now, "why": NOT_SET})
            elif _find(session, LOCK, SETTINGS_ID) is None:
                session.run(INSERT, _cells(endpoint))
            else:
                # Each start reads the settings again, and forgets the failures of the receiver.
                no_failures = {"failing_since": None, "next_message_at": 0.0}
                session.run(CHANGE, {"id_": SETTINGS_ID, **_changeable(endpoint), **no_failures})

    def _change_with(self, event: Event, now: float, statement: Statement, params: dict[str, Any]) -> bool:
        """False, without the event: the statement has changed nothing."""
        with self._database.writing() as session:
            if session.run(statement, params).rowcount == 0:
                return False
            events.add_own(session, [event], now)
            return True


def all_of(session: Session, owner: str | None) -> list[Endpoint]:
    stored = session.run(ALL) if owner is None else session.run(OF_OWNER, {"owner": owner})
    return readable(stored, endpoint_of, "webhooks")


def endpoint_of(row: Sequence[Any]) -> Endpoint:
    cells = dict(zip((column.key for column in endpoints.c), row, strict=True))
    cells["everything"] = bool(cells["everything"])
    cells["form"] = Form(cells["form"])
    cells["secrets"] = tuple(Secret(text, until) for text, until in json.loads(cells["secrets"]))
    cells["kinds"] = tuple(json.loads(cells["kinds"]))
    return Endpoint(**cells)


def _find(session: Session, statement: Statement, endpoint_id: str) -> Endpoint | None:
    row = session.run(statement, {"id_": endpoint_id}).first()
    return None if row is None else endpoint_of(row)


def _changeable(endpoint: Endpoint) -> dict[str, Any]:
    cells = _cells(endpoint)
    return {name: cells[name] for name in _CHANGEABLE}


def _cells(endpoint: Endpoint) -> dict[str, Any]:
    return {
        **{column.key: getattr(endpoint, column.key) for column in endpoints.c},
        "everything": int(endpoint.everything),
        "form": str(endpoint.form),
        "secrets": dumps([[secret.text, secret.until] for secret in endpoint.secrets]),
        "kinds": dumps(list(endpoint.kinds)),
    }
