"""Runs of another cell, named after a provider of the fleet, move to the fleet's leader if that cell has none."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.domain.attempt import Retiring
from supervisor.domain.machines import MachineRef
from supervisor.ports.store import Lease, StoreDown
from supervisor.reconciler.leader import RENEW_S, TAKEOVER_S, TRY_S, Leader, Takeover
from supervisor.storage.store import SqlStore
from tests.contracts.store_values import a_run, insert
from tests.fakes.clock import FakeClock
from tests.scenarios.fault_points import DatabaseAccess
from tests.services.fresh import open_fresh

OURS, THEIRS = "lab folder file:///store", "cloud project file:///store"
OTHERS = (THEIRS, "never led file:///store")


class Scene:
    def __init__(self, store: SqlStore, alone: bool, others: tuple[str, ...] = OTHERS) -> None:
        self.clock, self.store = FakeClock(), DatabaseAccess(store)
        self.leader = Leader(self.store, OURS, "me", self.clock, alone, lambda: None)  # type: ignore[arg-type]
        self.takeover = Takeover(self.store, self.leader, others, frozenset({"lab"}))  # type: ignore[arg-type]

    def tick(self) -> int:
        self.clock.advance(TAKEOVER_S)
        self.leader.renew()
        return self.takeover.run()

    def led(self) -> set[str]:
        return {run.run_id for run in self.store.active(OURS, {})[0]}


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqlStore]:
    store = open_fresh(tmp_path / "spot.db")
    for number in range(3):
        insert(store, replace(a_run(f"digits-{number}"), cell=THEIRS))
    yield store
    store.close()


def test_runs_move_from_a_cell_without_a_leader(store: SqlStore) -> None:
    gone = store.take_lease(THEIRS, "before", 8.0, 0.0)
    assert gone is not None
    store.drop_lease(gone)
    scene = Scene(store, alone=False)
    assert scene.tick() == 3
    assert scene.led() == {"digits-0", "digits-1", "digits-2"}
    assert scene.tick() == 0


def test_runs_stay_where_the_other_cell_has_a_leader(store: SqlStore) -> None:
    held = store.take_lease(THEIRS, "before", 60.0, 0.0)
    assert held is not None
    scene = Scene(store, alone=False)
    assert scene.tick() == 0
    assert scene.led() == set()
    store.drop_lease(held)
    assert scene.tick() == 3


def test_a_process_alone_on_its_data_folder_takes_them_at_once(store: SqlStore) -> None:
    store.take_lease(THEIRS, "killed", 60.0, 0.0)
    assert Scene(store, alone=True).tick() == 3


def test_who_does_not_lead_takes_nothing(store: SqlStore) -> None:
    store.take_lease(THEIRS, "before", 60.0, 0.0)
    store.take_lease(OURS, "another replica", 60.0, 0.0)
    assert Scene(store, alone=False).tick() == 0


def test_it_runs_at_its_interval_and_survives_a_database_that_is_down(store: SqlStore) -> None:
    store.take_lease(THEIRS, "killed", 60.0, 0.0)
    scene = Scene(store, alone=True)
    scene.leader.renew()
    scene.store.down = True
    with pytest.raises(StoreDown):
        scene.store.lease_names()
    assert scene.takeover.run() == 0
    scene.store.down = False
    assert scene.takeover.run() == 0, "not before its time"
    assert scene.tick() == 3


def bereft(store: SqlStore, cell: str = THEIRS, provider: str = "lab") -> None:
    """A cell that was led before, with a run of this provider."""
    insert(store, replace(a_run("essay"), cell=cell, provider=provider))
    store.take_lease(cell, "killed", 60.0, 0.0)


def test_a_cell_whose_own_provider_left_the_settings_comes_over_with_the_runs_of_another(store: SqlStore) -> None:
    bereft(store)
    scene = Scene(store, alone=True, others=())
    assert scene.tick() == 4
    assert scene.led() == {"digits-0", "digits-1", "digits-2", "essay"}


def test_a_run_that_only_has_a_machine_left_here_comes_too(store: SqlStore) -> None:
    leftover = Retiring(MachineRef("lab", "bench", "spot-essay-a01-t1", "9"), "essay.a01.t1", 0.0, 0.0)
    insert(store, replace(a_run("essay"), cell=THEIRS, provider="cloud", retiring=(leftover,)))
    store.take_lease(THEIRS, "killed", 60.0, 0.0)
    assert Scene(store, alone=True, others=()).tick() == 4


def test_where_others_may_serve_the_database_such_a_cell_is_left_alone(store: SqlStore) -> None:
    bereft(store)
    store.drop_lease(store.take_lease(THEIRS, "killed", 60.0, 0.0))  # type: ignore[arg-type]
    scene = Scene(store, alone=False, others=())
    assert scene.tick() == scene.tick() == 0
    assert scene.led() == set()


@pytest.mark.parametrize(
    ("cell", "provider"),
    [
        (THEIRS, "cloud"),  # nothing in it is of a provider that is open here
        ("cloud project file:///another", "lab"),  # another store
        ("lab another-folder file:///store", "lab"),  # machines of the same name that are not listed here
        ("retention", "lab"),  # the lease of no cell
    ],
)
def test_another_cell_is_left_alone(store: SqlStore, cell: str, provider: str) -> None:
    bereft(store, cell, provider)
    scene = Scene(store, alone=True, others=())
    assert scene.tick() == scene.tick() == 0
    assert scene.led() == set()
    assert scene.store.calls["lease_names"] == 1, "no run is submitted there meanwhile"


class Counted:
    """A store of leases: how often one was requested, and whether it is given."""

    def __init__(self) -> None:
        self.requests, self.free = 0, False

    def take_lease(self, cell: str, owner: str, ttl_s: float, monotonic: float, alone: bool) -> Lease | None:
        self.requests += 1
        return Lease(cell, owner, 1, monotonic + ttl_s) if self.free else None


def test_a_follower_tries_every_turn_and_a_leader_renews_every_second_one() -> None:
    store, clock = Counted(), FakeClock()
    leader = Leader(store, OURS, "me", clock, False, lambda: None)  # type: ignore[arg-type]

    def turns(count: int) -> int:
        before = store.requests
        for _ in range(count):
            clock.advance(TRY_S)
            leader.turn()
        return store.requests - before

    assert turns(6) == 6
    store.free = True
    assert turns(1) == 1
    assert leader.lease() is not None
    assert turns(6) == 6 * TRY_S / RENEW_S
    store.free = False  # it was taken from us
    assert turns(2) == 1
    assert turns(3) == 3
