"""The contract of the store, for each database.

An implementation's test file subclasses StoreSuite and gives two fixtures: `store`, opened on a new database, and
`reopened`, another handle on the same one, as a second process would have it.
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from supervisor.ports.store import Change, DuplicateRun, KeptResponse, Sample, Store
from tests.contracts.patrols_suite import PatrolsSuite
from tests.contracts.store_bases import BasesSuite
from tests.contracts.store_incidents import IncidentsSuite
from tests.contracts.store_loop import LoopSuite
from tests.contracts.store_readers import ReadersSuite
from tests.contracts.store_replicas import ReplicasSuite
from tests.contracts.store_runs import RunsSuite
from tests.contracts.store_values import CELL, NOW, SPEC, STARTED, SUBMITTED, a_pulse, a_run, insert, lease_of
from tests.contracts.tokens_suite import TokensSuite

THREADS, KEYS = 8, 300


class StoreSuite(
    RunsSuite, LoopSuite, ReadersSuite, ReplicasSuite, TokensSuite, PatrolsSuite, IncidentsSuite, BasesSuite
):
    def test_the_supervisors_id_is_made_once(self, store: Store, reopened: Store) -> None:
        assert len(store.supervisor_id) >= 8
        assert reopened.supervisor_id == store.supervisor_id

    def test_another_handle_sees_what_was_committed(self, store: Store, reopened: Store) -> None:
        with store.begin(NOW) as tx:
            run = tx.insert(a_run(), SPEC, {}, [SUBMITTED])
            assert reopened.find("digits-1") is None
        assert reopened.find("digits-1") == run

    def test_of_two_that_change_one_run_one_wins(self, store: Store, reopened: Store) -> None:
        (run,) = insert(store, a_run())
        start = threading.Barrier(2)

        def change(handle: Store) -> bool:
            start.wait()
            with handle.begin(NOW) as tx:
                return tx.apply(Change(run, replace(run, hold="mine"), (STARTED,)), NOW) is not None

        with ThreadPoolExecutor(2) as pool:
            assert sorted(pool.map(change, (store, reopened))) == [False, True]
        assert len(store.events("digits-1", 0, 9)) == 2

    def test_eight_threads_with_the_same_keys_make_each_run_once(self, store: Store) -> None:
        start = threading.Barrier(THREADS)

        def submit(thread: int) -> list[str]:
            start.wait()
            bodies = []
            for n in range(KEYS):
                with store.begin(NOW) as tx:
                    kept = tx.take_key("local POST /v1/runs", f"key-{n}", "print", NOW)
                    if kept is None:
                        run = tx.insert(a_run(f"run-{thread}-{n}"), SPEC, {}, [SUBMITTED])
                        kept = KeptResponse("print", 201, run.run_id, f"/v1/runs/{run.run_id}")
                        tx.keep_response("local POST /v1/runs", f"key-{n}", kept)
                bodies.append(kept.body)
            return bodies

        with ThreadPoolExecutor(THREADS) as pool:
            answers = list(pool.map(submit, range(THREADS)))
        runs, _ = store.active(CELL, {})
        assert len(runs) == KEYS
        assert all(answer == answers[0] for answer in answers)
        assert {run.run_id for run in runs} == set(answers[0])

    def test_of_eight_that_insert_one_id_one_wins(self, store: Store) -> None:
        start = threading.Barrier(THREADS)

        def submit(_thread: int) -> int:
            start.wait()
            won = 0
            for n in range(20):
                try:
                    with store.begin(NOW) as tx:
                        tx.insert(a_run(f"run-{n}"), SPEC, {"a": "b"}, [SUBMITTED])
                    won += 1
                except DuplicateRun:
                    pass
            return won

        with ThreadPoolExecutor(THREADS) as pool:
            assert sum(pool.map(submit, range(THREADS))) == 20
        assert len(store.events(None, 0, 99)) == 20

    def test_writers_of_all_kinds_do_not_shut_each_other_out(self, store: Store, reopened: Store) -> None:
        """Two handles, like two processes: neither gets an error that the database is locked."""
        runs = insert(store, *(a_run(f"run-{n}") for n in range(60)))
        lease = lease_of(store)
        hit: list[int] = []

        def decide() -> None:
            for at in range(0, 60, 20):
                changes = [Change(run, replace(run, hold="decided"), (STARTED,)) for run in runs[at : at + 20]]
                hit.extend(store.apply_all(changes, NOW, lease))
                store.write_pulses([Sample(run.key, NOW + at, 1, a_pulse(at)) for run in runs], lease)

        def submit(handle: Store, name: str) -> None:
            for n in range(40):
                insert(handle, a_run(f"{name}-{n}"))
                handle.add_events(runs[n].key, [STARTED], NOW)

        def read() -> None:
            for _ in range(20):
                store.active(CELL, {})
                reopened.events(None, 0, 50)

        jobs = [decide, read, *(lambda h=h, n=n: submit(h, n) for h, n in ((store, "a-a"), (reopened, "b-b")))]
        with ThreadPoolExecutor(len(jobs)) as pool:
            for job in [pool.submit(job) for job in jobs]:
                job.result()
        assert len(hit) == 60
        assert len(store.active(CELL, {})[0]) == 60 + 80
        told = store.events("run-5", 0, 99)
        assert len(told) == 4
        assert len({kept.id for kept in told}) == 4

    def test_a_healthy_store_checks_out(self, store: Store) -> None:
        store.check()
        assert store.events(None, 0, 9) == []
