"""The store of the port, put together: which transaction each promise runs in, and how long it may hold the lock.

One write transaction as the use cases see it (ports/store.Transaction).
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, TypeVar

from sqlalchemy import bindparam

from supervisor.domain.attempt import Attempt, Try
from supervisor.domain.events import Event
from supervisor.domain.machines import OfferKey, ZoneRecord
from supervisor.domain.run import Run
from supervisor.ports.history import StoredEvent
from supervisor.ports.store import (
    Backlog,
    Change,
    DuplicateRun,
    KeptResponse,
    Lease,
    OutboxItem,
    PushedBeat,
    RunFilter,
    RunPage,
    Sample,
    Step,
)
from supervisor.storage.engine import retention, schema
from supervisor.storage.engine.codec import dumps, to_plain
from supervisor.storage.engine.database import Database
from supervisor.storage.engine.statements import Session, Statement, insert
from supervisor.storage.engine.tables import meta
from supervisor.storage.rows import access, cells, deliveries, events, pages, rows, runs
from supervisor.storage.rows import beats as beat_rows
from supervisor.storage.rows.access import SqlTokens
from supervisor.storage.rows.cells import SqlPatrols
from supervisor.storage.rows.deliveries import SqlDeliveries
from supervisor.storage.rows.endpoints import SqlEndpoints
from supervisor.storage.rows.events import SqlHistory


def apply_batch(session: Session, batch: runs.Batch, channels: Sequence[str], now: float) -> dict[int, Run]:
    """The runs that were hit, with their new version; of the others nothing is written, their events neither."""
    hit = batch.write(session)
    changes = {key: batch.changes[key] for key in hit}
    new_events = [events.next_events(change.after, hit[key], change.events) for key, change in changes.items()]
    events.add(session, new_events, channels, now)
    return {key: replace(change.after, version=change.before.version + 1) for key, change in changes.items()}


class SqlTransaction:
    """Lives as long as the block of `SqlStore.begin`."""

    def __init__(self, session: Session, channels: Sequence[str], now: float) -> None:
        self._session, self._channels, self._now = session, channels, now

    def find(self, run_id: str) -> Run | None:
        return runs.find(self._session, run_id)

    def spec(self, key: int) -> dict[str, Any]:
        return runs.spec_of(self._session, key)

    def active_of(self, owner: str, most: int) -> int:
        return runs.active_of(self._session, owner, most)

    def insert(self, run: Run, spec: Mapping[str, Any], labels: Mapping[str, str], new: Sequence[Event]) -> Run:
        session, doc = self._session, dumps(to_plain(run, rows.ELSEWHERE))
        values = {"run_id": run.run_id, "owner": run.owner, "cell": run.cell, "created_at": run.created_at}
        values |= {**rows.copies(run), "doc": doc, "version": 1, "events": len(new)}
        key = session.run(runs.INSERT, values).scalar()
        if key is None:
            raise DuplicateRun(run.run_id)
        session.run(runs.INSERT_SPEC, {"run": key, "generation": run.generation, "spec": dumps(spec)})
        session.run(runs.INSERT_LABELS, rows=[[key, name, value] for name, value in labels.items()])
        stored = replace(run, key=key, version=1)
        if run.try_ is not None or run.attempt is not None or run.pulse is not None:
            runs.put_born(session, stored)
        events.add(session, [events.next_events(stored, 0, new)], self._channels, self._now)
        return stored

    def put_spec(self, run: Run, spec: Mapping[str, Any], labels: Mapping[str, str]) -> None:
        runs.put_spec(self._session, run, spec, labels)

    def apply(self, change: Change, now: float) -> Run | None:
        hit = apply_batch(self._session, runs.Batch([change]), self._channels, now)
        return hit.get(change.before.key)

    def take_key(self, scope: str, key: str, fingerprint: str, now: float) -> KeptResponse | None:
        return access.take_key(self._session, scope, key, fingerprint, now)

    def keep_response(self, scope: str, key: str, answer: KeptResponse) -> None:
        access.keep_response(self._session, scope, key, answer)


Item = TypeVar("Item")
Result = TypeVar("Result")
Write = Callable[[Session], Result]
PART_AIM_S = 0.006  # how long a part of a long write should hold the lock, before its commit
PART_FIRST, PART_MIN, PART_MAX = 100, 20, 1000


def _checked(dialect: str) -> Any:
    """Another value each time: SQLite writes nothing where a row stays what it was, and a full disk goes unseen."""
    statement = insert(meta, dialect).values(name="checked", value=bindparam("mark"))
    return statement.on_conflict_do_update(index_elements=["name"], set_={"value": statement.excluded.value})


CHECKED = Statement(_checked)


def _allowed() -> None:
    """A new database may be made."""


def open_store(
    url: str, migrate: bool, channels: Sequence[str] = ("log",), before_creating: Callable[[], None] = _allowed
) -> SqlStore:
    """`url` as SQLAlchemy writes it. `migrate`: a new, empty database is brought up, unless `before_creating` raises;
    one that has a schema is never changed here. Events go to an outbox row per channel. Raises SchemaMismatch,
    SettingsRefused, StoreDown."""
    database = Database(url)
    try:
        supervisor_id, secret = schema.bring_up(database, migrate, before_creating)
    except BaseException:
        database.close()
        raise
    return SqlStore(database, supervisor_id, secret, tuple(channels))


class SqlStore:
    """Implements ports/store.Store. Safe to use from any thread."""

    def __init__(self, database: Database, supervisor_id: str, secret: str, channels: tuple[str, ...]) -> None:
        self.database = database
        self.history = SqlHistory(database)
        self.supervisor_id = supervisor_id
        self.secret = secret
        self._channels = channels
        self.tokens = SqlTokens(database, channels)
        self.endpoints = SqlEndpoints(database, channels)
        self.deliveries = SqlDeliveries(database, channels)
        self.patrols = SqlPatrols(database, channels)

    def close(self) -> None:
        self.database.close()

    def written_elsewhere(self) -> None:
        """Another process has written events; whether one of them is announced is not said."""
        self.history.written_elsewhere()
        self.deliveries.written_elsewhere()

    def begin(self, now: float) -> AbstractContextManager[SqlTransaction]:
        return self.database.writing_as(lambda session: SqlTransaction(session, self._channels, now))

    # --- the loop -------------------------------------------------------------------------------------------------

    def active(self, cell: str, seen: Mapping[int, int]) -> tuple[list[Run], set[int]]:
        with self.database.reading() as session:
            return runs.active(session, cell, seen)

    def apply_all(self, changes: Sequence[Change], now: float, lease: Lease) -> dict[int, Run]:
        def prepare(part: Sequence[Change]) -> Write[dict[int, Run]]:
            batch = runs.Batch(part)
            return lambda session: apply_batch(session, batch, self._channels, now)

        hit: dict[int, Run] = {}
        for part in self._in_parts(changes, prepare, lease):
            hit.update(part)
        return hit

    def set_nonce_hash(self, key: int, launch_id: str, nonce_hash: str, lease: Lease) -> bool:
        with self.database.writing() as session:
            return cells.hold_lease(session, lease) and runs.set_nonce_hash(session, key, launch_id, nonce_hash)

    def nonce_hash(self, run_id: str, launch_id: str) -> str | None:
        with self.database.reading() as session:
            return runs.nonce_hash_of(session, run_id, launch_id)

    def write_pulses(self, samples: Sequence[Sample], lease: Lease) -> None:
        def prepare(part: Sequence[Sample]) -> Write[None]:
            return beat_rows.SampleRows(part).write

        for _ in self._in_parts(samples, prepare, lease):
            pass

    def put_beats(self, beats: Sequence[PushedBeat]) -> dict[str, str]:
        rows = beat_rows.BeatRows(beats)
        with self.database.writing() as session:
            return rows.write(session)

    def take_beats(self, lease: Lease) -> list[PushedBeat]:
        with self.database.writing() as session:
            return beat_rows.take_pushed(session, lease)

    def zones(self, cell: str) -> dict[OfferKey, ZoneRecord]:
        with self.database.reading() as session:
            return cells.zones_of(session, cell)

    def machines(self, cell: str, owner: str | None = None) -> dict[OfferKey, int]:
        with self.database.reading() as session:
            return cells.machines(session, cell, owner)

    def put_zone(self, cell: str, key: OfferKey, record: ZoneRecord | None) -> None:
        with self.database.writing() as session:
            cells.put_zone(session, cell, key, record)

    def take_lease(self, name: str, owner: str, ttl_s: float, monotonic: float, alone: bool = False) -> Lease | None:
        with self.database.writing() as session:
            return cells.take_lease(session, name, owner, ttl_s, monotonic, alone)

    def drop_lease(self, lease: Lease) -> None:
        with self.database.writing() as session:
            cells.drop_lease(session, lease)

    def take_over(self, theirs: Lease, ours: Lease, most: int) -> int:
        with self.database.writing() as session:
            if not (cells.hold_lease(session, theirs) and cells.hold_lease(session, ours)):
                return 0
            return cells.take_over(session, theirs.name, ours.name, most)

    def leaderless(self) -> dict[str, int]:
        with self.database.reading() as session:
            return cells.leaderless(session)

    def lease_names(self) -> list[str]:
        with self.database.reading() as session:
            return cells.lease_names(session)

    def due_outbox(self, now: float, limit: int) -> list[OutboxItem]:
        with self.database.reading() as session:
            items, unreadable = events.due(session, now, limit)
        if not unreadable:
            return items
        with self.database.writing() as session:
            events.put_aside(session, unreadable, now)
            return events.due(session, now, limit)[0]

    def settle_outbox(self, item_id: int, delivered: bool, next_at: float | None, detail: str, now: float) -> None:
        with self.database.writing() as session:
            events.settle(session, item_id, delivered, next_at, detail, now)

    def prune(self, now: float, limit: int) -> int:
        return retention.prune(self.database, now, limit)

    def add_events(self, key: int | None, new: Sequence[Event], now: float) -> None:
        with self.database.writing() as session:
            if key is None:
                events.add_own(session, new, self._channels, now)
            else:
                events.add_to_run(session, key, new, self._channels, now)

    # --- readers --------------------------------------------------------------------------------------------------

    def find(self, run_id: str) -> Run | None:
        with self.database.reading() as session:
            return runs.find(session, run_id)

    def labels(self, key: int) -> dict[str, str]:
        with self.database.reading() as session:
            return runs.labels_of(session, key)

    def spec(self, key: int) -> dict[str, Any]:
        with self.database.reading() as session:
            return runs.spec_of(session, key)

    def page(self, where: RunFilter, before_key: int | None, limit: int) -> RunPage:
        with self.database.reading() as session:
            return pages.page(session, where, before_key, limit)

    def attempts(self, key: int) -> list[Attempt]:
        with self.database.reading() as session:
            return runs.attempts_of(session, key)

    def tries(self, key: int) -> list[Try]:
        with self.database.reading() as session:
            return runs.tries_of_run(session, key)

    def events(
        self,
        run_id: str | None,
        after_id: int,
        limit: int,
        newest_first: bool = False,
        *,
        owner: str | None = None,
        actor: str | None = None,
        before_id: int | None = None,
    ) -> list[StoredEvent]:
        with self.database.reading() as session:
            return events.page(session, run_id, after_id, limit, newest_first, owner, actor, before_id)

    def kept_response(self, scope: str, key: str) -> KeptResponse | None:
        with self.database.reading() as session:
            return access.kept_response(session, scope, key)

    def samples(self, key: int, since: float, limit: int) -> list[Sample]:
        with self.database.reading() as session:
            return beat_rows.of_run(session, key, since, limit)

    def lines(self, keys: Sequence[int]) -> dict[int, list[Step]]:
        with self.database.reading() as session:
            return beat_rows.of_runs(session, keys)

    def backlog(self) -> Backlog:
        with self.database.reading() as session:
            return deliveries.read_backlog(session, self.database)

    def check(self) -> None:
        with self.database.writing() as session:
            schema.check_version(session)
            session.run(CHECKED, {"mark": secrets.token_hex(8)})

    def _in_parts(
        self, items: Sequence[Item], prepare: Callable[[Sequence[Item]], Write[Result]], lease: Lease
    ) -> Iterator[Result]:
        """Write many items under the lease, each part in a transaction of its own and prepared before it; the size of
        a part follows the time that the last one took. Ends early when the lease is lost."""
        start, size = 0, PART_FIRST
        while start < len(items):
            write = prepare(items[start : start + size])
            with self.database.writing() as session:
                since = time.perf_counter()
                if not cells.hold_lease(session, lease):
                    return
                result = write(session)
                took_s = time.perf_counter() - since
            yield result
            start += size
            size = min(max(int(size * PART_AIM_S / took_s), PART_MIN), 2 * size, PART_MAX)
