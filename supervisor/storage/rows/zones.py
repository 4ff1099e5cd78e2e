"""What create calls and preemptions taught about each offer of a cell."""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from sqlalchemy import and_, bindparam, func, literal_column

from supervisor.domain.machines.placement import OfferKey, ZoneRecord
from supervisor.storage.engine.codec import dumps
from supervisor.storage.engine.statements import Session, Statement, insert
from supervisor.storage.engine.tables import attempts, runs, zones

_KEY = ("cell", "provider", "zone", "shape", "spot")
_RECORD = ("failures", "cool_until", "cause", "detail", "lost_at", "stocked_out_at")


def _upsert(dialect: str) -> Any:
    statement = insert(zones, dialect).values({column.key: bindparam(column.key) for column in zones.c})
    return statement.on_conflict_do_update(
        index_elements=list(_KEY), set_={name: statement.excluded[name] for name in _RECORD}
    )


UPSERT = Statement(_upsert)
DELETE = Statement(lambda _: sa.delete(zones).where(*(zones.c[name] == bindparam(name) for name in _KEY)))
OF_CELL = Statement(lambda _: sa.select(*tuple(zones.c)[1:]).where(zones.c.cell == bindparam("cell")))


def _told(dialect: str, *path: str) -> sa.ColumnElement[str]:
    """A value inside an attempt's document as text; NULL where it is not there."""
    if dialect == "sqlite":
        return func.json_extract(attempts.c.doc, literal_column(f"'$.{'.'.join(path)}'"))
    return attempts.c.doc.op("::")(literal_column("jsonb")).op("#>>")(
        literal_column(f"'{{{','.join(path)}}}'")
    )


def _machines(of_owner: bool) -> Statement:
    def build(dialect: str) -> Any:
        place = [_told(dialect, "placement", name) for name in ("provider", "zone", "shape", "spot")]
        of_run = and_(attempts.c.run == runs.c.key, attempts.c.number == runs.c.attempt)
        select = (
            sa.select(*place, func.count())
            .select_from(runs.join(attempts, of_run))
            .where(runs.c.cell == bindparam("cell"), runs.c.settled == literal_column("0"))
            .where(_told(dialect, "gone_at").is_(None))
            .group_by(literal_column("1"), literal_column("2"), literal_column("3"), literal_column("4"))
        )
        return select.where(runs.c.owner == bindparam("owner")) if of_owner else select

    return Statement(build)


MACHINES, MACHINES_OF = _machines(False), _machines(True)


def machines(session: Session, cell: str, owner: str | None) -> dict[OfferKey, int]:
    """Of the current attempts of runs that are not settled: those machines that are not known gone."""
    statement, params = (
        (MACHINES, {"cell": cell}) if owner is None else (MACHINES_OF, {"cell": cell, "owner": owner})
    )
    found: dict[OfferKey, int] = {}
    for provider, zone, shape, spot, count in session.run(statement, params):
        found[(provider, zone, shape, spot in (1, "true"))] = count
    return found


def of_cell(session: Session, cell: str) -> dict[OfferKey, ZoneRecord]:
    return {
        (provider, zone, shape, bool(spot)): ZoneRecord(
            failures, cool_until, cause, detail, tuple(json.loads(lost_at)), out_at
        )
        for provider, zone, shape, spot, failures, cool_until, cause, detail, lost_at, out_at in session.run(
            OF_CELL, {"cell": cell}
        )
    }


def put(session: Session, cell: str, key: OfferKey, record: ZoneRecord | None) -> None:
    """None: forget what was learned."""
    params: dict[str, Any] = dict(zip(_KEY, (cell, *key[:3], int(key[3])), strict=True))
    if record is None:
        session.run(DELETE, params)
        return
    learned = {name: getattr(record, name) for name in _RECORD}
    session.run(UPSERT, {**params, **learned, "lost_at": dumps(list(record.lost_at))})
