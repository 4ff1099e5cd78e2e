"""Writers that stand in line share one commit.

A commit waits for the disk, and eight writers that each wait for their own get an eighth of what it can do. So a
writer that finds others in line leaves its work in the open transaction, under a savepoint of its own, hands the
transaction to the next, and waits; whoever finds nobody behind it commits for all. Nobody returns before the commit,
and if that fails everybody is told.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy import exc
from sqlalchemy.engine import Connection, Engine

from supervisor.storage.fifo import FifoLock

GROUP_AGE_S = 0.008  # an open transaction takes nobody in after this
SAVEPOINT, RELEASE, UNDO = "SAVEPOINT writer", "RELEASE writer", "ROLLBACK TO writer"


class Group:
    """One transaction of SQLite and those who wait for its commit."""

    def __init__(self, connection: Connection) -> None:
        """Begins the transaction. Raises DBAPIError."""
        self.begun = time.perf_counter()
        self.connection = connection
        try:
            self._transaction = connection.begin()
        except BaseException:
            connection.close()
            raise
        self._failure: exc.DBAPIError | None = None
        self._over = threading.Event()

    @property
    def age_s(self) -> float:
        return time.perf_counter() - self.begun

    def run(self, statement: str) -> None:
        self.connection.exec_driver_sql(statement)

    def undo(self, reason: BaseException) -> None:
        """Take one writer's work back. After a full disk SQLite has taken back everybody's already."""
        try:
            self.run(UNDO)
            self.run(RELEASE)
        except exc.DBAPIError as error:
            self._failure = reason if isinstance(reason, exc.DBAPIError) else error

    def finish(self) -> None:
        """Commit, or roll back what cannot be committed. Never raises a DBAPIError: `wait` tells it to everybody."""
        try:
            if self._failure is None:
                self._transaction.commit()
        except exc.DBAPIError as error:
            self._failure = error
        finally:
            try:
                self.connection.close()  # rolls back what is still open
            finally:
                self._over.set()

    def wait(self) -> None:
        """Until it is committed. Raises DBAPIError when it was not."""
        self._over.wait()
        if self._failure is not None:
            raise self._failure


class GroupWriter:
    """`longest_hold_s` is the longest time that one transaction was open, its commit included, since it was last set
    to 0. The engine's connections begin with BEGIN IMMEDIATE."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = FifoLock()
        self._open: Group | None = None  # handed over together with the lock
        self.longest_hold_s = 0.0

    @contextmanager
    def writing(self, timeout_s: float) -> Iterator[Connection]:
        """A transaction of one's own, as far as can be seen. Raises TimeoutError, DBAPIError."""
        self._lock.acquire(timeout_s)
        try:
            group = self._open or Group(self._engine.connect())
        except BaseException:
            self._lock.release()
            raise
        self._open = group
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

    def _leave(self, group: Group) -> None:
        if group.age_s < GROUP_AGE_S and self._lock.hand_over():
            return
        self._open = None
        try:
            group.finish()
        finally:
            self.longest_hold_s = max(self.longest_hold_s, group.age_s)
            self._lock.release()
