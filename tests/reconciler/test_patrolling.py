"""The schedule of the patrol, and its event at a start, on a real database and a clock that stands still."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.domain.events import EventKind
from supervisor.reconciler.delivering.patrolling import Patrol, greet
from supervisor.storage.store import SqlStore, open_store
from tests.contracts.store_values import CELL, NOW, a_run, insert

DAY = 86_400.0


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStore]:
    opened = open_store(f"sqlite:///{tmp_path}/supervisor.db", migrate=True)
    yield opened
    opened.close()


def texts(store: SqlStore, kind: EventKind) -> list[str]:
    return [stored.event.text for stored in store.events(None, 0, 1000) if stored.event.kind == kind]


def patrols(store: SqlStore, every_s: float, times: list[float]) -> list[float]:
    """The times of the reports; each check is by a new process."""
    return [at for at in times if Patrol(store, every_s).run(NOW + at)]


def test_once_a_period_also_over_restarts_and_when_nothing_has_changed(store: SqlStore) -> None:
    times = [60.0 * n for n in range(3 * 1440 + 2)][::30]
    assert patrols(store, DAY, times) == [DAY, 2 * DAY, 3 * DAY]
    assert len(texts(store, EventKind.PATROL)) == 3


def test_a_missed_report_is_sent_once(store: SqlStore) -> None:
    assert patrols(store, DAY, [0.0, 9 * DAY, 9 * DAY + 60]) == [9 * DAY]


def test_no_report_where_it_is_turned_off(store: SqlStore) -> None:
    assert patrols(store, 0.0, [0.0, 9 * DAY]) == []
    assert store.patrols.last() is None


def test_a_clock_that_was_set_back_restarts_the_schedule(store: SqlStore) -> None:
    assert patrols(store, DAY, [5 * DAY, 0.0, DAY - 60, DAY]) == [DAY]


def test_it_counts_all_runs_and_finds_the_oldest_problem(store: SqlStore) -> None:
    insert(store, a_run("held", hold="the object store cannot be read", status_since=NOW - 7200))
    insert(store, a_run("fine"))
    patrols(store, DAY, [0.0, DAY])
    [text] = texts(store, EventKind.PATROL)
    assert text.startswith("2 in between. $0.00/h now, $0.00 in the last 24 h. Oldest problem: held, for 26 h: ")


def test_nothing_is_said_at_the_very_first_start(store: SqlStore) -> None:
    greet(store, CELL, True, "1.2.3", NOW)
    assert texts(store, EventKind.SUPERVISOR_STARTED) == []


def test_who_is_back_says_so_once(store: SqlStore) -> None:
    insert(store, a_run())
    lease = store.take_lease(CELL, "before", 8.0, 0.0)
    assert lease is not None
    store.drop_lease(lease)
    greet(store, CELL, True, "1.2.3", NOW)
    [text] = texts(store, EventKind.SUPERVISOR_STARTED)
    assert text.startswith("Supervisor 1.2.3 started again after ")
    assert text.endswith("away. 1 live run found: 1 in between.")


@pytest.mark.parametrize(("alone", "away"), [(True, True), (False, False)])
def test_where_another_process_may_lead_there_was_no_downtime(store: SqlStore, alone: bool, away: bool) -> None:
    store.take_lease(CELL, "another", 8.0, 0.0)
    greet(store, CELL, alone, "1.2.3", NOW)
    [text] = texts(store, EventKind.SUPERVISOR_STARTED)
    assert (" away" in text) == away
