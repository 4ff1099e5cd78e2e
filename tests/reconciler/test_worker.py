"""The thread for a repeated piece of work."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

import pytest

from supervisor.ports.store import StoreDown
from supervisor.telemetry import logs as telemetry
from supervisor.telemetry.worker import Worker, nothing
from tests.waiting import wait_for

FIELDS = {telemetry.ACTION: "count"}


def worker(work: Callable[[], object], *, every_s: float = 3600.0, at_end: Callable[[], object] = nothing) -> Worker:
    return Worker("counter", work, every_s, failed="not counted", fields=FIELDS, expected=StoreDown, at_end=at_end)


def test_a_wake_that_comes_during_the_work_is_not_lost() -> None:
    turns: list[int] = []
    goes_on = threading.Event()

    def work() -> None:
        turns.append(len(turns))
        if len(turns) == 1:
            counter.wake()
            assert goes_on.wait(30)

    counter = worker(work)
    counter.start()
    counter.wake()
    wait_for(lambda: turns, what="the first turn")
    goes_on.set()
    wait_for(lambda: len(turns) == 2, what="the turn for the wake that came meanwhile")
    counter.stop(30)
    assert turns == [0, 1]


def test_whatever_the_work_raises_is_logged_and_the_next_pass_comes(caplog: pytest.LogCaptureFixture) -> None:
    errors = [StoreDown("the database is away"), ValueError("a bug"), None]
    done = threading.Event()

    def work() -> None:
        error = errors.pop(0)
        if error is not None:
            raise error
        done.set()

    counter = worker(work, every_s=0.001)
    with caplog.at_level(logging.WARNING):
        counter.start()
        assert done.wait(30)
        counter.stop(30)
    away, bug = caplog.records[:2]
    assert (away.getMessage(), away.levelname, away.exc_info) == ("not counted", "WARNING", None)
    assert getattr(away, telemetry.ERROR) == "the database is away"
    assert (bug.getMessage(), bug.levelname) == ("not counted", "ERROR")
    assert bug.exc_info is not None
    assert bug.exc_info[0] is ValueError
    assert {getattr(record, telemetry.ACTION) for record in (away, bug)} == {"count"}


def test_after_a_stop_there_is_no_pass_except_the_last_piece_of_work() -> None:
    did: list[str] = []
    counter = worker(lambda: did.append("turn"), at_end=lambda: did.append("end"))
    counter.start()
    counter.stop(30)
    counter.wake()
    assert counter.stopping
    assert did == ["end"]


def test_a_stop_leaves_behind_what_hangs() -> None:
    hangs, inside = threading.Event(), threading.Event()

    def work() -> None:
        inside.set()
        hangs.wait(60)

    counter = worker(work, every_s=0.001)
    counter.start()
    assert inside.wait(30)
    counter.stop(0.01)
    assert not hangs.is_set()
    hangs.set()


def test_stopped_before_its_start_it_does_nothing() -> None:
    did: list[str] = []
    worker(lambda: did.append("turn"), at_end=lambda: did.append("end")).stop(30)
    assert did == []
