"""The store on SQLite or Postgres: implements ports/store.Store with the functions of rows/.

It decides which calls share a transaction, and how long one write may hold the lock: many rows are written in parts.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, TypeVar

from supervisor.domain.attempt import Attempt, Try
from supervisor.domain.events import Event
from supervisor.domain.machines import Call, OfferKey, ZoneRecord
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.ports.history import EventFilter, StoredEvent
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
from supervisor.storage.engine.statements import Session, Statement, insert_one
from supervisor.storage.engine.tables import meta
from supervisor.storage.rows import access, beats, cells, deliveries, events, history, pages, rows, runs
from supervisor.storage.rows.access import SqlTokens
from supervisor.storage.rows.bases import SqlBases
from supervisor.storage.rows.deliveries import SqlDeliveries
from supervisor.storage.rows.endpoints import SqlEndpoints
from supervisor.storage.rows.history import SqlHistory, SqlPatrols
from supervisor.storage.rows.incidents import SqlIncidents

Item = TypeVar("Item")
Result = TypeVar("Result")
Write = Callable[[Session], Result]
PART_AIM_S = 0.006  # the aim for how long a part of a long write holds the lock, before its commit
PART_FIRST, PART_MIN, PART_MAX = 100, 20, 1000


def _checked(dialect: str) -> Any:
    """A new value each time: SQLite writes nothing for an unchanged row, so a full disk would not show."""
    statement = insert_one(meta, dialect)
    return statement.on_conflict_do_update(index_elements=["name"], set_={"value": statement.excluded.value})


CHECKED = Statement(_checked)


def _allowed() -> None:
    """A new database may be created."""


def open_store(
    url: str, migrate: bool, channels: Sequence[str] = ("log",), before_creating: Callable[[], None] = _allowed
) -> SqlStore:
    """`url`: of SQLAlchemy. `migrate`: a new, empty database gets its tables, unless `before_creating` raises; an
    existing schema is never changed here. `channels`: of the outbox. Raises SchemaMismatch, SettingsRefused,
    StoreDown."""
    database = Database(url, channels)
    try:
        supervisor_id, secret = schema.bring_up(database, migrate, before_creating)
    except BaseException:
        database.close()
        raise
    return SqlStore(database, supervisor_id, secret)


class SqlTransaction:
    """Implements ports/store.Transaction, within the block of `SqlStore.begin`."""

    def __init__(self, session: Session, now: float) -> None:
        self._session, self._now = session, now

    def find(self, run_id: str) -> Run | None:
        return runs.find(self._session, run_id)

    def spec(self, key: int) -> dict[str, Any]:
        return runs.spec_of(self._session, key)

    def active_of(self, owner: str, most: int) -> int:
        return runs.active_of(self._session, owner, most)

    def payer(self, run: Run) -> str:
        return access.payer(self._session, run)

    def hold_tokens(self, token_ids: Collection[str]) -> None:
        access.hold_tokens(self._session, token_ids)

    def counted_micro(self, token_id: str, now: float) -> int:
        return access.counted(self._session, token_id, now)

    def allow(self, run: Run, token_id: str, most_micro: int, now: float) -> None:
        access.allow(self._session, run, token_id, most_micro, now)

    def allowance_micro(self, run: Run) -> int:
        return access.allowance_micro(self._session, run) or 0

    def close_allowance(self, run: Run, now: float) -> None:
        access.close_allowance(self._session, run, now)

    def insert(self, run: Run, spec: Mapping[str, Any], labels: Mapping[str, str], new: Sequence[Event]) -> Run:
        session, doc = self._session, dumps(to_plain(run, rows.ELSEWHERE))
        values = {"run_id": run.run_id, "owner": run.owner, "cell": run.cell, "created_at": run.created_at}
        values |= {**rows.copies(run), "doc": doc, "version": 1, "events": len(new)}
        key = session.run(runs.INSERT, values).scalar()
        if key is None:
            raise DuplicateRun(run.run_id)
        session.run(runs.UPSERT_SPEC, {"run": key, "generation": run.generation, "spec": dumps(spec)})
        stored = replace(run, key=key, version=1)
        runs.insert_labels(session, stored, labels)
        if run.try_ is not None or run.attempt is not None or run.pulse is not None:
            runs.put_attempt(session, stored)
        events.add(session, [events.next_events(stored, 0, new)], self._now)
        return stored

    def put_spec(self, run: Run, spec: Mapping[str, Any], labels: Mapping[str, str]) -> None:
        runs.put_spec(self._session, run, spec, labels)

    def apply(self, change: Change, now: float) -> Run | None:
        return _apply(self._session, runs.Batch([change]), now).get(change.before.key)

    def take_key(self, scope: str, key: str, fingerprint: str, now: float) -> KeptResponse | None:
        return access.take_key(self._session, scope, key, fingerprint, now)

    def keep_response(self, scope: str, key: str, response: KeptResponse) -> None:
        access.keep_response(self._session, scope, key, response)


class SqlStore:
    """Thread-safe."""

    def __init__(self, database: Database, supervisor_id: str, secret: str) -> None:
        self.database = database
        self.supervisor_id = supervisor_id
        self.secret = secret
        self.history = SqlHistory(database)
        self.tokens = SqlTokens(database)
        self.endpoints = SqlEndpoints(database)
        self.deliveries = SqlDeliveries(database)
        self.patrols = SqlPatrols(database)
        self.incidents = SqlIncidents(database)
        self.bases = SqlBases(database)

    def close(self) -> None:
        self.database.close()

    def written_elsewhere(self) -> None:
        """Another process has written events, perhaps with announcements."""
        self.history.written_elsewhere()
        self.deliveries.written_elsewhere()

    def begin(self, now: float) -> AbstractContextManager[SqlTransaction]:
        return self.database.writing_as(lambda session: SqlTransaction(session, now))

    # --- the loop -------------------------------------------------------------------------------------------------

    def active(self, cell: str, seen: Mapping[int, int]) -> tuple[list[Run], set[int]]:
        return self.database.read(runs.active, cell, seen)

    def apply_all(self, changes: Sequence[Change], now: float, lease: Lease) -> dict[int, Run]:
        def prepare(part: Sequence[Change]) -> Write[dict[int, Run]]:
            batch = runs.Batch(part)
            return lambda session: _apply(session, batch, now)

        hit: dict[int, Run] = {}
        for part in self._in_parts(changes, prepare, lease):
            hit.update(part)
        return hit

    def set_nonce_hash(self, key: int, launch_id: str, nonce_hash: str, lease: Lease) -> bool:
        with self.database.writing() as session:
            return cells.hold_lease(session, lease) and runs.set_nonce_hash(session, key, launch_id, nonce_hash)

    def nonce_hash(self, run_id: str, launch_id: str) -> str | None:
        return self.database.read_one(runs.nonce_hash_of, run_id, launch_id)

    def write_pulses(self, samples: Sequence[Sample], lease: Lease) -> None:
        for _ in self._in_parts(samples, lambda part: beats.SampleRows(part).write, lease):
            pass

    def put_beats(self, pushed: Sequence[PushedBeat]) -> dict[str, str]:
        return self.database.write(beats.BeatRows(pushed).write)

    def take_beats(self, lease: Lease) -> list[PushedBeat]:
        return self.database.write(beats.take_pushed, lease)

    def zones(self, cell: str) -> dict[OfferKey, ZoneRecord]:
        return self.database.read(cells.zones_of, cell)

    def past_calls(self, cell: str, most: int) -> list[Call]:
        return self.database.read(cells.calls_of, cell, most)

    def machines(self, cell: str, owner: str | None = None) -> dict[OfferKey, int]:
        return self.database.read(cells.machines, cell, owner)

    def put_zone(self, cell: str, key: OfferKey, record: ZoneRecord | None) -> None:
        self.database.write(cells.put_zone, cell, key, record)

    def take_lease(self, name: str, owner: str, ttl_s: float, monotonic: float, alone: bool = False) -> Lease | None:
        return self.database.write(cells.take_lease, name, owner, ttl_s, monotonic=monotonic, alone=alone)

    def drop_lease(self, lease: Lease) -> None:
        self.database.write(cells.drop_lease, lease)

    def take_over(self, theirs: Lease, ours: Lease, most: int) -> int:
        return self.database.write(cells.take_over, theirs, ours, most)

    def leaderless(self) -> dict[str, int]:
        return self.database.read(cells.leaderless)

    def lease_names(self) -> list[str]:
        return self.database.read(cells.lease_names)

    def due_outbox(self, now: float, limit: int) -> list[OutboxItem]:
        items, unreadable = self.database.read(events.due, now, limit)
        if not unreadable:
            return items
        with self.database.writing() as session:
            events.put_aside(session, unreadable, now)
            return events.due(session, now, limit)[0]

    def settle_outbox(self, item_id: int, delivered: bool, next_at: float | None, detail: str, now: float) -> None:
        self.database.write(events.settle, item_id, now, delivered=delivered, next_at=next_at, detail=detail)

    def prune(self, now: float, limit: int) -> int:
        return retention.prune(self.database, now, limit)

    def add_events(self, key: int | None, new: Sequence[Event], now: float) -> None:
        if key is None:
            self.database.write(events.add_own, new, now)
        else:
            self.database.write(events.add_to_run, key, new, now)

    # --- readers --------------------------------------------------------------------------------------------------

    def find(self, run_id: str) -> Run | None:
        return self.database.read_one(runs.find, run_id)

    def statuses(self, run_ids: Collection[str]) -> dict[str, Status]:
        return self.database.read_one(runs.statuses_of, run_ids)

    def labels(self, key: int) -> dict[str, str]:
        return self.database.read_one(runs.labels_of, key)

    def spec(self, key: int) -> dict[str, Any]:
        return self.database.read_one(runs.spec_of, key)

    def page(self, where: RunFilter, before_key: int | None, limit: int) -> RunPage:
        return self.database.read(pages.page, where, before_key, limit)

    def attempts(self, key: int) -> list[Attempt]:
        return self.database.read_one(runs.attempts_of, key)

    def attempts_of(self, keys: Collection[int]) -> dict[int, list[Attempt]]:
        return self.database.read(runs.attempts_of_runs, keys)

    def tries(self, key: int) -> list[Try]:
        return self.database.read_one(runs.tries_of, key)

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
        where = EventFilter(run_id, owner, actor)
        return self.database.read(history.page, where, after_id, limit, before_id=before_id, newest_first=newest_first)

    def kept_response(self, scope: str, key: str) -> KeptResponse | None:
        return self.database.read_one(access.kept_response, scope, key)

    def payer(self, run: Run) -> str:
        return self.database.read_one(access.payer, run)

    def counted_micro(self, token_id: str, now: float) -> int:
        return self.database.read(access.counted_now, token_id, now)

    def samples(self, key: int, since: float, limit: int) -> list[Sample]:
        return self.database.read(beats.of_run, key, since, limit)

    def lines(self, keys: Sequence[int]) -> dict[int, list[Step]]:
        return self.database.read(beats.of_runs, keys)

    def backlog(self) -> Backlog:
        return self.database.read(deliveries.read_backlog, self.database)

    def check(self) -> None:
        with self.database.writing() as session:
            schema.check_version(session)
            session.run(CHECKED, {"name": "checked", "value": secrets.token_hex(8)})

    def _in_parts(
        self, items: Sequence[Item], prepare: Callable[[Sequence[Item]], Write[Result]], lease: Lease
    ) -> Iterator[Result]:
        """Write many items under the lease. Each part is prepared before its own transaction; its size follows the time
        of the part before. Ends early when the lease is lost."""
        start, size = 0, PART_FIRST
        while start < len(items):
            write = prepare(items[start : start + size])
            with self.database.writing() as session:
                began = time.perf_counter()
                if not cells.hold_lease(session, lease):
                    return
                result = write(session)
                took_s = time.perf_counter() - began
            yield result
            start += size
            size = min(max(int(size * PART_AIM_S / took_s), PART_MIN), 2 * size, PART_MAX)


def _apply(session: Session, batch: runs.Batch, now: float) -> dict[int, Run]:
    """The runs that matched, with their new version; nothing is written of the others, and no events."""
    hit = batch.write(session)
    changes = {key: batch.changes[key] for key in hit}
    events.add(session, [events.next_events(item.after, hit[key], item.events) for key, item in changes.items()], now)
    return {key: replace(item.after, version=item.before.version + 1) for key, item in changes.items()}
