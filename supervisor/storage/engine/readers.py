"""SQLite's connections that read: taken for one read, and kept open for the next one.

To check a connection out of SQLAlchemy's pool, and to begin and end a transaction through its events, costs twice as
much as most of our reads.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.engine import Connection, Engine

from supervisor.storage.engine.statements import run_plain


class Readers:
    """Thread-safe. `kept`: how many stay open; `most`: how many are in use at once, others wait for `timeout_s`."""

    def __init__(self, engine: Engine, kept: int, most: int, timeout_s: float) -> None:
        self._engine, self._kept, self._timeout_s = engine, kept, timeout_s
        self._free = threading.Semaphore(most)
        self._idle: list[Connection] = []
        self._in_use: set[Connection] = set()

    @property
    def in_use(self) -> int:
        return len(self._in_use)

    @contextmanager
    def connection(self) -> Iterator[Connection]:
        """For one statement, which sees one instant by itself. Raises TimeoutError, DBAPIError."""
        if not self._free.acquire(timeout=self._timeout_s):
            raise TimeoutError
        try:
            connection = self._taken()
            try:
                yield connection
            except BaseException:
                connection.close()  # whatever it was in the middle of
                raise
            finally:
                self._in_use.discard(connection)
            self._give_back(connection)
        finally:
            self._free.release()

    @contextmanager
    def snapshot(self) -> Iterator[Connection]:
        """All reads in the block see one instant. Raises the same."""
        with self.connection() as connection:
            run_plain(connection, "BEGIN")
            yield connection
            run_plain(connection, "COMMIT")

    def close(self) -> None:
        while self._idle:
            self._idle.pop().close()
        self._engine.dispose()

    def _taken(self) -> Connection:
        try:
            connection = self._idle.pop()  # the last one that was given back: its cache is warm
        except IndexError:
            connection = self._engine.connect()
        self._in_use.add(connection)
        return connection

    def _give_back(self, connection: Connection) -> None:
        if len(self._idle) < self._kept:
            self._idle.append(connection)
        else:
            connection.close()
