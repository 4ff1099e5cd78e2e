"""Runs with their attempts and tries: found, inserted, changed under the guard of their version, and read in bulk.

An attempt and a try have one row each, written again while they change. A try's row also keeps the hash that
authenticates its beats.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy import and_, bindparam, func, literal_column

from supervisor.domain.attempt import Attempt, Try
from supervisor.domain.run import Run
from supervisor.domain.status import ACTIVE
from supervisor.ports.store import Change, RowUnreadable
from supervisor.storage.engine.codec import dumps, to_plain
from supervisor.storage.engine.statements import Session, Statement, in_chunks, incoming, insert, insert_incoming
from supervisor.storage.engine.tables import attempts, labels, runs, specs, tries
from supervisor.storage.rows import beats, rows


def _upsert_attempts(dialect: str) -> Any:
    statement = insert_incoming(attempts, dialect, tuple(attempts.c))
    return statement.on_conflict_do_update(index_elements=["run", "number"], set_={"doc": statement.excluded.doc})


def _upsert_tries(dialect: str) -> Any:
    statement = insert_incoming(tries, dialect, tuple(tries.c))
    new = statement.excluded
    # A run that was read before its try got its nonce does not know the hash: it must not take it away.
    kept = func.coalesce(func.nullif(new.nonce_hash, ""), tries.c.nonce_hash)
    return statement.on_conflict_do_update(
        index_elements=["run", "attempt", "number"], set_={"nonce_hash": kept, "open": new.open, "doc": new.doc}
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
            self._attempts += [[key, item.number, rows.attempt_doc(item)] for item in (*change.parted, *current)]
            if try_ is not None and try_ != change.before.try_:
                self._tries[key] = _try_row(key, try_)

    def write(self, session: Session, hit: Collection[int]) -> None:
        session.run(UPSERT_ATTEMPTS, rows=[row for row in self._attempts if row[0] in hit])
        session.run(UPSERT_TRIES, rows=[row for key, row in self._tries.items() if key in hit])


def _try_row(key: int, try_: Try) -> list[Any]:
    is_open = int(try_.ended_at is None)
    nonce_hash = _checked(try_.nonce_hash)
    return [key, try_.attempt, try_.number, try_.launch_id, nonce_hash, is_open, rows.try_doc(try_)]


def _checked(nonce_hash: str) -> str:
    """It is put between quotes by the database when runs are read in bulk: a quote inside would poison the read."""
    if nonce_hash and not nonce_hash.isalnum():
        raise ValueError("the hash of a nonce is made of letters and digits")
    return nonce_hash


def attempts_of(session: Session, key: int) -> list[Attempt]:
    return rows.readable(
        session.run(ATTEMPTS, {"run": key}), lambda row: rows.read_attempt(row[1]), f"attempts of run {key}"
    )


def tries_of_run(session: Session, key: int) -> list[Try]:
    return rows.readable(session.run(TRIES, {"run": key}), lambda row: rows.read_try(*row[1:]), f"tries of run {key}")


def set_nonce_hash(session: Session, key: int, launch_id: str, nonce_hash: str) -> bool:
    """False when this is not the run's open try."""
    params = {"run": key, "launch_id": launch_id, "nonce_hash": _checked(nonce_hash)}
    return session.run(SET_NONCE, params).rowcount == 1


def nonce_hash_of(session: Session, run_id: str, launch_id: str) -> str | None:
    nonce_hash: str | None = session.run(NONCE, {"run_id": run_id, "launch_id": launch_id}).scalar()
    return nonce_hash


LINE = 0x52554E53  # of our advisory locks on Postgres: whose runs are counted
LOAD_PAGE = 500  # runs in one text: a few milliseconds of decoding during which no other thread runs

_COPIED = (
    runs.c.generation, runs.c.status, runs.c.zone, runs.c.ended_at, runs.c.settled, runs.c.usd_per_h_micro,
    runs.c.attempt, runs.c.try_attempt, runs.c.try_number, runs.c.doc,
)  # fmt: skip
_CHANGED = (runs.c.key, runs.c.events, *_COPIED)


def _keys(*where: Any) -> sa.Select[Any]:
    return sa.select(runs.c.key).where(*where)


