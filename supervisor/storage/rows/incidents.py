"""Incidents, and the ended attempts that they are made of: implements ports/store.Incidents.

An index allows one open incident for each thing in common, so an incident that is found twice, by two leaders or after
a crash, is stored and announced once. Its alert is written in the transaction of its row.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy import and_, bindparam, literal, or_

from supervisor.domain.attempt import Attempt
from supervisor.domain.causes import Cause
from supervisor.domain.events import Event, EventKind
from supervisor.domain.incidents import Closing, Incident
from supervisor.domain.run import Run
from supervisor.ports.store import Lease
from supervisor.storage.engine.codec import dumps, from_plain, to_plain
from supervisor.storage.engine.database import Database
from supervisor.storage.engine.statements import Session, Statement, insert_one
from supervisor.storage.engine.tables import attempts, events, incidents, runs
from supervisor.storage.rows.cells import hold_lease
from supervisor.storage.rows.events import add_own
from supervisor.storage.rows.rows import read_attempt, readable

_COLUMNS = (incidents.c.id, incidents.c.doc)
_ID = frozenset({"id"})
_THIS = incidents.c.id == bindparam("id_")
_OPEN = incidents.c.closed_at.is_(None)

CURRENT = Statement(
    sa.select(*_COLUMNS)
    .where(incidents.c.cell == bindparam("cell"), or_(_OPEN, incidents.c.closed_at > bindparam("closed_after")))
    .order_by(incidents.c.id)
)
NEWEST = Statement(sa.select(*_COLUMNS).order_by(incidents.c.id.desc()).limit(bindparam("limit_")))
OPEN = Statement(sa.select(*_COLUMNS).where(_OPEN).order_by(incidents.c.id.desc()).limit(bindparam("limit_")))
FIND = Statement(sa.select(*_COLUMNS).where(_THIS))
LOCK = Statement(sa.select(*_COLUMNS).where(_THIS).with_for_update())
INSERT = Statement(
    lambda dialect: insert_one(incidents, dialect, "id").on_conflict_do_nothing().returning(incidents.c.id)
)
CHANGE = Statement(sa.update(incidents).values(doc=bindparam("doc")).where(_THIS, _OPEN))
CLOSE = Statement(sa.update(incidents).values(doc=bindparam("doc"), closed_at=bindparam("at")).where(_THIS, _OPEN))


def _ended() -> Any:
    """The newest first. Preemptions are most of the ends and never part of an incident."""
    of_attempt = and_(attempts.c.run == events.c.run, attempts.c.number == events.c.attempt)
    tables = events.join(runs, runs.c.key == events.c.run).join(attempts, of_attempt)
    is_fault = events.c.data.like(literal(f'%"cause":"{Cause.GPU_FAULT}"%'))
    return (
        sa.select(runs.c.key, runs.c.version, runs.c.doc, attempts.c.doc)
        .select_from(tables)
        .where(
            runs.c.cell == bindparam("cell"),
            events.c.at > bindparam("faults_since"),
            events.c.kind == literal(str(EventKind.ATTEMPT_ENDED)),
            events.c.data.not_like(literal(f'%"cause":"{Cause.PREEMPTED}"%')),
            or_(events.c.at > bindparam("since"), is_fault),
        )
        .order_by(events.c.at.desc())
        .limit(bindparam("limit_"))
    )


ENDED = Statement(_ended())


class SqlIncidents:
    """Implements ports/store.Incidents."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def current(self, cell: str, closed_after: float) -> list[Incident]:
        return self._read(CURRENT, {"cell": cell, "closed_after": closed_after})

    def newest(self, limit: int, only_open: bool) -> list[Incident]:
        return self._read(OPEN if only_open else NEWEST, {"limit_": limit})

    def find(self, incident_id: int) -> Incident | None:
        return next(iter(self._read(FIND, {"id_": incident_id})), None)

    def ended(self, cell: str, since: float, faults_since: float, limit: int) -> list[tuple[Run, Attempt]]:
        params = {"cell": cell, "since": since, "faults_since": faults_since, "limit_": limit}
        return readable(self._database.read(Session.run, ENDED, params), _run_and_attempt, "attempts")

    def write(
        self, incident: Incident, announce: Callable[[Incident], Event] | None, lease: Lease, now: float
    ) -> Incident | None:
        with self._database.writing() as session:
            if not hold_lease(session, lease):
                return None
            stored = _inserted(session, incident, lease) if not incident.id else _changed(session, incident)
            if stored is not None and announce is not None:
                add_own(session, [announce(stored)], now, owner=_owner(stored))
            return stored

    def close(
        self, incident_id: int, by: str, reason: str, event: Event, now: float, *, owner: str | None = None
    ) -> Incident | None:
        with self._database.writing() as session:
            row = session.run(LOCK, {"id_": incident_id}).first()
            incident = None if row is None else _incident(row)
            if incident is None or incident.closed_at is not None:
                return None
            if owner is None:
                closed = replace(incident, closed_at=now, closed_by=by, reason=reason)
            else:
                closed = incident.closed_for(Closing(owner, now, by, reason))
            session.run(CLOSE, {"id_": incident_id, "doc": _doc(closed), "at": closed.closed_at})
            add_own(session, [event], now, owner=_owner(closed) if owner is None else owner)
            return closed

    def _read(self, statement: Statement, params: dict[str, Any]) -> list[Incident]:
        return readable(self._database.read(Session.run, statement, params), _incident, "incidents")


def _inserted(session: Session, incident: Incident, lease: Lease) -> Incident | None:
    """None = there is an open one for the same."""
    first = incident.common[0]
    values = {"cell": lease.name, "kind": str(first.kind), "value": first.value, "closed_at": None}
    incident_id = session.run(INSERT, {**values, "doc": _doc(incident)}).scalar()
    return None if incident_id is None else replace(incident, id=incident_id)


def _changed(session: Session, incident: Incident) -> Incident | None:
    """None = it was closed meanwhile, for an owner too."""
    row = session.run(LOCK, {"id_": incident.id}).first()
    if row is None or _incident(row).closings != incident.closings:
        return None
    done = session.run(CHANGE, {"id_": incident.id, "doc": _doc(incident)})
    return incident if done.rowcount == 1 else None


def _owner(incident: Incident) -> str:
    """Whose event it is: one owner's, or of the supervisor itself where runs of several owners are part of it."""
    owners = incident.owners
    return next(iter(owners)) if len(owners) == 1 else ""


def _doc(incident: Incident) -> str:
    return dumps(to_plain(incident, _ID))


def _incident(row: Sequence[Any]) -> Incident:
    incident_id, doc = row
    return from_plain(Incident, json.loads(doc), id=incident_id)


def _run_and_attempt(row: Sequence[Any]) -> tuple[Run, Attempt]:
    key, version, doc, attempt = row
    return from_plain(Run, json.loads(doc), key=key, version=version), read_attempt(attempt)
