"""Group commit for SQLite: queued writers share one transaction and one commit.

A commit waits for the disk, so eight writers with a commit each get an eighth of its throughput. A writer that finds
others in the queue leaves its changes in the open transaction, hands the transaction to the next one, and waits; the
last one commits for all. Each writer after the first begins with a savepoint, to which it returns when it fails. No
writer returns before the commit, and a failure of the commit is raised in all of them.

SQLite has one writer at a time, and its busy handler prefers late writers: with eight writers one of them waits for a
second. The FIFO lock serves them in the order of their requests.

Commits append to the WAL. A commit that finds it long would move it into the database's file by itself, with the write
lock held; a thread with a connection of its own does that in time.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from sqlalchemy import exc
from sqlalchemy.engine import Connection, Engine

from supervisor.storage.engine.statements import run_plain
from supervisor.telemetry import metrics

GROUP_AGE_S = 0.008  # an older open transaction takes no more writers
BEGIN, COMMIT = "BEGIN IMMEDIATE", "COMMIT"
CHECKPOINT = "PRAGMA wal_checkpoint(PASSIVE)"  # waits for no reader and no writer, and blocks none
CHECKPOINT_COMMITS, CHECKPOINT_REST_S = 8, 0.25
SAVEPOINT, UNDO, ROLLBACK = "SAVEPOINT writer", "ROLLBACK TO writer", "ROLLBACK"  # UNDO: to the newest savepoint


class FifoLock:
    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._held = False
        self._queue: deque[threading.Lock] = deque()

    def acquire(self, timeout_s: float) -> None:
        """Raises TimeoutError."""
        with self._mutex:
            if not self._held:
                self._held = True
                return
            place = threading.Lock()
            place.acquire()
            self._queue.append(place)
        if place.acquire(timeout=timeout_s):
            return
        with self._mutex:
            if place in self._queue:
                self._queue.remove(place)
                raise TimeoutError
        # It was handed to us between the timeout and the check: it is ours.

    def hand_over(self) -> bool:
        """Give the lock to the next in the queue; False = the queue is empty and the lock is still ours."""
        with self._mutex:
            if not self._queue:
                return False
            self._queue.popleft().release()
            return True

    def release(self) -> None:
        with self._mutex:
            if self._queue:
                self._queue.popleft().release()  # still held: by the next in the queue
            else:
                self._held = False


class Group:
    """One SQLite transaction and the writers that wait for its commit."""

    def __init__(self, connection: Connection) -> None:
        self.begun = time.perf_counter()
        self.connection = connection
        self.over = threading.Event()
        self.failure: exc.DBAPIError | None = None
        self._empty = True  # no writer has left changes

    @property
    def age_s(self) -> float:
        return time.perf_counter() - self.begun

    def run(self, statement: str) -> None:
        run_plain(self.connection, statement)

    def enter(self) -> None:
        if not self._empty:
            self.run(SAVEPOINT)

    def leave(self) -> None:
        self._empty = False

    def undo(self, reason: BaseException) -> None:
        """Roll back one writer's changes. On a full disk SQLite has already rolled back all of them."""
        try:
            for statement in (ROLLBACK, BEGIN) if self._empty else (UNDO,):
                self.run(statement)
        except exc.DBAPIError as error:
            self.failure = reason if isinstance(reason, exc.DBAPIError) else error

    def wait(self) -> None:
        """Wait for the commit. Raises DBAPIError when it failed."""
        self.over.wait()
        if self.failure is not None:
            raise self.failure


class Checkpointer:
    """Moves the WAL into the database's file while others write. It starts with the first commits, and rests after each
    checkpoint. What it cannot do, a later commit does by itself."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._commits = 0
        self._woken, self._stopping = threading.Event(), threading.Event()
        self._thread: threading.Thread | None = None

    def committed(self) -> None:
        """Called after each commit, by the holder of the lock."""
        self._commits += 1
        if self._commits < CHECKPOINT_COMMITS or self._stopping.is_set():
            return
        self._commits = 0
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="checkpoint", daemon=True)
            self._thread.start()
        self._woken.set()

    def close(self) -> None:
        self._stopping.set()
        self._woken.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while self._woken.wait():
            self._woken.clear()  # before the check: the wake of `close` must not be lost after it
            if self._stopping.is_set():
                return
            with suppress(exc.DBAPIError), self._engine.connect() as connection:
                connection.exec_driver_sql(CHECKPOINT)
            self._stopping.wait(CHECKPOINT_REST_S)


class GroupWriter:
    """`longest_hold_s`: the longest time that a transaction was open, with its commit, since it was last set to 0.
    `ended`: called after each commit or rollback of a transaction, before another one begins."""

    def __init__(
        self, engine: Engine, checkpoints: Checkpointer | None = None, ended: Callable[[], None] = lambda: None
    ) -> None:
        self._engine, self._checkpoints, self._ended = engine, checkpoints, ended
        self._lock = FifoLock()
        # The holder of the lock owns these two.
        self._connection: Connection | None = None  # stays open, so its cache of the database stays warm
        self._open: Group | None = None
        self.longest_hold_s = 0.0

    @contextmanager
    def writing(self, timeout_s: float) -> Iterator[Connection]:
        """Behaves like a transaction of its own. Raises TimeoutError, DBAPIError."""
        began = time.perf_counter()
        self._lock.acquire(timeout_s)
        metrics.WRITE_WAIT_S.observe(time.perf_counter() - began)
        try:
            if self._open is None:
                self._connection = self._connection or self._engine.connect()
                new_group = Group(self._connection)
                new_group.run(BEGIN)
                self._open = new_group
            group = self._open
        except BaseException:
            self._lock.release()
            raise
        try:
            group.enter()
            try:
                yield group.connection
            except BaseException as reason:
                group.undo(reason)
                raise
            group.leave()
        finally:
            self._leave(group)
            group.wait()

    def close(self) -> None:
        if self._checkpoints is not None:
            self._checkpoints.close()
        self._disconnect()

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _leave(self, group: Group) -> None:
        """Hand the open transaction to the next in the queue. If the queue is empty, commit it, or roll back if it has
        failed; `Group.wait` raises the failure in all writers."""
        if group.failure is None and group.age_s < GROUP_AGE_S and self._lock.hand_over():
            return
        self._open = None
        try:
            if group.failure is None:
                since = time.perf_counter()
                group.run(COMMIT)
                metrics.COMMIT_S.observe(time.perf_counter() - since)
                if self._checkpoints is not None:
                    self._checkpoints.committed()
        except exc.DBAPIError as error:
            group.failure = error
        finally:
            group.over.set()
            if group.failure is not None:
                self._disconnect()  # rolls back what is still open
            self._ended()
            self.longest_hold_s = max(self.longest_hold_s, group.age_s)
            self._lock.release()
