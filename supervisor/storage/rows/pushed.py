"""Pushed beats that one replica received and another one, the leader of the run's cell, needs.

A row per run, written about once a second by each replica that does not lead and taken by the leader at each look.
Both go through the rows in order of their keys, and the leader leaves out what is just being written, so that nobody
waits in a circle. Ages travel by the database's clock: the clocks of two replicas are never compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Column, Double, bindparam, literal_column, tuple_

from supervisor.contract import heartbeat
from supervisor.contract.heartbeat import BeatRejected
from supervisor.contract.identifiers import parse_launch_id
from supervisor.ports.store import Lease, PushedBeat
from supervisor.storage.engine.codec import dumps
from supervisor.storage.engine.statements import Session, Statement, incoming, insert
from supervisor.storage.engine.tables import pushed_beats, runs
from supervisor.storage.rows import leases

_RANK = ("generation", "attempt", "try_number", "sequence")
_UNSETTLED = runs.c.settled == literal_column("0")


def _incoming(dialect: str) -> sa.Subquery:
    rank = [pushed_beats.c[name] for name in _RANK]
    return incoming(dialect, runs.c.run_id, *rank, Column("age_s", Double), pushed_beats.c.doc)


def _upsert(dialect: str) -> Any:
    new = _incoming(dialect)
    received_at = leases.database_now(dialect) - new.c.age_s
    source = (
        sa.select(runs.c.key, *(new.c[name] for name in _RANK), received_at, new.c.doc)
        .join(runs, runs.c.run_id == new.c.run_id)
        .where(_UNSETTLED)
        .order_by(runs.c.key)
    )
    names = ["run", *_RANK, "received_at", "doc"]
    statement = insert(pushed_beats, dialect).from_select(names, source)
    newer = tuple_(*(statement.excluded[name] for name in _RANK)) > tuple_(
        *(pushed_beats.c[name] for name in _RANK)
    )
    return statement.on_conflict_do_update(
        index_elements=["run"], set_={name: statement.excluded[name] for name in names[1:]}, where=newer
    )


def _statuses(dialect: str) -> Any:
    new = _incoming(dialect)
    return sa.select(runs.c.run_id, runs.c.status).join(new, runs.c.run_id == new.c.run_id).where(_UNSETTLED)


def _take(dialect: str) -> Any:
    # Also what is left of runs that were settled meanwhile: nobody else would ever delete it.
    mine = (
        sa.select(pushed_beats.c.run)
        .join(runs, runs.c.key == pushed_beats.c.run)
        .where(runs.c.cell == bindparam("cell"))
        .order_by(pushed_beats.c.run)
        .with_for_update(of=pushed_beats, skip_locked=True)
    )
    age_s = leases.database_now(dialect) - pushed_beats.c.received_at
    return (
        sa.delete(pushed_beats)
        .where(pushed_beats.c.run.in_(mine))
        .returning(age_s.label("age_s"), pushed_beats.c.doc)
    )


UPSERT, STATUSES, TAKE = Statement(_upsert), Statement(_statuses), Statement(_take)


class BeatRows:
    """Beats, taken apart before a transaction is begun; of each run the newest."""

    def __init__(self, beats: Sequence[PushedBeat]) -> None:
        newest: dict[str, tuple[tuple[int, ...], PushedBeat]] = {}
        for one in beats:
            rank = (*parse_launch_id(one.beat.launch_id), one.beat.sequence)
            known = newest.get(one.beat.run_id)
            if known is None or rank > known[0]:
                newest[one.beat.run_id] = (rank, one)
        self._rows = [
            [run_id, *rank, one.age_s, heartbeat.encode(one.beat).decode()]
            for run_id, (rank, one) in newest.items()
        ]

    def write(self, session: Session) -> dict[str, str]:
        """run_id -> status of those that are not settled."""
        session.many(UPSERT, self._rows)
        return dict(session.run(STATUSES, {"rows": dumps(self._rows)}))


def take(session: Session, lease: Lease) -> list[PushedBeat]:
    if not leases.hold(session, lease):
        return []
    found = []
    for age_s, doc in session.run(TAKE, {"cell": lease.name}):
        try:
            beat = heartbeat.parse(doc.encode())
        except BeatRejected:
            continue  # written by a replica of another version: the agent's next beat in the store tells the same
        found.append(PushedBeat(beat, max(0.0, age_s)))
    return found
