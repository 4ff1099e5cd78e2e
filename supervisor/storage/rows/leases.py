"""Leadership of a cell: one row, judged by the database's clock only.

The epoch rises with each change of hands. A guarded write locks the lease's row for its transaction, so a new leader
begins either after that write or before it, and in the second case the write hits nothing.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from sqlalchemy import and_, bindparam, case, func, literal, literal_column, not_, or_

from supervisor.ports.store import Lease
from supervisor.storage.engine.statements import Session, Statement, insert
from supervisor.storage.engine.tables import leases, runs

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
    statement = insert(leases, dialect).values(
        name=bindparam("name"), owner=bindparam("owner"), until=until, epoch=1
    )
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
    lambda dialect: (
        sa.update(leases).values(owner="", until=database_now(dialect) - literal(GIVEN_BACK_S)).where(_OURS)
    )
)
LEADERLESS = Statement(_leaderless)
LED = Statement(lambda _: sa.select(leases.c.name).order_by(leases.c.name))
HOLD = Statement(lambda _: sa.select(leases.c.epoch).where(_OURS).with_for_update(read=True))


def take(
    session: Session, name: str, owner: str, ttl_s: float, monotonic: float, alone: bool
) -> Lease | None:
    """`monotonic` was read before the call: the deadline can only be too early."""
    params = {"name": name, "owner": owner, "ttl_s": ttl_s, "alone": int(alone)}
    epoch = session.run(TAKE, params).scalar()
    return None if epoch is None else Lease(name, owner, epoch, monotonic + ttl_s)


def drop(session: Session, lease: Lease) -> None:
    session.run(DROP, _params(lease))


def hold(session: Session, lease: Lease) -> bool:
    """True when the lease is still ours; nobody can take it until this transaction ends."""
    return session.run(HOLD, _params(lease)).first() is not None


def leaderless(session: Session) -> dict[str, int]:
    """Cells with runs to look after and nobody to do it: cell -> number of runs."""
    return dict(session.run(LEADERLESS, {}))


def led(session: Session) -> list[str]:
    return [name for (name,) in session.run(LED, {})]


def _params(lease: Lease) -> dict[str, Any]:
    return {"lease_name": lease.name, "lease_owner": lease.owner, "lease_epoch": lease.epoch}
