"""The wake by NOTIFY on a real Postgres: the suite, other processes, and connections that are cut."""

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg
import pytest

from supervisor.ports.clock import Wake
from supervisor.reconciler.system_clock import EventWake
from supervisor.storage.engine.database import Database
from supervisor.storage.engine.notify_wake import NotifyWake
from tests.contracts.wake_suite import WakeContract
from tests.waiting import wait_for

pytestmark = pytest.mark.xdist_group("postgres")


@contextmanager
def waking(url: str) -> Iterator[NotifyWake]:
    database = Database(url)
    wake = NotifyWake(database, EventWake())
    wake.start()
    try:
        yield wake
    finally:
        wake.close()
        database.close()


@pytest.fixture
def wake(postgres_database: str) -> Iterator[NotifyWake]:
    with waking(postgres_database) as one:
        yield one


@pytest.fixture
def other(postgres_database: str) -> Iterator[NotifyWake]:
    """The wake of another supervisor on the same database."""
    with waking(postgres_database) as one:
        yield one


def admin(url: str) -> "psycopg.Connection[tuple[object, ...]]":
    return psycopg.connect(url.replace("+psycopg", "").rpartition("/")[0] + "/postgres", autocommit=True)


def listeners(url: str) -> list[int]:
    """The server processes of the connections that listen or have just sent a notification."""
    with admin(url) as connection:
        rows = connection.execute(
            "SELECT pid FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()", [url.rpartition("/")[2]]
        ).fetchall()
    return [int(str(row[0])) for row in rows]


def cut(url: str) -> list[int]:
    found = listeners(url)
    with admin(url) as connection:
        for pid in found:
            connection.execute("SELECT pg_terminate_backend(%s)", [pid])
    return found


def back(url: str, gone: list[int], count: int = 1) -> None:
    wait_for(lambda: len(set(listeners(url)) - set(gone)) >= count, 30, "a new connection")


class TestNotifyWake(WakeContract):
    pass


def test_what_one_asks_the_other_hears(wake: Wake, other: Wake) -> None:
    for _ in range(3):
        other.set()
        assert wake.wait(60.0) is True
        assert other.wait(60.0) is True  # its own loop is woken as well


def test_its_own_notification_does_not_come_back(wake: Wake, other: Wake) -> None:
    wake.set()
    assert wake.wait(60.0) is True
    assert other.wait(60.0) is True  # so it has been through the database
    assert wake.wait(0.1) is False


def test_another_process_is_heard(postgres_database: str, wake: Wake) -> None:
    command = [sys.executable, "-m", "tests.contracts.notify_setter", postgres_database]
    with subprocess.Popen(command, stdin=subprocess.PIPE, cwd=Path(__file__).parents[2]) as setter:
        assert wake.wait(60.0) is True
        assert setter.stdin is not None
        setter.stdin.close()
        assert setter.wait(60) == 0


def test_thousands_of_wishes_are_few_notifications(wake: Wake, other: NotifyWake) -> None:
    heard = 0
    began = time.monotonic()
    for _ in range(5000):
        wake.set()
    assert time.monotonic() - began < 5.0
    while other.wait(1.0):
        heard += 1
    assert 1 <= heard < 500


def test_written_events_are_heard_by_the_others_and_wake_no_loop(postgres_database: str, wake: NotifyWake) -> None:
    heard = threading.Event()
    database, local = Database(postgres_database), EventWake()
    other = NotifyWake(database, local, heard.set)
    other.start()
    try:
        wake.notify_events()
        assert heard.wait(60.0)
        assert local.wait(0.1) is False
        heard.clear()
        wake.set()
        assert local.wait(60.0) is True
        assert not heard.is_set()
    finally:
        other.close()
        database.close()


def test_after_a_cut_it_hears_and_is_heard_again(
    postgres_database: str, wake: Wake, other: Wake, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)
    gone = cut(postgres_database)
    assert len(gone) == 2
    back(postgres_database, gone, 2)
    # Both may have missed something, so both check once.
    assert wake.wait(60.0) is True
    assert other.wait(60.0) is True
    wake.set()
    assert wake.wait(60.0) is True
    assert other.wait(60.0) is True
    assert wake.wait(0.05) is False


def test_a_wish_during_a_cut_is_not_lost(postgres_database: str, wake: NotifyWake, other: Wake) -> None:
    name = postgres_database.rpartition("/")[2]
    with admin(postgres_database) as connection:
        connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false")
        gone = cut(postgres_database)
        wait_for(lambda: not listeners(postgres_database), 30, "the connections to end")
        began = time.monotonic()
        wake.set()
        assert time.monotonic() - began < 1.0
        assert wake.wait(60.0) is True  # locally at once
        connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true")
    back(postgres_database, gone, 2)
    assert other.wait(60.0) is True
    wake.set()
    assert other.wait(60.0) is True


def test_a_server_that_hangs_blocks_nobody(postgres_database: str, wake: NotifyWake) -> None:
    (server,) = listeners(postgres_database)
    os.kill(server, signal.SIGSTOP)
    try:
        began = time.monotonic()
        for _ in range(100):
            wake.set()
            assert wake.wait(60.0) is True
        wake.close()
        assert time.monotonic() - began < 5.0
    finally:
        os.kill(server, signal.SIGCONT)


def test_it_starts_while_the_database_is_away(postgres_database: str) -> None:
    with waking(postgres_database.replace("test_", "missing_")) as wake:
        wake.set()
        assert wake.wait(60.0) is True
        assert wake.wait(0.05) is False


class Deaf(NotifyWake):
    """Broken: it does not reconnect after its connection was cut."""

    def _reconnect(self) -> None:
        self._closing.wait(0.1)


def test_one_that_does_not_come_back_is_caught(postgres_database: str, other: NotifyWake) -> None:
    database = Database(postgres_database)
    deaf = Deaf(database, EventWake())
    deaf.start()
    try:
        gone = cut(postgres_database)
        back(postgres_database, gone)
        other.set()
        assert deaf.wait(2.0) is False
    finally:
        deaf.close()
        database.close()
