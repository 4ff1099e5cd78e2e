"""What create calls and preemptions taught about each offer of a cell."""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from sqlalchemy import bindparam

from supervisor.domain.placement import OfferKey, ZoneRecord
from supervisor.storage.codec import dumps
from supervisor.storage.statements import Session, Statement, insert
from supervisor.storage.tables import zones

_KEY = ("cell", "provider", "zone", "shape", "spot")
_RECORD = ("failures", "cool_until", "cause", "detail", "lost_at")


def _upsert(dialect: str) -> Any:
    statement = insert(zones, dialect).values({column.key: bindparam(column.key) for column in zones.c})
    return statement.on_conflict_do_update(
        index_elements=list(_KEY), set_={name: statement.excluded[name] for name in _RECORD}
    )


UPSERT = Statement(_upsert)
DELETE = Statement(lambda _: sa.delete(zones).where(*(zones.c[name] == bindparam(name) for name in _KEY)))
OF_CELL = Statement(lambda _: sa.select(*tuple(zones.c)[1:]).where(zones.c.cell == bindparam("cell")))


def of_cell(session: Session, cell: str) -> dict[OfferKey, ZoneRecord]:
    return {
        (provider, zone, shape, bool(spot)): ZoneRecord(
            failures, cool_until, cause, detail, tuple(json.loads(lost_at))
        )
        for provider, zone, shape, spot, failures, cool_until, cause, detail, lost_at in session.run(
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
