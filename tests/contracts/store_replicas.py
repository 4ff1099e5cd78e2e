"""The store's contract for several supervisors on one database: beats for the leader, cells without one."""

from __future__ import annotations

import time
from dataclasses import replace

from supervisor.contract.heartbeat import Beat
from supervisor.domain.machines import ZoneRecord
from supervisor.domain.status import Status
from supervisor.ports.store import PushedBeat, Store
from tests.contracts.store_values import CELL, a_run, changed, insert, lease_of, running

NONE: list[PushedBeat] = []


def a_beat(run_id: str = "digits-1", launch_id: str = "1.1.1", sequence: int = 1, **fields: object) -> Beat:
    plain = Beat(run_id, int(launch_id.split(".")[1]), launch_id, "local:0a:71:22", "0a", sequence, "training")
    return plain._replace(**fields)


def put(store: Store, *beats: Beat, age_s: float = 0.0) -> dict[str, str]:
    return store.put_beats([PushedBeat(beat, age_s) for beat in beats])


def steps(found: list[PushedBeat]) -> dict[str, int | None]:
    return {one.beat.run_id: one.beat.step for one in found}


class ReplicasSuite:
    def test_the_leader_gets_each_beat_once_as_it_was(self, store: Store, reopened: Store) -> None:
        insert(store, a_run())
        beat = a_beat(step=7, total=9, metrics={"loss": 0.5}, message="Verlust fällt ☂", notice_s=30.0)
        assert put(reopened, beat) == {"digits-1": "pending"}
        (found,) = store.take_beats(lease_of(store))
        assert found.beat == beat
        assert store.take_beats(lease_of(store)) == NONE

    def test_the_newest_launch_and_sequence_wins_in_any_order(self, store: Store) -> None:
        insert(store, a_run())
        lease = lease_of(store)
        put(store, a_beat(launch_id="1.2.1", sequence=3, step=5))
        put(store, a_beat(launch_id="1.10.1", sequence=2, step=10))
        put(store, a_beat(launch_id="1.2.9", sequence=999, step=6))
        put(store, a_beat(launch_id="1.10.1", sequence=1, step=9))
        assert steps(store.take_beats(lease)) == {"digits-1": 10}
        put(store, a_beat(sequence=10, step=2), a_beat(sequence=9, step=1))
        assert steps(store.take_beats(lease)) == {"digits-1": 2}

    def test_a_repeated_beat_gets_no_younger(self, store: Store) -> None:
        insert(store, a_run())
        put(store, a_beat(sequence=4), age_s=50.0)
        put(store, a_beat(sequence=4), age_s=0.0)
        (found,) = store.take_beats(lease_of(store))
        assert 50.0 <= found.age_s < 80.0

    def test_ages_go_on_while_a_beat_waits(self, store: Store) -> None:
        insert(store, a_run())
        before = time.monotonic()
        put(store, a_beat(), age_s=12.0)
        time.sleep(0.1)
        (found,) = store.take_beats(lease_of(store))
        assert 12.09 <= found.age_s <= 12.0 + (time.monotonic() - before) + 0.05

    def test_only_the_leader_of_the_cell_takes(self, store: Store) -> None:
        insert(store, a_run("here-1"), a_run("there-1", cell="elsewhere"))
        old = lease_of(store, "old")
        put(store, a_beat("here-1", step=1), a_beat("there-1", step=2))
        new = store.take_lease(CELL, "new", 60.0, 0.0, alone=True)
        there = store.take_lease("elsewhere", "new", 60.0, 0.0)
        assert new is not None
        assert there is not None
        assert store.take_beats(old) == NONE
        assert steps(store.take_beats(there)) == {"there-1": 2}
        assert steps(store.take_beats(new)) == {"here-1": 1}

    def test_of_runs_that_are_over_nothing_is_kept(self, store: Store) -> None:
        going, over, ending = insert(store, a_run("going"), a_run("over"), a_run("ending"))
        changed(store, over, replace(over, status=Status.COMPLETED, settled=True))
        changed(store, ending, replace(running(ending), status=Status.STOPPING))
        told = put(store, *(a_beat(name, step=1) for name in ("going", "over", "ending", "nobody")))
        assert told == {"going": "pending", "ending": "stopping"}
        changed(store, going, replace(going, status=Status.FAILED, settled=True))
        assert set(steps(store.take_beats(lease_of(store)))) <= {"going", "ending"}
        assert store.take_beats(lease_of(store)) == NONE

    def test_many_beats_in_one_call(self, store: Store) -> None:
        runs = insert(store, *(a_run(f"many-{n}") for n in range(700)))
        assert len(put(store, *(a_beat(run.run_id, step=n) for n, run in enumerate(runs)))) == 700
        assert steps(store.take_beats(lease_of(store))) == {f"many-{n}": n for n in range(700)}
        assert store.take_beats(lease_of(store)) == NONE
        assert put(store) == {}

    def test_cells_without_a_leader_are_known(self, store: Store) -> None:
        *_, over = insert(
            store, a_run("a-1"), a_run("a-2"), a_run("b-1", cell="b"), a_run("c-1", cell="c"), a_run("d-1", cell="d")
        )
        changed(store, over, replace(over, status=Status.COMPLETED, settled=True))
        assert store.leaderless() == {CELL: 2, "b": 1, "c": 1}
        lease = lease_of(store)
        assert store.take_lease("b", "me", -1.0, 0.0) is not None  # expired as soon as it is taken
        assert store.leaderless() == {"b": 1, "c": 1}
        store.drop_lease(lease)
        assert store.leaderless() == {CELL: 2, "b": 1, "c": 1}
        assert store.lease_names() == sorted([CELL, "b"]), "also when nobody holds them any more"

    def test_live_runs_come_over_before_ended_ones(self, store: Store) -> None:
        for number in range(4):
            [made] = insert(store, replace(a_run(f"digits-{number}"), cell="theirs"))
            if number < 3:
                changed(store, made, replace(made, status=Status.COMPLETED, settled=True))
        ours, theirs = lease_of(store), store.take_lease("theirs", "me", 8.0, 0.0)
        assert theirs is not None
        assert store.take_over(theirs, ours, 1) == 1
        assert [run.run_id for run in store.active(CELL, {})[0]] == ["digits-3"]

    def test_the_runs_of_another_cell_come_over_under_both_leases(self, store: Store, reopened: Store) -> None:
        for number in range(3):
            insert(store, replace(a_run(f"digits-{number}"), cell="theirs"))
        key = ("gce", "east-a", "t4", True)
        learned, older = ZoneRecord(1, 2e9, "no_capacity", "none left"), ZoneRecord(2, 1e9, "quota", "none")
        store.put_zone("theirs", key, learned)
        store.put_zone("theirs", ("gce", "east-b", "t4", True), learned)
        store.put_zone(CELL, key, older)
        ours, theirs = lease_of(store), store.take_lease("theirs", "me", 8.0, 0.0)
        assert theirs is not None
        assert store.take_over(replace(theirs, epoch=theirs.epoch + 1), ours, 10) == 0
        assert store.take_over(theirs, replace(ours, owner="another"), 10) == 0
        assert [store.take_over(theirs, ours, 2) for _ in range(3)] == [2, 1, 0]
        changed_rows, keys = reopened.active(CELL, {})
        assert {run.run_id for run in changed_rows} == {"digits-0", "digits-1", "digits-2"}
        assert reopened.active("theirs", {}) == ([], set())
        assert len(keys) == 3
        known = {run.key: run.version - 1 for run in changed_rows}
        assert len(reopened.active(CELL, known)[0]) == 3, "a leader that held the row reads it anew"
        assert reopened.zones(CELL) == {key: older, ("gce", "east-b", "t4", True): learned}
        assert reopened.zones("theirs") == {}
