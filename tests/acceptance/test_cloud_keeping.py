"""`keep: machine` on Google Cloud: real loop, provider and store over real HTTP, in virtual time (cloud_house.py)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.acceptance.cloud_house import CloudHouse, cloud_house
from tests.cloud.cloud import ZONES
from tests.cloud.web import Reset
from tests.scenarios.sim_plan import Plan

FIRST, SECOND, _ = ZONES
LONG = Plan(steps=200, checkpoint=40, push=False)


def trains(house: CloudHouse, **spec: Any) -> None:
    house.submit("digits", LONG, keep="machine", **spec)
    house.play("wait until digits status=running checkpoint!=none within=20min")


def test_the_same_vm_goes_on_and_is_deleted_when_its_time_is_over(folder: Path) -> None:
    """The response of its first start is lost as well."""
    with cloud_house(folder) as house:
        trains(house, keep_for_s=3600.0)
        vm_id = house.vm("digits").id
        house.compute.fail_next("POST", r"/start$", Reset, times=1, lost=True)
        house.compute.preempt(house.vm("digits").name)
        house.play("wait until digits status=completed within=3h")
        house.play(
            f"expect digits causes=preempted,finished zones={FIRST},{FIRST} counted=0 machine_names=1 resumed>=41"
        )
        assert house.inserts() == [FIRST]
        assert house.vm("digits").id == vm_id
        house.play("wait until digits machine_kept=yes within=5min", "wait 2min")
        assert house.vm("digits").status == "TERMINATED"
        house.play("wait until digits settled=yes within=70min")
        assert house.machines() == []


def test_without_capacity_it_is_deleted_before_a_new_one_is_asked_for(folder: Path) -> None:
    with cloud_house(folder) as house:
        trains(house, keep_wait_s=600.0)
        first = house.vm("digits").name
        house.compute.stock_out(FIRST)
        house.compute.preempt(first)
        house.play("wait until digits status=waiting within=10min", "expect digits machine_kept=yes")
        house.play("wait until digits status=running attempts=2 within=30min")
        house.play(f"expect digits zones={FIRST},{SECOND} counted=0")
        assert house.deletes() == [first]
        asked = [one.path for one in house.compute.requests if one.method in ("POST", "DELETE")]
        deleted_at = next(at for at, path in enumerate(asked) if path.endswith(f"/instances/{first}"))
        assert [at for at, path in enumerate(asked) if path.endswith("/instances")][1] > deleted_at
        house.play("wait until digits status=completed within=3h")


def test_a_vm_that_a_person_deletes_while_it_is_off_is_replaced(folder: Path) -> None:
    with cloud_house(folder) as house:
        trains(house)
        house.compute.stock_out(FIRST)
        house.compute.preempt(house.vm("digits").name)
        house.play("wait until digits status=waiting within=10min")
        house.compute.delete_by("ada@example.com", house.vm("digits").name)
        house.play("wait until digits status=running attempts=2 within=10min")
        house.play(f"expect digits zones={FIRST},{SECOND} counted=0 machine_names=2")


def test_a_vm_that_somebody_starts_while_it_is_off_is_switched_off_and_used_later(folder: Path) -> None:
    """It boots into its old launch, whose attempt is over: no step of it counts, and no second machine appears."""
    with cloud_house(folder) as house:
        trains(house, keep_fallback="wait")
        house.compute.stock_out(FIRST)
        house.compute.preempt(house.vm("digits").name)
        house.play("wait until digits status=waiting within=10min", "wait 1min")
        house.compute.restock()
        vm = house.vm("digits")
        with house.compute.lock:
            house.compute.start(vm, "ada@example.com", house.now())
        house.play("wait until digits status=running attempts=2 within=40min")
        stops = [one.path for one in house.compute.requests if one.path.endswith("/stop")]
        assert stops
        house.play(f"expect digits zones={FIRST},{FIRST} machine_names=1 counted=0")
        assert house.inserts() == [FIRST]
