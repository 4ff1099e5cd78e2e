"""What is stored of a cell: the lease of its leader, and the records of its zones.

The lease is one row, judged by the database's clock only. Its epoch rises with each change of its owner. A guarded
write locks the row of the lease for its transaction: a new leader begins after that write, or before it, and then the
write matches nothing.

A zone record has the last results of create calls and the last preemptions of one offer; older ones are read from the
attempts and tries of the newest runs. The number of machines per offer comes
from the current attempts.
"""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa
from sqlalchemy import and_, bindparam, case, func, literal, literal_column, not_, or_

from supervisor.domain.causes import Cause
from supervisor.domain.machines import Call, OfferKey, ZoneRecord, kind_of
from supervisor.ports.history import LeaseGap
from supervisor.ports.store import Lease
from supervisor.storage.engine.codec import dumps
from supervisor.storage.engine.statements import Session, Statement, insert, insert_one
from supervisor.storage.engine.tables import attempts, incidents, leases, runs, tries, zones
from supervisor.storage.rows.rows import readable

LONGEST_S = 120.0  # no lease is longer
GIVEN_BACK_S = 1.0  # more than the resolution of a database's clock
_KEY = ("cell", "provider", "zone", "shape", "spot")
_RECORD = ("failures", "cool_until", "cause", "detail", "lost_at", "stocked_out_at")
_OURS = and_(
    leases.c.name == bindparam("lease_name"),
    leases.c.owner == bindparam("lease_owner"),
    leases.c.epoch == bindparam("lease_epoch"),
)


def database_now(dialect: str) -> Any:
    """Epoch seconds by the database's clock, also within a long transaction."""
    if dialect == "sqlite":
        return literal_column("((julianday('now') - 2440587.5) * 86400.0)", sa.Double)
    return literal_column("extract(epoch from clock_timestamp())::double precision", sa.Double)


def _expired(dialect: str) -> Any:
    """Or longer than any lease: then the database's clock was wrong when it was written."""
    now = database_now(dialect)
    return or_(leases.c.until < now, leases.c.until > now + literal(LONGEST_S, sa.Double))


def _take(dialect: str) -> Any:
    until = database_now(dialect) + bindparam("ttl_s", type_=sa.Double)
    statement = insert(leases, dialect).values(name=bindparam("name"), owner=bindparam("owner"), until=until, epoch=1)
    ours = leases.c.owner == statement.excluded.owner
    return statement.on_conflict_do_update(
        index_elements=["name"],
        set_={
            "owner": statement.excluded.owner,
            "until": statement.excluded.until,
            "epoch": case((ours, leases.c.epoch), else_=leases.c.epoch + 1),
        },
        where=or_(ours, _expired(dialect), bindparam("alone", type_=sa.Integer) == 1),
    ).returning(leases.c.epoch)


def _drop(dialect: str) -> Any:
    """Free at once; `until` keeps the time for `lease_gap`."""
    return sa.update(leases).values(owner="", until=database_now(dialect) - literal(GIVEN_BACK_S)).where(_OURS)


def _leaderless(dialect: str) -> Any:
    held = sa.select(leases.c.name).where(not_(_expired(dialect)))
    return (
        sa.select(runs.c.cell, func.count())
        .where(runs.c.settled == literal_column("0"), runs.c.cell.not_in(held))
        .group_by(runs.c.cell)
    )


def _upsert_zone(dialect: str) -> Any:
    statement = insert_one(zones, dialect)
    return statement.on_conflict_do_update(
        index_elements=list(_KEY), set_={name: statement.excluded[name] for name in _RECORD}
    )