FIND = Statement(lambda _: rows.glued(_keys(runs.c.run_id == bindparam("run_id")).subquery()))
LOAD = Statement(lambda dialect: rows.glued(sa.select(incoming(dialect, runs.c.key).c.key).subquery()))
UNSETTLED = and_(runs.c.cell == bindparam("cell"), runs.c.settled == literal_column("0"))
VERSIONS = Statement(
    lambda _: sa.select(
        func.aggregate_strings(sa.cast(runs.c.key, sa.Text).concat(":").concat(sa.cast(runs.c.version, sa.Text)), ",")
    ).where(UNSETTLED)
)
INSERT = Statement(
    lambda dialect: (
        insert(runs, dialect)
        .values({column.key: bindparam(column.key) for column in runs.c if column.key != "key"})
        .on_conflict_do_nothing(index_elements=["run_id"])
        .returning(runs.c.key)
    )
)
INSERT_SPEC = Statement(
    lambda dialect: (
        insert(specs, dialect)
        .values({column.key: bindparam(column.key) for column in specs.c})
        .on_conflict_do_update(index_elements=["run", "generation"], set_={"spec": bindparam("spec")})
    )
)
DELETE_LABELS = Statement(lambda _: sa.delete(labels).where(labels.c.run == bindparam("run")))
LABELS = Statement(lambda _: sa.select(labels.c.key, labels.c.value).where(labels.c.run == bindparam("run")))
IN_LINE = Statement(
    lambda _: sa.select(func.pg_advisory_xact_lock(literal_column(str(LINE)), func.hashtext(bindparam("owner"))))
)


def _active_of(_dialect: str) -> sa.Select[Any]:
    active: list[sa.ColumnElement[str]] = [literal_column(f"'{status}'") for status in sorted(ACTIVE)]
    some = sa.select(runs.c.key).where(runs.c.owner == bindparam("owner"), runs.c.status.in_(active))
    return sa.select(func.count()).select_from(some.limit(bindparam("most")).subquery())


ACTIVE_OF = Statement(_active_of)
SPEC = Statement(
    lambda _: (
        sa.select(specs.c.spec)
        .where(specs.c.run == bindparam("run"))
        .order_by(specs.c.generation.desc())
        .limit(literal_column("1"))
    )
)


def _insert_labels(dialect: str) -> Any:
    new = incoming(dialect, labels.c.run, labels.c.key, labels.c.value)
    source = sa.select(new.c.run, new.c.key, new.c.value, runs.c.status).join(runs, runs.c.key == new.c.run)
    return insert(labels, dialect).from_select(["run", "key", "value", "status"], source)


def _move_labels(dialect: str) -> sa.Update:
    moved = incoming(dialect, labels.c.run, labels.c.status)
    return sa.update(labels).values(status=moved.c.status).where(labels.c.run == moved.c.run)


def _hit(dialect: str) -> sa.Select[Any]:
    """Locks the rows, in the order of their keys, whose version is the expected one: `key:events,…`."""
    wanted = incoming(dialect, runs.c.key, runs.c.version)
    locked = (
        sa.select(runs.c.key, runs.c.events)
        .join(wanted, and_(runs.c.key == wanted.c.key, runs.c.version == wanted.c.version))
        .order_by(runs.c.key)
        .with_for_update(of=runs)
        .subquery()
    )
    line = sa.cast(locked.c.key, sa.Text).concat(":").concat(sa.cast(locked.c.events, sa.Text))
    return sa.select(func.aggregate_strings(line, ","))


def _update(dialect: str) -> sa.Update:
    new = incoming(dialect, *_CHANGED)
    copied = {column.key: new.c[column.key] for column in _COPIED}
    return (
        sa.update(runs)
        .values(version=runs.c.version + 1, events=runs.c.events + new.c.events, **copied)
        .where(runs.c.key == new.c.key)
    )


INSERT_LABELS = Statement(_insert_labels)
MOVE_LABELS = Statement(_move_labels)
HIT = Statement(_hit)
UPDATE = Statement(_update)


def find(session: Session, run_id: str) -> Run | None:
    """Raises RowUnreadable."""
    try:
        stored = rows.unglue(session.run(FIND, {"run_id": run_id}).scalar())
    except rows.UNREADABLE as error:
        rows.hide("runs", run_id, error)
        raise RowUnreadable(
            f"what the database holds of {run_id} cannot be read; nothing of it is touched. A backup has it as it was: "
            "docs/operations.md"
        ) from error
    return stored[0] if stored else None


