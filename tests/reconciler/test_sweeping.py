"""The sweep does not touch machines of a run in the same database that another cell's leader has."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from supervisor.domain.events import EventKind
from supervisor.domain.machines import Machine, MachineListing, MachineState
from supervisor.ports.store import Lease
from supervisor.reconciler.acting.sweeping import Sweeper
from supervisor.reconciler.observing.observe import ProviderListing
from tests.reconciler.test_tick import Bench
from tests.services.bed import Bed, make_bed
from tests.services.fresh import open_fresh

LEASE = Lease("cell", "me", 1, float("inf"))
NOW = 1_000_000.0


def machine(run_id: str, supervisor_id: str = "me") -> Machine:
    return Machine("id-" + run_id, "m-" + run_id, "z", MachineState.UP, supervisor_id, run_id, "1.1.1", NOW - 3600)


def released(*machines: Machine, led_elsewhere: Any) -> list[str]:
    snapshot: Any = SimpleNamespace(listings={"gce": ProviderListing(MachineListing(machines))})
    names: list[str] = []
    actor: Any = SimpleNamespace(submit=lambda run, action, lease: names.append(action.ref.name))
    Sweeper("me").sweep(snapshot, [], actor, lease=LEASE, now=NOW, led_elsewhere=led_elsewhere)
    return names


def test_a_machine_whose_run_another_bucket_s_leader_has_stays() -> None:
    both = machine("mine"), machine("moved")
    assert released(*both, led_elsewhere=lambda run_id: run_id == "moved") == ["m-mine"]


def test_they_do_not_count_as_too_many_at_once_either() -> None:
    many = [machine(f"moved-{number}") for number in range(9)]
    assert released(machine("mine"), *many, led_elsewhere=lambda run_id: run_id != "mine") == ["m-mine"]


def test_only_our_own_machines_are_looked_up_elsewhere() -> None:
    names: list[str] = []
    released(machine("theirs", "another"), machine("mine"), led_elsewhere=lambda run_id: bool(names.append(run_id)))
    assert names == ["mine"]


def test_too_many_at_one_provider_are_one_event_whatever_the_others_have() -> None:
    many = tuple(machine(f"lost-{number}") for number in range(9))
    snapshot: Any = SimpleNamespace(
        listings={name: ProviderListing(MachineListing(of)) for name, of in (("a", many), ("b", ()))}
    )
    sweeper = Sweeper("me")
    events = [
        event
        for _ in range(3)
        for event in sweeper.sweep(
            snapshot, [], SimpleNamespace(), lease=LEASE, now=NOW, led_elsewhere=lambda run_id: False
        )  # type: ignore[call-overload]
    ]
    assert [event.kind for event in events] == [EventKind.SWEEP_REFUSED]


@pytest.fixture
def bed(tmp_path: Path) -> Iterator[Bed]:
    with closing(open_fresh(tmp_path / "supervisor.db")) as store:
        yield make_bed(store, tmp_path)


def test_led_elsewhere_means_not_over_and_of_another_cell(bed: Bed) -> None:
    bed.submit("digits-7")
    tick = Bench().tick
    tick.store, tick.cell = bed.store, "local other gs://new"
    assert tick._led_elsewhere("digits-7")
    assert not tick._led_elsewhere("nobody")
    tick.cell = "local cell"
    assert not tick._led_elsewhere("digits-7")
    tick.cell = "local other gs://new"
    bed.end("digits-7", settled=True)
    assert not tick._led_elsewhere("digits-7")
