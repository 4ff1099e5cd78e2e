"""Runs with their specs, labels, attempts and tries: reads, inserts, and changes under the guard of the row version.

The row of an attempt or a try is written again while it changes. The row of a try also has the hash that authenticates
its beats.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import sqlalchemy as sa
from sqlalchemy import and_, bindparam, func, literal_column

from supervisor.domain.attempt import Attempt, Try
from supervisor.domain.run import Run
from supervisor.domain.status import ACTIVE, Status
from supervisor.ports.store import Change, RowUnreadable
from supervisor.storage.engine.codec import dumps, to_plain
from supervisor.storage.engine.statements import (
    Session,
    Statement,
    in_chunks,
    incoming,
    insert,
    insert_incoming,
    insert_one,
    owner_lock,
)
from supervisor.storage.engine.tables import attempts, labels, runs, specs, tries
from supervisor.storage.rows import beats, rows

# The group of a run, as a label that no user can set: lists by group are read in the index of labels.
GROUP = "@group"
LOAD_PAGE = 500  # runs in one text: decoding it holds the interpreter lock for a few milliseconds
_COPIED = (
    runs.c.generation, runs.c.status, runs.c.zone, runs.c.ended_at, runs.c.settled, runs.c.usd_per_h_micro,
    runs.c.attempt, runs.c.try_attempt, runs.c.try_number, runs.c.doc,
)  # fmt: skip
_STATUS_WORDS = frozenset(map(str, Status))
_CHANGED = (runs.c.key, runs.c.events, *_COPIED)
_UNSETTLED = and_(runs.c.cell == bindparam("cell"), runs.c.settled == literal_column("0"))


def _upsert_attempts(dialect: str) -> Any:
    statement = insert_incoming(attempts, dialect, tuple(attempts.c))
    return statement.on_conflict_do_update(index_elements=["run", "number"], set_={"doc": statement.excluded.doc})


def _upsert_tries(dialect: str) -> Any:
    statement = insert_incoming(tries, dialect, tuple(tries.c))
    new = statement.excluded
    # A run that was read before its try got its nonce has no hash, and must not delete the stored one.
    kept = func.coalesce(func.nullif(new.nonce_hash, ""), tries.c.nonce_hash)
    return statement.on_conflict_do_update(
        index_elements=["run", "attempt", "number"], set_={"nonce_hash": kept, "open": new.open, "doc": new.doc}
    )


def _keys_and_values(keys: Any, values: Any) -> Any:
    """One text: `key:value,…`."""
    return func.aggregate_strings(sa.cast(keys, sa.Text).concat(":").concat(sa.cast(values, sa.Text)), ",")


def _pairs(text: str | None) -> tuple[list[int], list[int]]:
    """(the keys, the value of each). Each tick reads them of all active runs."""
    numbers = json.loads(f"[{text.replace(':', ',')}]") if text else []
    return numbers[::2], numbers[1::2]


def _active_of() -> sa.Select[Any]:
    active: list[sa.ColumnElement[str]] = [literal_column(f"'{status}'") for status in sorted(ACTIVE)]
    some = sa.select(runs.c.key).where(runs.c.owner == bindparam("owner"), runs.c.status.in_(active))
    return sa.select(func.count()).select_from(some.limit(bindparam("most")).subquery())


def _insert_run(dialect: str) -> Any:
    return insert_one(runs, dialect, "key").on_conflict_do_nothing(index_elements=["run_id"]).returning(runs.c.key)


def _upsert_spec(dialect: str) -> Any:
    statement = insert_one(specs, dialect)
    return statement.on_conflict_do_update(index_elements=["run", "generation"], set_={"spec": statement.excluded.spec})


def _insert_labels(dialect: str) -> Any:
    new = incoming(dialect, labels.c.run, labels.c.key, labels.c.value)
    source = sa.select(new.c.run, new.c.key, new.c.value, runs.c.status).join(runs, runs.c.key == new.c.run)
    return insert(labels, dialect).from_select(["run", "key", "value", "status"], source)


def _move_labels(dialect: str) -> sa.Update:
    moved = incoming(dialect, labels.c.run, labels.c.status)
    return sa.update(labels).values(status=moved.c.status).where(labels.c.run == moved.c.run)


def _hit(dialect: str) -> sa.Select[Any]:
    """Locks the rows with the expected version, in the order of their keys: `key:events,…`."""
    wanted = incoming(dialect, runs.c.key, runs.c.version)
    locked = (
        sa.select(runs.c.key, runs.c.events)
        .join(wanted, and_(runs.c.key == wanted.c.key, runs.c.version == wanted.c.version))
        .order_by(runs.c.key)
        .with_for_update(of=runs)
        .subquery()
    )
    return sa.select(_keys_and_values(locked.c.key, locked.c.events))


def _update(dialect: str) -> sa.Update:
    new = incoming(dialect, *_CHANGED)
    copied = {column.key: new.c[column.key] for column in _COPIED}
    return (
        sa.update(runs)
        .values(version=runs.c.version + 1, events=runs.c.events + new.c.events, **copied)
        .where(runs.c.key == new.c.key)
    )


FIND = Statement(rows.glued(sa.select(runs.c.key).where(runs.c.run_id == bindparam("run_id")).subquery()))
LOAD = Statement(lambda dialect: rows.glued(sa.select(incoming(dialect, runs.c.key).c.key).subquery()))
VERSIONS = Statement(sa.select(_keys_and_values(runs.c.key, runs.c.version)).where(_UNSETTLED))
INSERT, UPDATE, HIT = Statement(_insert_run), Statement(_update), Statement(_hit)
UPSERT_SPEC = Statement(_upsert_spec)
SPEC = Statement(
    sa.select(specs.c.spec)
    .where(specs.c.run == bindparam("run"))
    .order_by(specs.c.generation.desc())
    .limit(literal_column("1"))
)
STATUSES = Statement(
    lambda dialect: sa.select(_keys_and_values(runs.c.run_id, runs.c.status)).join(
        wanted := incoming(dialect, runs.c.run_id), wanted.c.run_id == runs.c.run_id
    )
)
IS_SET_BY_USER = labels.c.key != literal_column(f"'{GROUP}'")
LABELS = Statement(sa.select(labels.c.key, labels.c.value).where(labels.c.run == bindparam("run"), IS_SET_BY_USER))
INSERT_LABELS, MOVE_LABELS = Statement(_insert_labels), Statement(_move_labels)
DELETE_LABELS = Statement(sa.delete(labels).where(labels.c.run == bindparam("run")))
ACTIVE_OF = Statement(_active_of())
LOCK_OWNER = owner_lock(0x52554E53)  # whose active runs are counted
UPSERT_ATTEMPTS, UPSERT_TRIES = Statement(_upsert_attempts), Statement(_upsert_tries)
ATTEMPTS = Statement(
    sa.select(attempts.c.number, attempts.c.doc).where(attempts.c.run == bindparam("run")).order_by(attempts.c.number)
)
ATTEMPTS_OF_RUNS = Statement(
    lambda dialect: sa.select(attempts.c.run, attempts.c.doc).join(
        wanted := incoming(dialect, runs.c.key), wanted.c.key == attempts.c.run
    )
)
TRIES = Statement(
    sa.select(tries.c.launch_id, tries.c.doc, tries.c.nonce_hash)
    .where(tries.c.run == bindparam("run"))
    .order_by(tries.c.attempt, tries.c.number)
)
_CURRENT = and_(runs.c.key == tries.c.run, runs.c.try_attempt == tries.c.attempt, runs.c.try_number == tries.c.number)
SET_NONCE = Statement(
    sa.update(tries)
    .values(nonce_hash=bindparam("nonce_hash"))
    .where(
        tries.c.run == bindparam("run"),
        tries.c.launch_id == bindparam("launch_id"),
        tries.c.open == literal_column("1"),
        sa.exists().where(_CURRENT),
    )
)
NONCE = Statement(
    sa.select(tries.c.nonce_hash)
    .join(runs, runs.c.key == tries.c.run)
    .where(runs.c.run_id == bindparam("run_id"), tries.c.launch_id == bindparam("launch_id"))
)


def find(session: Session, run_id: str) -> Run | None:
    """Raises RowUnreadable."""
    try:
        stored = rows.unglue(session.run(FIND, {"run_id": run_id}).scalar())
    except rows.UNREADABLE as error:
        rows.hide("runs", run_id, error)
        raise RowUnreadable(
            f"the row of {run_id} in the database cannot be read; nothing was changed. A backup may have it: "
            "docs/operations.md"
        ) from error
    return stored[0] if stored else None


def load(session: Session, keys: Sequence[int], unglue: Callable[[str | None], list[Run]] = rows.unglue) -> list[Run]:
    """The readable runs of these keys, in any order."""
    loaded: list[Run] = []
    for chunk in in_chunks(keys, LOAD_PAGE):
        loaded += _load(session, chunk, unglue)
    return loaded


def _load(session: Session, keys: Sequence[int], unglue: Callable[[str | None], list[Run]]) -> list[Run]:
    """They are in one text, so bisection finds a damaged row."""
    text = session.run(LOAD, {"rows": json.dumps([[key] for key in keys])}).scalar()
    try:
        return unglue(text)
    except rows.UNREADABLE as error:
        if len(keys) == 1:
            rows.hide("runs", keys[0], error)
            return []
    half = len(keys) // 2
    return _load(session, keys[:half], unglue) + _load(session, keys[half:], unglue)


def active(session: Session, cell: str, seen: Mapping[int, int]) -> tuple[list[Run], set[int]]:
    """Runs of the cell that are not settled: (those whose version differs from `seen`, the keys of all)."""
    keys, versions = _pairs(session.run(VERSIONS, {"cell": cell}).scalar())
    stale = [key for key, version in zip(keys, versions, strict=True) if seen.get(key) != version]
    return load(session, stale), set(keys)


def active_of(session: Session, owner: str, most: int) -> int:
    """Counted up to `most`, from the index alone. SQLite has one writer; on Postgres transactions of one owner wait for
    the commit of the one before, so the count includes its runs."""
    if session.dialect != "sqlite":
        session.run(LOCK_OWNER, {"owner": owner})
    return int(session.run(ACTIVE_OF, {"owner": owner, "most": most}).scalar())


def put_attempt(session: Session, run: Run) -> None:
    """The attempt, try and pulse of a new run, which an imported one may have."""
    change = Change(replace(run, try_=None, attempt=None, pulse=None), run)
    AttemptRows((change,)).write(session, {run.key})
    beats.PulseRows((change,)).write(session, {run.key})


def put_spec(session: Session, run: Run, spec: Mapping[str, Any], run_labels: Mapping[str, str]) -> None:
    session.run(UPSERT_SPEC, {"run": run.key, "generation": run.generation, "spec": dumps(spec)})
    session.run(DELETE_LABELS, {"run": run.key})
    insert_labels(session, run, run_labels)


def insert_labels(session: Session, run: Run, run_labels: Mapping[str, str]) -> None:
    """The labels of a run that has none, and its group."""
    named = {**run_labels, GROUP: run.policy.group} if run.policy.group else run_labels
    session.run(INSERT_LABELS, rows=[[run.key, name, value] for name, value in named.items()])


def statuses_of(session: Session, run_ids: Collection[str]) -> dict[str, Status]:
    """A status of a newer version is left out, as a run that does not exist is."""
    text = session.run(STATUSES, {"rows": json.dumps([[name] for name in run_ids])}).scalar()
    pairs = (pair.split(":") for pair in text.split(",")) if text else ()
    return {name: Status(word) for name, word in pairs if word in _STATUS_WORDS}


def labels_of(session: Session, key: int) -> dict[str, str]:
    return dict(session.run(LABELS, {"run": key}))


def spec_of(session: Session, key: int) -> dict[str, Any]:
    """The newest spec. Raises KeyError when there is no such run."""
    text = session.run(SPEC, {"run": key}).scalar()
    if text is None:
        raise KeyError(key)
    spec: dict[str, Any] = json.loads(text)
    return spec


def attempts_of(session: Session, key: int) -> list[Attempt]:
    stored = session.run(ATTEMPTS, {"run": key})
    return rows.readable(stored, lambda row: rows.read_attempt(row[1]), f"attempts of run {key}")


def attempts_of_runs(session: Session, keys: Collection[int]) -> dict[int, list[Attempt]]:
    """In no order. A run without attempts is left out."""
    stored = session.run(ATTEMPTS_OF_RUNS, {"rows": json.dumps([[key] for key in keys])})
    attempts_of_key: dict[int, list[Attempt]] = {}
    for key, attempt in rows.readable(stored, lambda row: (row[0], rows.read_attempt(row[1])), "attempts"):
        attempts_of_key.setdefault(key, []).append(attempt)
    return attempts_of_key


def tries_of(session: Session, key: int) -> list[Try]:
    stored = session.run(TRIES, {"run": key})
    return rows.readable(stored, lambda row: rows.read_try(*row[1:]), f"tries of run {key}")


def set_nonce_hash(session: Session, key: int, launch_id: str, nonce_hash: str) -> bool:
    """False = this is not the run's open try."""
    params = {"run": key, "launch_id": launch_id, "nonce_hash": _checked(nonce_hash)}
    return session.run(SET_NONCE, params).rowcount == 1


