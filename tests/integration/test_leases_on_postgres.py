"""Leadership among several supervisors on one PostgreSQL: one holder, epochs that only rise, and late writers who hit
nothing. The leaders' own clocks are real here, with a lease of half a second."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace

import pytest

from supervisor.ports.store import Change, Lease, StoreDown
from supervisor.reconciler import leader as module
from supervisor.reconciler.leader import Leader
from supervisor.reconciler.system_clock import SystemClock
from supervisor.storage.rows import cells
from supervisor.storage.rows.cells import LONGEST_S
from supervisor.storage.store import SqlStore, open_store
from tests.contracts.store_values import CELL, NOW, STARTED, a_run, insert, running
from tests.waiting import wait_for

pytestmark = pytest.mark.xdist_group("postgres")
TTL_S, RENEW_S = 0.5, 0.1


@pytest.fixture
def stores(postgres_database: str) -> Iterator[tuple[SqlStore, SqlStore]]:
    """Of two supervisors."""
    with ExitStack() as opened:
        one = opened.enter_context(closing(open_store(postgres_database, migrate=True)))
        yield one, opened.enter_context(closing(open_store(postgres_database, migrate=False)))


def test_of_many_that_ask_at_once_one_gets_it(stores: tuple[SqlStore, SqlStore]) -> None:
    for turn in range(1, 6):
        start = threading.Barrier(8)

        def ask(number: int, start: threading.Barrier = start, turn: int = turn) -> Lease | None:
            start.wait()
            return stores[number % 2].take_lease(CELL, f"{turn}-{number}", 60.0, 0.0)

        with ThreadPoolExecutor(8) as pool:
            (winner,) = [lease for lease in pool.map(ask, range(8)) if lease is not None]
        assert winner.epoch == turn
        stores[0].drop_lease(winner)


def test_a_write_under_way_ends_before_the_next_leader_begins(stores: tuple[SqlStore, SqlStore]) -> None:
    one, two = stores
    mine = one.take_lease(CELL, "one", -1.0, 0.0)  # expired already, and its holder does not know
    assert mine is not None
    with ThreadPoolExecutor(1) as pool:
        with one.database.writing() as session:
            assert cells.hold_lease(session, mine)
            taken = pool.submit(two.take_lease, CELL, "two", 60.0, 0.0)
            wait_for(lambda: _somebody_waits(one), 30, "the second one to wait for the row")
            assert not taken.done()
        theirs = taken.result(30)
    assert theirs is not None
    assert theirs.epoch == mine.epoch + 1


def _somebody_waits(store: SqlStore) -> bool:
    with store.database.reading() as session:
        waiting = session.connection.exec_driver_sql(
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
        )
        return bool(waiting.scalar())


def test_a_leader_that_was_paused_hits_nothing(stores: tuple[SqlStore, SqlStore]) -> None:
    one, two = stores
    (run,) = insert(one, a_run())
    late = one.take_lease(CELL, "one", -1.0, 0.0)
    assert late is not None
    decided = Change(run, running(run), (STARTED,))
    now = two.take_lease(CELL, "two", 60.0, 0.0)
    assert now is not None
    assert one.apply_all([decided], NOW, late) == {}
    assert one.find(run.run_id) == run
    assert len(one.events(run.run_id, 0, 9)) == 1
    assert one.take_lease(CELL, "one", 60.0, 0.0) is None
    assert set(two.apply_all([decided], NOW, now)) == {run.key}


def test_a_leader_that_is_frozen_in_a_transaction_keeps_no_one_out(stores: tuple[SqlStore, SqlStore]) -> None:
    one, two = stores
    mine = one.take_lease(CELL, "one", -1.0, 0.0)
    assert mine is not None
    taken: list[Lease | None] = []

    def freeze(lease: Lease) -> None:
        with one.database.writing() as session:
            assert cells.hold_lease(session, lease)
            taken.append(two.take_lease(CELL, "two", 60.0, 0.0))
            cells.hold_lease(session, lease)

    with pytest.raises(StoreDown):  # its transaction was ended
        freeze(mine)
    (theirs,) = taken
    assert theirs is not None
    assert theirs.epoch == mine.epoch + 1
    assert one.find("nobody") is None, "the next transaction has another connection"


def test_pages_of_an_old_leader_never_land_after_the_next_one_has_begun(stores: tuple[SqlStore, SqlStore]) -> None:
    one, two = stores
    runs = insert(one, *(a_run(f"run-{number}") for number in range(300)))
    late = one.take_lease(CELL, "one", -1.0, 0.0)
    assert late is not None
    writing = threading.Event()
    written: dict[int, int] = {}

    def write() -> None:
        known = {run.key: run for run in runs}
        for turn in range(1000):
            changes = [Change(run, replace(run, hold=str(turn))) for run in known.values()]
            hit = one.apply_all(changes, NOW, late)
            known.update(hit)
            written.update({key: run.version for key, run in hit.items()})
            writing.set()
            if len(hit) < len(changes):
                return

    with ThreadPoolExecutor(1) as pool:
        end = pool.submit(write)
        assert writing.wait(60)
        assert two.take_lease(CELL, "two", 60.0, 0.0) is not None
        at_the_change = {run.key: run.version for run in two.active(CELL, {})[0]}
        end.result(60)
    assert at_the_change == written
    assert {run.key: run.version for run in two.active(CELL, {})[0]} == written


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TTL_S", TTL_S)
    monkeypatch.setattr(module, "RENEW_S", RENEW_S)


class Candidate(Leader):
    """A leader whose renewals can be delayed, as in a paused process."""

    def __init__(self, store: SqlStore, name: str) -> None:
        self.elections = 0
        super().__init__(store, CELL, name, SystemClock(), False, self._elected)
        self.paused = threading.Event()

    def _elected(self) -> None:
        self.elections += 1

    def renew(self) -> None:
        if not self.paused.is_set():
            super().renew()


@pytest.mark.usefixtures("quick")
def test_leadership_moves_when_the_leader_is_paused_and_never_overlaps(stores: tuple[SqlStore, SqlStore]) -> None:
    candidates = [Candidate(store, name) for store, name in zip(stores, ("one", "two"), strict=True)]
    overlaps, over = 0, threading.Event()

    def watch() -> None:
        nonlocal overlaps
        while not over.is_set():
            # Asked in this order, a lease that moves between two of the questions is no overlap.
            answers = [candidates[number].lease() for number in (1, 0, 1)]
            overlaps += None not in answers
            time.sleep(0.001)

    watcher = threading.Thread(target=watch)
    for candidate in candidates:
        candidate.start()
    watcher.start()
    try:
        epoch = 1
        for turn in range(4):
            leader, other = candidates[turn % 2], candidates[1 - turn % 2]
            held = wait_for(leader.lease, 30, "it to lead")
            assert held.epoch == epoch
            leader.paused.set()
            taken = wait_for(other.lease, 30, "the other to lead")
            assert leader.lease() is None, "its own clock told it before the lease could be taken"
            assert taken.epoch == epoch + 1
            leader.paused.clear()
            epoch += 1
        assert [candidate.elections for candidate in candidates] == [3, 2]
    finally:
        over.set()
        watcher.join()
        for candidate in candidates:
            candidate.stop()
    assert overlaps == 0


@pytest.mark.usefixtures("quick")
def test_a_leader_that_leaves_is_followed_at_once(
    stores: tuple[SqlStore, SqlStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "TTL_S", LONGEST_S - 1.0)  # longer than the test waits, and no wrong clock's
    one, two = (Candidate(store, name) for store, name in zip(stores, ("one", "two"), strict=True))
    one.start()
    two.start()
    try:
        assert one.lease() is not None
        assert two.lease() is None
        one.stop()
        assert wait_for(two.lease, 30, "the second to lead").epoch == 2
    finally:
        two.stop()
