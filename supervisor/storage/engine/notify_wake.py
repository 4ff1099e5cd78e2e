"""A wake across processes: NOTIFY on Postgres, heard by every supervisor on the same database.

Two things are said: that loops should look, and that events were written, for those who follow the history.
One thread owns one connection, outside of the pool: it sends what this process says and hears what others say. Saying
only marks the wish and pokes that thread, so it never blocks, whatever the database does. While the connection is away
wishes are kept; whoever comes back wakes its own loop once, because it may have missed something. A pooler that hands
out one connection per transaction cannot carry this: everything is then found at the next poll.
"""

from __future__ import annotations

import logging
import os
import select
import socket
import threading
from collections.abc import Callable
from typing import Any

import psycopg

from supervisor.ports.clock import Wake
from supervisor.storage.engine.database import Database
from supervisor.telemetry import logs as telemetry

log = logging.getLogger(__name__)

CHANNEL = "spot_supervisor_wake"
LOOK, EVENTS = "", "events"  # payloads
RECONNECT_S = 1.0
BETWEEN_S = 0.02  # a thousand submits a second need no thousand notifications


class NotifyWake:
    """`local` is the wake of this process's loop; `events_heard` is called when another process has written events."""

    def __init__(self, database: Database, local: Wake, events_heard: Callable[[], None] = lambda: None) -> None:
        self._database, self._local, self._events_heard = database, local, events_heard
        self._wished: set[str] = set()
        self._closing = threading.Event()
        self._poke, self._poked = socket.socketpair()
        for end in (self._poke, self._poked):
            end.setblocking(False)
        self._thread = threading.Thread(target=self._keep, name="notify", daemon=True)
        self._connection: psycopg.Connection[Any] | None = None

    def set(self) -> None:
        self._local.set()
        self._wish(LOOK)

    def tell_of_events(self) -> None:
        """This process has written events."""
        self._wish(EVENTS)

    def wait(self, timeout_s: float) -> bool:
        return self._local.wait(timeout_s)

    def start(self) -> None:
        """Listens when it returns, or tries again in the background where the database is away."""
        self._connect()
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._prod()
        self._cut()
        if self._thread.ident is not None:
            self._thread.join(timeout=10.0)
        self._poke.close()
        self._poked.close()

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _keep(self) -> None:
        try:
            while not self._closing.is_set():
                connection = self._connection
                if connection is None:
                    self._come_back()
                    continue
                try:
                    self._serve(connection)
                except (psycopg.Error, OSError) as error:
                    self._lose(connection, error)
        finally:
            if self._connection is not None:
                self._connection.close()

    def _serve(self, connection: psycopg.Connection[Any]) -> None:
        """Send and hear until told to close. Raises psycopg.Error, OSError."""
        while not self._closing.is_set():
            wished = sorted(self._wished)
            if wished:
                self._wished.difference_update(wished)  # before the sending: a wish from now on wants its own
                try:
                    connection.execute("; ".join(f"NOTIFY {CHANNEL}, '{payload}'" for payload in wished))
                except BaseException:
                    self._wished.update(wished)
                    raise
                self._closing.wait(BETWEEN_S)
            if not self._wished:
                self._pause(connection)
            self._hear(connection)

    def _pause(self, connection: psycopg.Connection[Any]) -> None:
        """Until somebody here or elsewhere asks. Not `select`, which knows no file number above 1023."""
        waiting = select.poll()
        waiting.register(connection.fileno(), select.POLLIN)
        waiting.register(self._poked, select.POLLIN)
        if self._poked.fileno() in dict(waiting.poll()):
            self._poked.recv(4096)

    def _hear(self, connection: psycopg.Connection[Any]) -> None:
        """What has arrived outside of a statement; what comes with one goes to the handler by itself."""
        connection.pgconn.consume_input()
        while (notification := connection.pgconn.notifies()) is not None:
            self._heard(notification.be_pid, notification.extra.decode())

    def _heard(self, sender: int, payload: str) -> None:
        connection = self._connection
        if connection is not None and sender == connection.info.backend_pid:
            return
        if payload == EVENTS:
            self._events_heard()
        else:
            self._local.set()

    def _come_back(self) -> None:
        self._connect()
        if self._connection is None:
            self._closing.wait(RECONNECT_S)
        else:
            self._local.set()
            self._events_heard()

    def _connect(self) -> None:
        try:
            connection = self._database.connect_alone()
        except psycopg.Error as error:
            log.warning("not listening", extra={telemetry.ACTION: "wake", telemetry.ERROR: _first_line(error)})
            return
        try:
            connection.add_notify_handler(lambda notification: self._heard(notification.pid, notification.payload))
            connection.execute(f"LISTEN {CHANNEL}")
        except psycopg.Error as error:
            self._lose(connection, error)
            return
        self._connection = connection

    def _lose(self, connection: psycopg.Connection[Any], error: Exception) -> None:
        self._connection = None
        connection.close()
        if not self._closing.is_set():
            log.warning("listening lost", extra={telemetry.ACTION: "wake", telemetry.ERROR: _first_line(error)})

    # --- from other threads -------------------------------------------------------------------------------------------

    def _wish(self, payload: str) -> None:
        if payload not in self._wished:
            self._wished.add(payload)
            self._prod()

    def _prod(self) -> None:
        try:
            self._poke.send(b"!")
        except OSError:
            return  # it is full, so the thread is on its way, or closed

    def _cut(self) -> None:
        """End a statement that waits for a server that hangs: closing must not wait for it."""
        connection = self._connection
        if connection is None:
            return
        try:
            with socket.socket(fileno=os.dup(connection.pgconn.socket)) as same:
                same.shutdown(socket.SHUT_RDWR)
        except (psycopg.Error, OSError):
            return  # it is gone already


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
