"""Faults of Google Cloud while a machine is looked for: no room, no quota, answers that are lost, late or ambiguous.

Real loop, provider and store over real HTTP, in virtual time (cloud_house.py).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from supervisor.contract.identifiers import machine_name
from supervisor.domain.machines import LAUNCH_LABEL, SUPERVISOR_LABEL
from tests.acceptance.cloud_house import CloudHouse, cloud_house
from tests.cloud.cloud import ZONES
from tests.cloud.web import Hang, Reset
from tests.scenarios.sim_plan import Plan

FIRST, SECOND, THIRD = ZONES
INSERT = r"/instances$"
STOCK_OUTS = ["ZONE_RESOURCE_POOL_EXHAUSTED", "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", "GPU_STOCKOUT_FOR_NOW"]
SHORT = Plan(steps=100, push=False)


def completes(house: CloudHouse, run_id: str = "digits") -> None:
    house.play(f"wait until {run_id} status=completed settled=yes machines=0 within=3h")
    assert house.machines() == []


@pytest.mark.parametrize("code", STOCK_OUTS[:2])
def test_no_room_in_any_zone_is_waited_for_paced_and_free(folder: Path, code: str) -> None:
    with cloud_house(folder) as house:
        house.compute.stock_out("*", code=code)
        house.submit("digits", SHORT)
        house.play(
            "wait until digits status=waiting within=10min",
            "expect digits cause=no_capacity attempts=0 counted=0 cost_usd<=0",
            "expect digits outcomes=no_capacity,no_capacity,no_capacity sentence~Nothing",
        )
        assert house.inserts() == [FIRST, SECOND, THIRD]
        asked = len(house.inserts())
        house.play("wait 30min")
        assert len(house.inserts()) - asked <= 3 * 5  # cool-downs that grow, from 3 minutes on
        house.compute.restock()
        house.play("wait until digits status=running within=1h")
        completes(house)
        house.play("expect digits causes=finished attempts=1 counted=0")


def test_a_zone_without_room_is_passed_over(folder: Path) -> None:
    with cloud_house(folder) as house:
        house.compute.stock_out(FIRST)
        house.submit("digits", SHORT)
        completes(house)
        house.play(
            f"expect digits zones={SECOND} try_zones={FIRST},{SECOND} outcomes=no_capacity,obtained",
            "expect digits attempts=1",
        )


@pytest.mark.parametrize("at_once", [False, True])
def test_a_quota_of_a_region_is_no_stock_out(folder: Path, at_once: bool) -> None:
    with cloud_house(folder, zones=(FIRST, SECOND, "us-central1-a")) as house:
        house.compute.quota("us-east1", "PREEMPTIBLE_NVIDIA_T4_GPUS", at_once=at_once)
        house.submit("digits", SHORT)
        completes(house)
        house.play("expect digits zones=us-central1-a outcomes=quota,obtained")
        assert house.inserts() == [FIRST, "us-central1-a"]  # the other zone of that region is not asked


@pytest.mark.parametrize("at_once", [False, True])
def test_the_quota_of_the_whole_project_stops_every_zone(folder: Path, at_once: bool) -> None:
    with cloud_house(folder, zones=(FIRST, "us-central1-a")) as house:
        house.compute.quota("*", "GPUS_ALL_REGIONS", at_once=at_once)
        house.submit("digits", SHORT)
        house.play(
            "wait until digits status=waiting within=10min",
            "expect digits cause=quota outcomes=quota sentence~GPUS_ALL_REGIONS",
        )
        assert house.inserts() == [FIRST]
        house.compute.raise_quota()
        completes(house)


@pytest.mark.parametrize("how", [Hang, Reset, 503])
def test_a_machine_whose_insert_was_never_answered_is_adopted(folder: Path, how: object) -> None:
    """The request is carried out, the answer is lost: the next look finds the machine, or the same request again."""
    with cloud_house(folder) as house:
        house.compute.fail_next("POST", INSERT, how, times=1, lost=True)
        house.submit("digits", SHORT)
        house.play("wait until digits status=running within=15min")
        assert set(house.inserts()) == {FIRST}
        assert len(house.machines("digits")) == 1
        completes(house)
        house.play("expect digits attempts=1 tries=1 causes=finished")


def test_the_next_zone_is_asked_only_when_the_first_has_said_no(folder: Path) -> None:
    """Ten minutes of no clear answer: nothing but the same insert again."""
    with cloud_house(folder) as house:
        house.compute.fail_next("POST", INSERT, 503, for_s=600.0)
        house.submit("digits", SHORT)
        house.play("wait 9min", "expect digits status=launching tries=1 machines=0")
        assert set(house.inserts()) == {FIRST}
        house.compute.stock_out(FIRST)
        completes(house)
        house.play(f"expect digits try_zones={FIRST},{SECOND} outcomes=no_capacity,obtained")


def test_asking_is_not_having(folder: Path) -> None:
    """The insert runs for ten minutes and ends as a stock-out: no other zone meanwhile, no attempt, no cost."""
    with cloud_house(folder) as house:
        house.compute.fail_s = 600.0
        house.compute.stock_out(FIRST)
        house.submit("digits", SHORT)
        house.play("wait 8min", "expect digits status=launching attempts=0 cost_usd<=0")
        assert set(house.inserts()) == {FIRST}
        house.compute.fail_s = 2.0
        completes(house)
        house.play(f"expect digits zones={SECOND} attempts=1")


def test_an_insert_that_never_ends_is_given_up(folder: Path) -> None:
    """Google looks for room for ever: the pending machine is deleted, and only then the next zone is asked."""
    with cloud_house(folder) as house:
        house.compute.create_s = 1e6
        house.submit("digits", SHORT)
        house.play("wait 14min", "expect digits status=launching attempts=0 sentence~looking")
        assert (house.deletes(), set(house.inserts())) == ([], {FIRST})
        first = house.vm("digits").name
        house.play("wait 1min")
        house.compute.create_s = 4.0
        completes(house)
        house.play(f"expect digits try_zones={FIRST},{SECOND} outcomes=no_capacity,obtained attempts=1")
        assert house.deletes()[0] == first


def test_an_insert_that_is_never_answered_is_given_up(folder: Path) -> None:
    """It is not sent again, and the next zone is asked once nothing can come of it any more."""
    with cloud_house(folder) as house:
        house.compute.fail_next("POST", f"{FIRST}/instances$", 503, for_s=7200.0)
        house.submit("digits", SHORT)
        house.play("wait 17min", "expect digits status=launching tries=1 machines=0")
        asked = len(house.inserts())
        house.play("wait 30s")
        assert len(house.inserts()) == asked
        completes(house)
        house.play(f"expect digits try_zones={FIRST},{SECOND} outcomes=no_capacity,obtained attempts=1")


def test_a_machine_of_that_name_and_another_try_is_left_alone(folder: Path) -> None:
    with cloud_house(folder) as house:
        name = machine_name("spot", house.rows.supervisor_id, "digits", 1, 1)
        house.add(name, FIRST, {LAUNCH_LABEL: "9-9-9", SUPERVISOR_LABEL: "another"})
        house.submit("digits", SHORT)
        completes(house)
        house.play("expect digits attempts=1 outcomes=launch_rejected,obtained")
        assert house.compute.instance(name).status == "RUNNING"


def test_preempted_while_it_was_created(folder: Path) -> None:
    with cloud_house(folder) as house:
        house.compute.create_s = 40.0
        house.submit("digits", SHORT)
        house.play("wait until digits machines=1 within=2min")
        house.compute.preempt(house.vm("digits").name)
        house.compute.create_s = 4.0
        completes(house)
        house.play("expect digits counted=0")
        assert house.inserts()[0] == FIRST
        assert house.inserts()[-1] == SECOND


def test_a_machine_that_came_and_went_unseen_and_nobody_says_why(folder: Path) -> None:
    """Neither the insert's answer nor a list told of it: the same question must not be asked for ever."""
    with cloud_house(folder) as house:
        house.compute.fail_next("POST", INSERT, 503, for_s=60.0, lost=True)
        house.submit("digits", Plan(steps=100, boot=300.0, push=False))
        house.play("wait until digits status=launching within=1min")
        house.compute.fail_next("GET", "/aggregated/", 503, for_s=120.0)
        house.play("wait 5s", "expect digits status=launching attempts=0")
        house.compute.preempt(house.vm("digits").name, notice=False, record=False)
        house.plans["digits"] = SHORT
        house.play("wait until digits status=running within=10min")
        completes(house)
        house.play(f"expect digits outcomes=no_capacity,obtained try_zones={FIRST},{SECOND} counted=0")


def test_an_image_that_is_not_there_ends_the_run_before_anything_is_rented(folder: Path) -> None:
    with cloud_house(folder) as house:
        house.submit("digits", image=house.image("nobody:1"))
        house.play("wait until digits status=failed within=5min", "expect digits cause=image_error tries=0 cost_usd<=0")
        assert house.inserts() == []


def test_a_run_id_of_63_characters(folder: Path) -> None:
    run_id = "r" + "0123456789" * 6 + "ab"
    assert len(run_id) == 63
    with cloud_house(folder) as house:
        house.submit(run_id, SHORT)
        house.play(f"wait until {run_id} status=running within=15min")
        vm = house.vm(run_id)
        assert vm.metadata["spot-run-id"] == run_id
        house.compute.preempt(vm.name)
        completes(house, run_id)
        house.play(f"expect {run_id} causes=preempted,finished")
