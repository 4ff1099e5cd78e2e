"""Writers that stand in line share one commit.

A commit waits for the disk, and eight writers that each wait for their own get an eighth of what it can do. So a
writer that finds others in line leaves its work in the open transaction, under a savepoint of its own, hands the
transaction to the next, and waits; whoever finds nobody behind it commits for all. Nobody returns before the commit,
and if that fails everybody is told.

A lock that is handed over in the order of asking.

SQLite has one writer at a time, and its busy handler lets late comers win: with eight writers the unlucky one waits
for a second. Whoever stands in this line gets the database in turn.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import exc
from sqlalchemy.engine import Connection, Engine

from supervisor.storage.engine.statements import as_sqlalchemy_says
from supervisor.telemetry import metrics


class FifoLock:
    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._held = False
        self._line: deque[threading.Lock] = deque()

    def acquire(self, timeout_s: float) -> None:
        """Raises TimeoutError when its turn has not come by then."""
        with self._mutex:
            if not self._held:
                self._held = True
                return
            turn = threading.Lock()
            turn.acquire()
            self._line.append(turn)
        if turn.acquire(timeout=timeout_s):
            return
        with self._mutex:
            if turn in self._line:
                self._line.remove(turn)
                raise TimeoutError
        # It was handed to us between the timeout and the look: it is ours.

    def hand_over(self) -> bool:
        """To the next in line; False when nobody waits, then it is still ours."""
        with self._mutex:
            if not self._line:
                return False
            self._line.popleft().release()
            return True

    def release(self) -> None:
        with self._mutex:
            if self._line:
                self._line.popleft().release()  # still held: by the next in line
            else:
                self._held = False


GROUP_AGE_S = 0.008  # an open transaction takes nobody in after this
BEGIN, COMMIT = "BEGIN IMMEDIATE", "COMMIT"
SAVEPOINT, RELEASE, UNDO = "SAVEPOINT writer", "RELEASE writer", "ROLLBACK TO writer"


class Group:
    """One transaction of SQLite and those who wait for its commit."""

    def __init__(self, connection: Connection) -> None:
        self.begun = time.perf_counter()
        self.connection = connection
        driver = connection.connection.dbapi_connection
        assert driver is not None
        self._driver = driver
        self.over = threading.Event()
        self.failure: exc.DBAPIError | None = None

    @property
    def age_s(self) -> float:
        return time.perf_counter() - self.begun

    def run(self, statement: str) -> None:
        try:
            self._driver.cursor().execute(statement)
        except sqlite3.Error as error:
            raise as_sqlalchemy_says(self.connection.dialect, error) from error

    def undo(self, reason: BaseException) -> None:
        """Take one writer's work back. After a full disk SQLite has taken back everybody's already."""
        try:
            self.run(UNDO)
            self.run(RELEASE)
        except exc.DBAPIError as error:
            self.failure = reason if isinstance(reason, exc.DBAPIError) else error

    def wait(self) -> None:
        """Until it is committed. Raises DBAPIError when it was not."""
        self.over.wait()
        if self.failure is not None:
            raise self.failure


class GroupWriter:
    """`longest_hold_s` is the longest time that one transaction was open, its commit included, since it was last set
    to 0."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = FifoLock()
        # These two are handed over together with the lock.
        self._connection: Connection | None = None  # kept open: its cache of the database stays warm
        self._open: Group | None = None
        self.longest_hold_s = 0.0

    @contextmanager
    def writing(self, timeout_s: float) -> Iterator[Connection]:
        """A transaction of one's own, as far as can be seen. Raises TimeoutError, DBAPIError."""
        began = time.perf_counter()
        self._lock.acquire(timeout_s)
        metrics.WRITE_WAIT_S.observe(time.perf_counter() - began)
        try:
            if self._open is None:
                self._connection = self._connection or self._engine.connect()
                begun = Group(self._connection)
                begun.run(BEGIN)
                self._open = begun
            group = self._open
        except BaseException:
            self._lock.release()
            raise
        try:
            group.run(SAVEPOINT)
            try:
                yield group.connection
            except BaseException as reason:
                group.undo(reason)
                raise
            group.run(RELEASE)
        finally:
            self._leave(group)
            group.wait()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _leave(self, group: Group) -> None:
        """Hand the open transaction to the next in line. With nobody there, commit it, or roll back what cannot be
        committed: `Group.wait` tells it to everybody."""
        if group.failure is None and group.age_s < GROUP_AGE_S and self._lock.hand_over():
            return
        self._open = None
        try:
            if group.failure is None:
                since = time.perf_counter()
                group.run(COMMIT)
                metrics.COMMIT_S.observe(time.perf_counter() - since)
        except exc.DBAPIError as error:
            group.failure = error
        finally:
            group.over.set()
            if group.failure is not None:
                self.close()  # rolls back what is still open
            self.longest_hold_s = max(self.longest_hold_s, group.age_s)
            self._lock.release()
