"""Attempts and tries: one row each, written again while they change; and the hashes that authenticate beats."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import sqlalchemy as sa
from sqlalchemy import and_, bindparam, func, literal_column

from supervisor.domain.attempt import Attempt, Try
from supervisor.ports.store import Change
from supervisor.storage.engine.statements import Session, Statement, insert_incoming
from supervisor.storage.engine.tables import attempts, runs, tries
from supervisor.storage.rows import rows


def _upsert_attempts(dialect: str) -> Any:
    statement = insert_incoming(attempts, dialect, tuple(attempts.c))
    return statement.on_conflict_do_update(
        index_elements=["run", "number"], set_={"doc": statement.excluded.doc}
    )


def _upsert_tries(dialect: str) -> Any:
    statement = insert_incoming(tries, dialect, tuple(tries.c))
    new = statement.excluded
    # A run that was read before its try got its nonce does not know the hash: it must not take it away.
    kept = func.coalesce(func.nullif(new.nonce_hash, ""), tries.c.nonce_hash)
    return statement.on_conflict_do_update(
        index_elements=["run", "attempt", "number"],
        set_={"nonce_hash": kept, "open": new.open, "doc": new.doc},
    )


UPSERT_ATTEMPTS = Statement(_upsert_attempts)
UPSERT_TRIES = Statement(_upsert_tries)
ATTEMPTS = Statement(
    lambda _: (
        sa.select(attempts.c.number, attempts.c.doc)
        .where(attempts.c.run == bindparam("run"))
        .order_by(attempts.c.number)
    )
)
TRIES = Statement(
    lambda _: (
        sa.select(tries.c.launch_id, tries.c.doc, tries.c.nonce_hash)
        .where(tries.c.run == bindparam("run"))
        .order_by(tries.c.attempt, tries.c.number)
    )
)
SET_NONCE = Statement(
    lambda _: (
        sa.update(tries)
        .values(nonce_hash=bindparam("nonce_hash"))
        .where(
            tries.c.run == bindparam("run"),
            tries.c.launch_id == bindparam("launch_id"),
            tries.c.open == literal_column("1"),
            sa.exists().where(
                and_(
                    runs.c.key == tries.c.run,
                    runs.c.try_attempt == tries.c.attempt,
                    runs.c.try_number == tries.c.number,
                )
            ),
        )
    )
)
NONCE = Statement(
    lambda _: (
        sa.select(tries.c.nonce_hash)
        .join(runs, runs.c.key == tries.c.run)
        .where(runs.c.run_id == bindparam("run_id"), tries.c.launch_id == bindparam("launch_id"))
    )
)


class AttemptRows:
    """The attempts and tries that some changes write."""

    def __init__(self, changes: Iterable[Change]) -> None:
        self._attempts: list[list[Any]] = []
        self._tries: dict[int, list[Any]] = {}
        for change in changes:
            key, attempt, try_ = change.before.key, change.after.attempt, change.after.try_
            current = () if attempt is None or attempt == change.before.attempt else (attempt,)
            self._attempts += [[key, one.number, rows.attempt_doc(one)] for one in (*change.parted, *current)]
            if try_ is not None and try_ != change.before.try_:
                self._tries[key] = _try_row(key, try_)

    def write(self, session: Session, hit: Collection[int]) -> None:
        session.many(UPSERT_ATTEMPTS, [row for row in self._attempts if row[0] in hit])
        session.many(UPSERT_TRIES, [row for key, row in self._tries.items() if key in hit])


def _try_row(key: int, try_: Try) -> list[Any]:
    is_open = int(try_.ended_at is None)
    nonce_hash = _checked(try_.nonce_hash)
    return [key, try_.attempt, try_.number, try_.launch_id, nonce_hash, is_open, rows.try_doc(try_)]


def _checked(nonce_hash: str) -> str:
    """It is put between quotes by the database when runs are read in bulk: a quote inside would poison the read."""
    if nonce_hash and not nonce_hash.isalnum():
        raise ValueError("the hash of a nonce is made of letters and digits")
    return nonce_hash


def of_run(session: Session, key: int) -> list[Attempt]:
    return rows.readable(
        session.run(ATTEMPTS, {"run": key}), lambda row: rows.read_attempt(row[1]), f"attempts of run {key}"
    )


def tries_of_run(session: Session, key: int) -> list[Try]:
    return rows.readable(
        session.run(TRIES, {"run": key}), lambda row: rows.read_try(*row[1:]), f"tries of run {key}"
    )


def set_nonce_hash(session: Session, key: int, launch_id: str, nonce_hash: str) -> bool:
    """False when this is not the run's open try."""
    params = {"run": key, "launch_id": launch_id, "nonce_hash": _checked(nonce_hash)}
    return session.run(SET_NONCE, params).rowcount == 1


def nonce_hash_of(session: Session, run_id: str, launch_id: str) -> str | None:
    found: str | None = session.run(NONCE, {"run_id": run_id, "launch_id": launch_id}).scalar()
    return found
