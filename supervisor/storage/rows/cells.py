"""What is kept of a cell and of its leader: the lease, what was learned of each offer, and the last patrol.

The lease is one row, judged by the database's clock only. Its epoch rises with each change of hands. A guarded write
locks the lease's row for its transaction, so a new leader begins either after that write or before it, and in the
second case the write hits nothing.

A zone's row holds what create calls and preemptions taught about each of its offers. A row of `meta` says when the
supervisor last told of itself, so that no two replicas tell it both.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import and_, bindparam, case, func, literal, literal_column, not_, or_

from supervisor.domain.attempt import Attempt
from supervisor.domain.events import Event
from supervisor.domain.machines import OfferKey, ZoneRecord
from supervisor.ports.history import LeaseGap
from supervisor.ports.store import Lease
from supervisor.storage.engine.codec import dumps
from supervisor.storage.engine.database import Database
from supervisor.storage.engine.statements import Session, Statement, insert
from supervisor.storage.engine.tables import attempts, leases, meta, runs, zones
from supervisor.storage.rows import events, rows

LONGEST_S = 120.0  # no lease is taken for longer
GIVEN_BACK_S = 1.0  # more than a database's clock may be coarse


def database_now(dialect: str) -> Any:
    """Epoch seconds by the database's clock, also within a long transaction."""
    if dialect == "sqlite":
        return literal_column("((julianday('now') - 2440587.5) * 86400.0)", sa.Double)
    return literal_column("extract(epoch from clock_timestamp())::double precision", sa.Double)


def _over(dialect: str) -> Any:
    """Expired, or running for longer than any lease does: the database's clock was wrong when it was written."""
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
        where=or_(ours, _over(dialect), bindparam("alone", type_=sa.Integer) == 1),
    ).returning(leases.c.epoch)


_OURS = and_(
    leases.c.name == bindparam("lease_name"),
    leases.c.owner == bindparam("lease_owner"),
    leases.c.epoch == bindparam("lease_epoch"),
)


def _leaderless(dialect: str) -> Any:
    held = sa.select(leases.c.name).where(not_(_over(dialect)))
    return (
        sa.select(runs.c.cell, func.count())
        .where(runs.c.settled == literal_column("0"), runs.c.cell.not_in(held))
        .group_by(runs.c.cell)
    )


TAKE = Statement(_take)
# Free at once, and still known since when.
DROP = Statement(
    lambda dialect: sa.update(leases).values(owner="", until=database_now(dialect) - literal(GIVEN_BACK_S)).where(_OURS)
)
LEADERLESS = Statement(_leaderless)
LED = Statement(lambda _: sa.select(leases.c.name).order_by(leases.c.name))
HOLD = Statement(lambda _: sa.select(leases.c.epoch).where(_OURS).with_for_update(read=True))


TAKE_OVER = Statement(
    lambda _: (
        sa.update(runs)
        .values(cell=bindparam("ours"), version=runs.c.version + 1)
        .where(
            runs.c.key.in_(
                sa.select(runs.c.key)
                .where(runs.c.cell == bindparam("theirs"))
                .order_by(runs.c.settled)  # live runs wait for their leader, ended ones for nobody
                .limit(bindparam("most", type_=sa.Integer))
            )
        )
        .returning(runs.c.key)
    )
)


def take_lease(session: Session, name: str, owner: str, ttl_s: float, monotonic: float, alone: bool) -> Lease | None:
    """`monotonic` was read before the call: the deadline can only be too early."""
    params = {"name": name, "owner": owner, "ttl_s": ttl_s, "alone": int(alone)}
    epoch = session.run(TAKE, params).scalar()
    return None if epoch is None else Lease(name, owner, epoch, monotonic + ttl_s)


def drop_lease(session: Session, lease: Lease) -> None:
    session.run(DROP, _params(lease))


def hold_lease(session: Session, lease: Lease) -> bool:
    """True when the lease is still ours; nobody can take it until this transaction ends."""
    return session.run(HOLD, _params(lease)).first() is not None


def take_over(session: Session, theirs: str, ours: str, most: int) -> int:
    """How many runs have come over. What the zones have taught comes with the first of them."""
    known = zones_of(session, ours)
    for key, record in zones_of(session, theirs).items():
        put_zone(session, theirs, key, None)
        if key not in known:
            put_zone(session, ours, key, record)
    return len(list(session.run(TAKE_OVER, {"theirs": theirs, "ours": ours, "most": most})))


def leaderless(session: Session) -> dict[str, int]:
    """Cells with runs to look after and nobody to do it: cell -> number of runs."""
    return dict(session.run(LEADERLESS, {}))


def lease_names(session: Session) -> list[str]:
    return [name for (name,) in session.run(LED, {})]


def _params(lease: Lease) -> dict[str, Any]:
    return {"lease_name": lease.name, "lease_owner": lease.owner, "lease_epoch": lease.epoch}


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


def _text_at(dialect: str, *path: str) -> sa.ColumnElement[str]:
    """A value inside an attempt's document as text; NULL where it is not there."""
    if dialect == "sqlite":
        return func.json_extract(attempts.c.doc, literal_column(f"'$.{'.'.join(path)}'"))
    return attempts.c.doc.op("::")(literal_column("jsonb")).op("#>>")(literal_column(f"'{{{','.join(path)}}}'"))