def nonce_hash_of(session: Session, run_id: str, launch_id: str) -> str | None:
    nonce_hash: str | None = session.run(NONCE, {"run_id": run_id, "launch_id": launch_id}).scalar()
    return nonce_hash


class AttemptRows:
    """The attempts and tries that some changes write."""

    def __init__(self, changes: Iterable[Change]) -> None:
        self._attempts: list[list[Any]] = []
        self._tries: list[list[Any]] = []
        for change in changes:
            key, attempt = change.before.key, change.after.attempt
            current = () if attempt is None or attempt == change.before.attempt else (attempt,)
            self._attempts += [[key, item.number, rows.attempt_doc(item)] for item in (*change.parted, *current)]
            before = (change.before.try_, change.before.rival)
            calls = (change.after.rival, change.after.try_)
            self._tries += [_try_row(key, call) for call in calls if call is not None and call not in before]

    def write(self, session: Session, hit: Collection[int]) -> None:
        session.run(UPSERT_ATTEMPTS, rows=[row for row in self._attempts if row[0] in hit])
        session.run(UPSERT_TRIES, rows=[row for row in self._tries if row[0] in hit])


class Batch:
    """Changes of different runs, converted to rows before the write lock is taken; `write` only sends them."""

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
        self._attempts = AttemptRows(changes)
        self._pulses = beats.PulseRows(changes)

    def write(self, session: Session) -> dict[int, int]:
        """key -> the number of events before, for the runs whose version matched; the others are not changed."""
        expected = [[key, change.before.version] for key, change in self.changes.items()]
        hit = dict(zip(*_pairs(session.run(HIT, {"rows": json.dumps(expected)}).scalar()), strict=True))
        session.run(UPDATE, rows=[self._rows[key] for key in hit])
        session.run(MOVE_LABELS, rows=[row for key, row in self._moved.items() if key in hit])
        self._attempts.write(session, hit)
        self._pulses.write(session, hit)
        return hit


def _try_row(key: int, try_: Try) -> list[Any]:
    is_open = int(try_.ended_at is None)
    nonce_hash = _checked(try_.nonce_hash)
    return [key, try_.attempt, try_.number, try_.launch_id, nonce_hash, is_open, rows.try_doc(try_)]


def _checked(nonce_hash: str) -> str:
    """The database puts it between quotes in bulk reads: a quote inside would break the read."""
    if nonce_hash and not nonce_hash.isalnum():
        raise ValueError("the hash of a nonce has letters and digits only")
    return nonce_hash