def _machines(of_owner: bool) -> Statement:
    def text_at(dialect: str, *path: str) -> sa.ColumnElement[str]:
        """A value in an attempt's document as text; NULL = missing."""
        if dialect == "sqlite":
            return func.json_extract(attempts.c.doc, literal_column(f"'$.{'.'.join(path)}'"))
        return attempts.c.doc.op("::")(literal_column("jsonb")).op("#>>")(literal_column(f"'{{{','.join(path)}}}'"))

    def build(dialect: str) -> Any:
        place = [text_at(dialect, "placement", name) for name in ("provider", "zone", "shape", "spot", "flex")]
        of_run = and_(attempts.c.run == runs.c.key, attempts.c.number == runs.c.attempt)
        select = (
            sa.select(*place, func.count())
            .select_from(runs.join(attempts, of_run))
            .where(runs.c.cell == bindparam("cell"), runs.c.settled == literal_column("0"))
            .where(text_at(dialect, "gone_at").is_(None))
            .group_by(*(literal_column(str(n)) for n in range(1, len(place) + 1)))
        )
        return select.where(runs.c.owner == bindparam("owner")) if of_owner else select

    return Statement(build)


def _newest(table: sa.Table, number: sa.ColumnElement[Any], *conditions: sa.ColumnElement[bool]) -> Statement:
    """The documents of the newest runs of a cell."""
    return Statement(
        sa.select(table.c.run, table.c.doc)
        .select_from(runs.join(table, table.c.run == runs.c.key))
        .where(runs.c.cell == bindparam("cell"), *conditions)
        .order_by(table.c.run.desc(), number.desc())
        .limit(bindparam("most", type_=sa.Integer))
    )


TAKE, DROP, LEADERLESS = Statement(_take), Statement(_drop), Statement(_leaderless)
HOLD = Statement(sa.select(leases.c.epoch).where(_OURS).with_for_update(read=True))
NAMES = Statement(sa.select(leases.c.name).order_by(leases.c.name))
TIMES = Statement(
    lambda dialect: sa.select(leases.c.owner, leases.c.until, database_now(dialect)).where(
        leases.c.name == bindparam("lease_name")
    )
)
TAKE_OVER = Statement(
    sa.update(runs)
    .values(cell=bindparam("ours"), version=runs.c.version + 1)
    .where(
        runs.c.key.in_(
            sa.select(runs.c.key)
            .where(runs.c.cell == bindparam("theirs"))
            .order_by(runs.c.settled)  # live runs first: they wait for a leader
            .limit(bindparam("most", type_=sa.Integer))
        )
    )
    .returning(runs.c.key)
)
_SAME = incidents.alias()  # an open one of ours about the same
TAKE_INCIDENTS = Statement(
    sa.update(incidents)
    .values(cell=bindparam("ours"))
    .where(
        incidents.c.cell == bindparam("theirs"),
        incidents.c.closed_at.is_(None),
        ~sa.exists().where(
            _SAME.c.cell == bindparam("ours"),
            _SAME.c.closed_at.is_(None),
            _SAME.c.kind == incidents.c.kind,
            _SAME.c.value == incidents.c.value,
        ),
    )
)
UPSERT_ZONE = Statement(_upsert_zone)
DELETE_ZONE = Statement(sa.delete(zones).where(*(zones.c[name] == bindparam(name) for name in _KEY)))
ZONES = Statement(sa.select(*tuple(zones.c)[1:]).where(zones.c.cell == bindparam("cell")))
MACHINES, MACHINES_OF = _machines(False), _machines(True)
OBTAINED = _newest(attempts, attempts.c.number)
REFUSED = _newest(tries, tries.c.attempt, tries.c.doc.like(literal(f'%"outcome":"{Cause.NO_CAPACITY}"%')))


def take_lease(session: Session, name: str, owner: str, ttl_s: float, *, monotonic: float, alone: bool) -> Lease | None:
    """`monotonic`: read before the call, so the deadline is never too late."""
    params = {"name": name, "owner": owner, "ttl_s": ttl_s, "alone": int(alone)}
    epoch = session.run(TAKE, params).scalar()
    return None if epoch is None else Lease(name, owner, epoch, monotonic + ttl_s)


def drop_lease(session: Session, lease: Lease) -> None:
    session.run(DROP, _params(lease))


def hold_lease(session: Session, lease: Lease) -> bool:
    """True: the lease is still ours, and stays ours until this transaction ends."""
    return session.run(HOLD, _params(lease)).first() is not None