def _machines(of_owner: bool) -> Statement:
    def build(dialect: str) -> Any:
        place = [_text_at(dialect, "placement", name) for name in ("provider", "zone", "shape", "spot")]
        of_run = and_(attempts.c.run == runs.c.key, attempts.c.number == runs.c.attempt)
        select = (
            sa.select(*place, func.count())
            .select_from(runs.join(attempts, of_run))
            .where(runs.c.cell == bindparam("cell"), runs.c.settled == literal_column("0"))
            .where(_text_at(dialect, "gone_at").is_(None))
            .group_by(literal_column("1"), literal_column("2"), literal_column("3"), literal_column("4"))
        )
        return select.where(runs.c.owner == bindparam("owner")) if of_owner else select

    return Statement(build)


MACHINES, MACHINES_OF = _machines(False), _machines(True)


def machines(session: Session, cell: str, owner: str | None) -> dict[OfferKey, int]:
    """Of the current attempts of runs that are not settled: those machines that are not known gone."""
    statement, params = (MACHINES, {"cell": cell}) if owner is None else (MACHINES_OF, {"cell": cell, "owner": owner})
    counts: dict[OfferKey, int] = {}
    for provider, zone, shape, spot, count in session.run(statement, params):
        counts[(provider, zone, shape, spot in (1, "true"))] = count
    return counts


def zones_of(session: Session, cell: str) -> dict[OfferKey, ZoneRecord]:
    return {
        (provider, zone, shape, bool(spot)): ZoneRecord(
            failures, cool_until, cause, detail, tuple(json.loads(lost_at)), out_at
        )
        for provider, zone, shape, spot, failures, cool_until, cause, detail, lost_at, out_at in session.run(
            OF_CELL, {"cell": cell}
        )
    }


def put_zone(session: Session, cell: str, key: OfferKey, record: ZoneRecord | None) -> None:
    """None: forget what was learned."""
    params: dict[str, Any] = dict(zip(_KEY, (cell, *key[:3], int(key[3])), strict=True))
    if record is None:
        session.run(DELETE, params)
        return
    learned = {name: getattr(record, name) for name in _RECORD}
    session.run(UPSERT, {**params, **learned, "lost_at": dumps(list(record.lost_at))})


NAME = "patrol_at"


def _begin(dialect: str) -> Any:
    return (
        insert(meta, dialect).values(name=NAME, value=bindparam("now")).on_conflict_do_nothing(index_elements=["name"])
    )


def _of_these(_dialect: str) -> Any:
    live = or_(runs.c.ended_at.is_(None), runs.c.ended_at >= bindparam("since"))
    keys = (
        sa.select(runs.c.key)
        .where(runs.c.key > bindparam("after"), live)
        .order_by(runs.c.key)
        .limit(bindparam("limit_"))
        .subquery()
    )
    return sa.select(keys.c.key, attempts.c.doc).outerjoin(attempts, attempts.c.run == keys.c.key)


LAST = Statement(lambda _: sa.select(meta.c.value).where(meta.c.name == NAME))
BEGIN = Statement(_begin)
GO_ON = Statement(
    lambda _: (
        sa.update(meta).values(value=bindparam("now")).where(meta.c.name == NAME, meta.c.value == bindparam("last"))
    )
)
OF_THESE = Statement(_of_these)
LEASE = Statement(
    lambda dialect: sa.select(leases.c.owner, leases.c.until, database_now(dialect)).where(
        leases.c.name == bindparam("lease_name")
    )
)


class SqlPatrols:
    """Implements ports/history.Patrols."""

    def __init__(self, database: Database, channels: Sequence[str]) -> None:
        self._database = database
        self._channels = tuple(channels)

    def last(self) -> float | None:
        with self._database.reading() as session:
            value = session.run(LAST, {}).scalar()
        return None if value is None else float(value)

    def record(self, event: Event | None, last: float | None, now: float) -> bool:
        with self._database.writing() as session:
            if not self._ours(session, last, now):
                return False
            if event is not None:
                events.add_own(session, [event], self._channels, now)
        return True

    def _ours(self, session: Session, last: float | None, now: float) -> bool:
        if last is None:
            return session.run(BEGIN, {"now": repr(now)}).rowcount == 1
        return session.run(GO_ON, {"now": repr(now), "last": repr(last)}).rowcount == 1

    def attempts(self, since: float, after_key: int, limit: int) -> tuple[list[Attempt], int | None]:
        with self._database.reading() as session:
            rows_read = list(session.run(OF_THESE, {"since": since, "after": after_key, "limit_": limit}))
        keys = {key for key, _ in rows_read}
        more = max(keys) if len(keys) == limit else None
        return [rows.read_attempt(doc) for _, doc in rows_read if doc is not None], more

    def lease_gap(self, lease: str, ttl_s: float) -> LeaseGap | None:
        with self._database.reading() as session:
            row = session.run(LEASE, {"lease_name": lease}).first()
        if row is None:
            return None
        owner, until, now = row
        if not owner:
            return LeaseGap(max(0.0, now - until) if until > 0 else None, held=False)
        return LeaseGap(max(0.0, now - until + ttl_s), held=until >= now)
