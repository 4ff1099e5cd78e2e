"""A wake across processes: NOTIFY on Postgres reaches every supervisor on the same database.

There are two notifications: a request for a tick, and that events were written. One thread owns one connection outside
the pool, which sends and receives them. `set` only stores the request and wakes that thread, so it never blocks,
whatever the database does. Requests are kept while the connection is lost; after a reconnect the thread wakes its own
loop once, because it may have missed a notification. Through a pooler with one connection per transaction this does not
work: the next poll then finds the changes.
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
TICK, EVENTS = "", "events"  # payloads
RECONNECT_S = 1.0
BETWEEN_S = 0.02  # a thousand submits per second do not need a thousand notifications


class NotifyWake:
    """`local`: the wake of this process's loop. `on_events` is called when another process has written events."""

    def __init__(self, database: Database, local: Wake, on_events: Callable[[], None] = lambda: None) -> None:
        self._database, self._local, self._on_events = database, local, on_events
        self._pending: set[str] = set()  # payloads to send
        self._closing = threading.Event()
        self._prod_out, self._prod_in = socket.socketpair()  # ends the wait of the thread
        for end in (self._prod_out, self._prod_in):
            end.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="notify", daemon=True)
        self._connection: psycopg.Connection[Any] | None = None

    def set(self) -> None:
        self._local.set()
        self._send(TICK)

    def notify_events(self) -> None:
        """This process has written events."""
        self._send(EVENTS)

    def wait(self, timeout_s: float) -> bool:
        return self._local.wait(timeout_s)

    def start(self) -> None:
        """Listens when it returns, or retries in the background while the database is unavailable."""
        self._connect()
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        self._prod()
        self._cut()
        if self._thread.ident is not None:
            self._thread.join(timeout=10.0)
        self._prod_out.close()
        self._prod_in.close()

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            while not self._closing.is_set():
                connection = self._connection
                if connection is None:
                    self._reconnect()
                    continue
                try:
                    self._serve(connection)
                except (psycopg.Error, OSError) as error:
                    self._lose(connection, error)
        finally:
            if self._connection is not None:
                self._connection.close()

    def _serve(self, connection: psycopg.Connection[Any]) -> None:
        """Send and receive until `close`. Raises psycopg.Error, OSError."""
        while not self._closing.is_set():
            payloads = sorted(self._pending)
            if payloads:
                self._pending.difference_update(payloads)  # before sending: a later request needs a notification again
                try:
                    connection.execute("; ".join(f"NOTIFY {CHANNEL}, '{payload}'" for payload in payloads))
                except BaseException:
                    self._pending.update(payloads)
                    raise
                self._closing.wait(BETWEEN_S)
            if not self._pending:
                self._wait(connection)
            self._receive(connection)

    def _wait(self, connection: psycopg.Connection[Any]) -> None:
        """For a request here or a notification. Not `select`, which supports no file number above 1023."""
        poll = select.poll()
        poll.register(connection.fileno(), select.POLLIN)
        poll.register(self._prod_in, select.POLLIN)
        if self._prod_in.fileno() in dict(poll.poll()):
            self._prod_in.recv(4096)

    def _receive(self, connection: psycopg.Connection[Any]) -> None:
        """Notifications between statements; psycopg passes those within a statement to the handler."""
        connection.pgconn.consume_input()
        while (notification := connection.pgconn.notifies()) is not None:
            self._received(notification.be_pid, notification.extra.decode())

    def _received(self, sender: int, payload: str) -> None:
        connection = self._connection
        if connection is not None and sender == connection.info.backend_pid:
            return
        if payload == EVENTS:
            self._on_events()
        else:
            self._local.set()

    def _reconnect(self) -> None:
        self._connect()
        if self._connection is None:
            self._closing.wait(RECONNECT_S)
        else:
            self._local.set()
            self._on_events()

    def _connect(self) -> None:
        try:
            connection = self._database.connect_alone()
        except psycopg.Error as error:
            log.warning("not listening", extra={telemetry.ACTION: "wake", telemetry.ERROR: _first_line(error)})
            return
        try:
            connection.add_notify_handler(lambda notification: self._received(notification.pid, notification.payload))
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

    def _send(self, payload: str) -> None:
        if payload not in self._pending:
            self._pending.add(payload)
            self._prod()

    def _prod(self) -> None:
        try:
            self._prod_out.send(b"!")
        except OSError:
            return  # it is full, so the thread is about to wake up; or it is closed

    def _cut(self) -> None:
        """End a statement that waits for a hanging server: `close` must not wait for it."""
        connection = self._connection
        if connection is None:
            return
        try:
            with socket.socket(fileno=os.dup(connection.pgconn.socket)) as same:
                same.shutdown(socket.SHUT_RDWR)
        except (psycopg.Error, OSError):
            return  # it is closed already


def _first_line(error: Exception) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