def lease_gap(session: Session, lease: str, ttl_s: float) -> LeaseGap | None:
    row = session.run(TIMES, {"lease_name": lease}).first()
    if row is None:
        return None
    owner, until, now = row
    if not owner:
        return LeaseGap(max(0.0, now - until) if until > 0 else None, held=False)
    return LeaseGap(max(0.0, now - until + ttl_s), held=until >= now)


def take_over(session: Session, theirs: Lease, ours: Lease, most: int) -> int:
    """The number of moved runs. The zone records and the open incidents move with the first of them."""
    if not (hold_lease(session, theirs) and hold_lease(session, ours)):
        return 0
    our_zones = zones_of(session, ours.name)
    for key, record in zones_of(session, theirs.name).items():
        put_zone(session, theirs.name, key, None)
        if key not in our_zones:
            put_zone(session, ours.name, key, record)
    session.run(TAKE_INCIDENTS, {"theirs": theirs.name, "ours": ours.name})
    return len(session.run(TAKE_OVER, {"theirs": theirs.name, "ours": ours.name, "most": most}))


def leaderless(session: Session) -> dict[str, int]:
    return dict(session.run(LEADERLESS))


def lease_names(session: Session) -> list[str]:
    return [name for (name,) in session.run(NAMES)]


def zones_of(session: Session, cell: str) -> dict[OfferKey, ZoneRecord]:
    records = {}
    for provider, zone, shape, spot, *cells in session.run(ZONES, {"cell": cell}):
        stored = dict(zip(_RECORD, cells, strict=True))
        lost_at = tuple(json.loads(stored["lost_at"]))
        records[(provider, zone, shape, bool(spot))] = ZoneRecord(**{**stored, "lost_at": lost_at})
    return records


def put_zone(session: Session, cell: str, key: OfferKey, record: ZoneRecord | None) -> None:
    """None: delete the record."""
    params: dict[str, Any] = dict(zip(_KEY, (cell, *key[:3], int(key[3])), strict=True))
    if record is None:
        session.run(DELETE_ZONE, params)
        return
    values = {name: getattr(record, name) for name in _RECORD}
    session.run(UPSERT_ZONE, {**params, **values, "lost_at": dumps(list(record.lost_at))})


def calls_of(session: Session, cell: str, most: int) -> list[Call]:
    obtained = session.run(OBTAINED, {"cell": cell, "most": most})
    refused = session.run(REFUSED, {"cell": cell, "most": most})
    return [*readable(obtained, _obtained, "attempts"), *readable(refused, _refused, "tries")]


def _obtained(row: Any) -> Call:
    doc = json.loads(row[1])
    lost = doc.get("cause") == Cause.PREEMPTED
    return Call(_offer(doc), float(doc["started_at"]), obtained=True, ended_at=doc.get("ended_at"), lost=lost)


def _refused(row: Any) -> Call:
    doc = json.loads(row[1])
    return Call(_offer(doc), float(doc["ended_at"]), obtained=False)


def _offer(doc: dict[str, Any]) -> OfferKey:
    place = doc["placement"]
    shape = kind_of(place["shape"], flex=bool(place.get("flex")))
    return place["provider"], place["zone"], shape, bool(place["spot"])


def machines(session: Session, cell: str, owner: str | None) -> dict[OfferKey, int]:
    """Of the current attempts of runs that are not settled: the machines that are not known gone."""
    statement, params = (MACHINES, {"cell": cell}) if owner is None else (MACHINES_OF, {"cell": cell, "owner": owner})
    counts: dict[OfferKey, int] = {}
    for provider, zone, shape, spot, flex, count in session.run(statement, params):
        key = (provider, zone, kind_of(shape, flex=flex in (1, "true")), spot in (1, "true"))
        counts[key] = counts.get(key, 0) + count  # an older row says nothing of flex-start
    return counts


def _params(lease: Lease) -> dict[str, Any]:
    return {"lease_name": lease.name, "lease_owner": lease.owner, "lease_epoch": lease.epoch}
