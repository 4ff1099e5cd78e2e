"""The contract of patrol records; part of the store's suite."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from supervisor.domain.events import Event, EventKind
from supervisor.domain.status import Status
from supervisor.ports.store import Change, Store
from tests.contracts.store_values import CELL, NOW, a_run, an_attempt, insert, running

PATROL = Event(EventKind.PATROL, "All is well.")
TTL_S = 8.0


def patrols_told(store: Store) -> int:
    return sum(one.event.kind == EventKind.PATROL for one in store.events(None, 0, 1000))


class PatrolsSuite:
    def test_a_patrol_is_told_by_whoever_read_the_last_one_only(self, store: Store, reopened: Store) -> None:
        assert store.patrols.last() is None
        assert store.patrols.record(None, None, NOW)
        assert not reopened.patrols.record(None, None, NOW + 1), "the count has begun"
        assert (reopened.patrols.last(), patrols_told(store)) == (NOW, 0)
        assert store.patrols.record(PATROL, NOW, NOW + 86_400.25)
        assert not reopened.patrols.record(PATROL, NOW, NOW + 86_401), "it was told meanwhile"
        assert (reopened.patrols.last(), patrols_told(reopened)) == (NOW + 86_400.25, 1)

    def test_of_many_at_once_one_tells_it(self, store: Store, reopened: Store) -> None:
        store.patrols.record(None, None, NOW)
        handles = [store, reopened] * 8
        with ThreadPoolExecutor(8) as pool:
            told = list(pool.map(lambda one: one.patrols.record(PATROL, NOW, NOW + 9), handles))
        assert (sum(told), patrols_told(store)) == (1, 1), (told, store.patrols.last())

    def test_attempts_of_live_runs_and_of_those_that_ended_lately(self, store: Store) -> None:
        def keep(run_id: str, status: Status, at: float, attempts: int = 1) -> None:
            [run] = insert(store, a_run(run_id))
            for number in range(1, attempts + 1):
                run = self._apply(store, run, running(run, number))
            self._apply(store, run, replace(run, status=status, status_since=at, settled=status == Status.FAILED))

        keep("live", Status.RUNNING, NOW, attempts=3)
        keep("lately", Status.FAILED, NOW + 100)
        keep("long-ago", Status.FAILED, NOW - 100)
        insert(store, a_run("not-begun"))
        first, more = store.patrols.attempts(NOW, 0, 1)
        assert [one.number for one in first] == [1, 2, 3]
        assert more is not None
        rest, last = store.patrols.attempts(NOW, more, 5)
        assert (len(rest), last) == (1, None), "without the run of long ago"
        assert rest[0] == an_attempt()

    def _apply(self, store: Store, before: object, after: object) -> object:
        with store.begin(NOW) as tx:
            stored = tx.apply(Change(before, after), NOW)  # type: ignore[arg-type]
        assert stored is not None
        return stored

    def test_a_lease_tells_how_long_nobody_held_it(self, store: Store) -> None:
        assert store.patrols.lease_gap(CELL, TTL_S) is None
        lease = store.take_lease(CELL, "me", TTL_S, 0.0)
        assert lease is not None
        held = store.patrols.lease_gap(CELL, TTL_S)
        assert held is not None
        assert held.held
        assert held.unled_s is not None
        assert held.unled_s < TTL_S
        store.drop_lease(lease)
        back = store.patrols.lease_gap(CELL, TTL_S)
        assert back is not None
        assert not back.held
        assert back.unled_s is not None
        assert 0.0 <= back.unled_s < 60.0, "since it was given back"
        assert store.take_lease(CELL, "next", TTL_S, 0.0) is not None, "it is free at once"