def load(session: Session, keys: Sequence[int]) -> list[Run]:
    """The runs of these keys, in no particular order, without those that cannot be read."""
    loaded: list[Run] = []
    for chunk in in_chunks(keys, LOAD_PAGE):
        loaded += _load(session, chunk)
    return loaded


def _load(session: Session, keys: Sequence[int]) -> list[Run]:
    """One text holds them all, so a damaged row is found by halving."""
    text = session.run(LOAD, {"rows": json.dumps([[key] for key in keys])}).scalar()
    try:
        return rows.unglue(text)
    except rows.UNREADABLE as error:
        if len(keys) == 1:
            rows.hide("runs", keys[0], error)
            return []
    half = len(keys) // 2
    return _load(session, keys[:half]) + _load(session, keys[half:])


def active(session: Session, cell: str, seen: Mapping[int, int]) -> tuple[list[Run], set[int]]:
    """Runs of the cell that are not settled: (those whose version is not the known one, the keys of all)."""
    text = session.run(VERSIONS, {"cell": cell}).scalar() or ""
    versions = [tuple(map(int, pair.split(":"))) for pair in text.split(",")] if text else []
    stale = [key for key, version in versions if seen.get(key) != version]
    return load(session, stale), {key for key, _ in versions}


def active_of(session: Session, owner: str, most: int) -> int:
    """Counted up to `most`, from the index alone. SQLite has one writer; on Postgres those of one owner stand in line
    until the one before has committed, and what is counted then holds its runs."""
    if session.dialect != "sqlite":
        session.run(IN_LINE, {"owner": owner})
    return int(session.run(ACTIVE_OF, {"owner": owner, "most": most}).scalar())


def put_born(session: Session, run: Run) -> None:
    """What a run that was taken over brings with it."""
    born = Change(replace(run, try_=None, attempt=None, pulse=None), run)
    AttemptRows((born,)).write(session, {run.key})
    beats.PulseRows((born,)).write(session, {run.key})


def put_spec(session: Session, run: Run, spec: Mapping[str, Any], run_labels: Mapping[str, str]) -> None:
    session.run(INSERT_SPEC, {"run": run.key, "generation": run.generation, "spec": dumps(spec)})
    session.run(DELETE_LABELS, {"run": run.key})
    session.run(INSERT_LABELS, rows=[[run.key, name, value] for name, value in run_labels.items()])


def labels_of(session: Session, key: int) -> dict[str, str]:
    return dict(session.run(LABELS, {"run": key}))


def spec_of(session: Session, key: int) -> dict[str, Any]:
    """The newest spec. KeyError when there is no such run."""
    text = session.run(SPEC, {"run": key}).scalar()
    if text is None:
        raise KeyError(key)
    spec: dict[str, Any] = json.loads(text)
    return spec


class Batch:
    """Changes of different runs, taken apart before the write lock is asked for; `write` only sends them."""

    def __init__(self, changes: Sequence[Change]) -> None:
        self.changes = {change.before.key: change for change in changes}
        self._rows = {
            key: [
                key,
                len(change.events),
                *rows.copies(change.after).values(),
                dumps(to_plain(change.after, rows.ELSEWHERE)),
            ]
            for key, change in self.changes.items()
        }
        self._moved = {
            key: [key, str(change.after.status)]
            for key, change in self.changes.items()
            if change.after.status != change.before.status
        }
        self._attempts = AttemptRows(self.changes.values())
        self._pulses = beats.PulseRows(self.changes.values())

    def write(self, session: Session) -> dict[int, int]:
        """key -> how many events the run had before, of the runs that were hit; the others are not touched."""
        wanted = [[key, change.before.version] for key, change in self.changes.items()]
        text = session.run(HIT, {"rows": json.dumps(wanted)}).scalar() or ""
        pairs = [pair.split(":") for pair in text.split(",")] if text else []
        hit = {int(key): int(count) for key, count in pairs}
        session.run(UPDATE, rows=[self._rows[key] for key in hit])
        session.run(MOVE_LABELS, rows=[row for key, row in self._moved.items() if key in hit])
        self._attempts.write(session, hit)
        self._pulses.write(session, hit)
        return hit
