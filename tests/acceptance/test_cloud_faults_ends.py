"""Faults of Google Cloud while a machine trains: taken away, silent, deleted by people, unreadable, slow to go.

Real loop, provider and store over real HTTP, in virtual time (cloud_house.py).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from supervisor.contract import heartbeat, runfiles
from supervisor.domain.machines import RUN_LABEL, SUPERVISOR_LABEL
from tests.acceptance.cloud_house import CloudHouse, cloud_house
from tests.acceptance.test_cloud_faults_placing import completes
from tests.cloud.cloud import BUCKET, ZONES
from tests.scenarios.sim_plan import Plan

FIRST, SECOND, _ = ZONES
LONG = Plan(steps=200, checkpoint=40, push=False)


def trains(house: CloudHouse, run_id: str = "digits", plan: Plan = LONG) -> None:
    """It has a checkpoint of its own."""
    house.submit(run_id, plan)
    house.play(f"wait until {run_id} status=running checkpoint!=none within=20min")


def test_preempted_with_notice_saves_and_goes_on_elsewhere(folder: Path) -> None:
    with cloud_house(folder, notice_s=120) as house:
        trains(house)
        house.compute.preempt(house.vm("digits").name)
        completes(house)
        house.play(
            f"expect digits causes=preempted,finished zones={FIRST},{SECOND} counted=0 preemptions=1",
            "expect digits resumed>=41",  # not the last regular checkpoint, but the one that the notice left time for
        )


def test_preempted_without_notice_is_known_by_its_operation(folder: Path) -> None:
    with cloud_house(folder) as house:
        trains(house)
        house.compute.preempt(house.vm("digits").name, notice=False)
        house.play("wait until digits causes=preempted within=2min", "expect digits evidence~preempted")
        completes(house)
        house.play(f"expect digits causes=preempted,finished zones={FIRST},{SECOND} counted=0")


def test_preempted_70_seconds_after_the_insert_without_any_marker(folder: Path) -> None:
    """Gone before its first beat, and Google's own record of it is all there is."""
    with cloud_house(folder) as house:
        house.submit("digits", Plan(steps=100, boot=300.0, push=False))
        house.play("wait until digits machines=1 within=2min", "wait 66s")
        house.compute.preempt(house.vm("digits").name)
        house.plans["digits"] = Plan(steps=100, push=False)
        completes(house)
        house.play(f"expect digits causes=preempted,finished zones={FIRST},{SECOND} counted=0")


def test_an_operation_that_comes_late_is_waited_for(folder: Path) -> None:
    """The machine is gone for 40 s before Google tells why."""
    with cloud_house(folder) as house:
        trains(house)
        house.compute.preempt(house.vm("digits").name, notice=False, record_after_s=70.0)
        completes(house)
        house.play("expect digits causes=preempted,finished counted=0")


def test_gone_without_a_record_is_orphaned_by_two_signals(folder: Path) -> None:
    with cloud_house(folder) as house:
        trains(house)
        house.compute.preempt(house.vm("digits").name, record=False, notice=False)
        completes(house)
        house.play("expect digits causes=orphaned,finished counted=1")


def test_a_host_error_is_free(folder: Path) -> None:
    with cloud_house(folder) as house:
        trains(house)
        house.compute.host_error(house.vm("digits").name)
        completes(house)
        house.play("expect digits causes=host_error,finished counted=0")


@pytest.mark.parametrize("agent_dies", [False, True])
def test_the_time_limit_of_the_machine_itself(folder: Path, agent_dies: bool) -> None:
    """The agent knows its time; where it cannot tell, the operation does."""
    with cloud_house(folder) as house:
        house.submit("digits", Plan(steps=1000, push=False), limits={"machine_max_s": 600})
        house.play("wait 9min", "expect digits status=running checkpoint!=none")
        house.agent("digits").dead = agent_dies
        completes(house)
        house.play("expect digits causes=expired,finished counted=0")


def test_a_zombie_that_never_beats_again_is_lost_and_its_console_kept(folder: Path) -> None:
    with cloud_house(folder) as house:
        trains(house)
        vm = house.vm("digits")
        house.compute.append_serial(vm.name, vm.zone, b"kernel: soft lockup\n")
        house.agent("digits").dead = True
        completes(house)
        house.play("expect digits causes=agent_lost,finished counted=1")
        assert b"soft lockup" in house.objects.get(runfiles.console("digits", 1))[0]


def test_a_container_that_never_starts_is_told_with_the_end_of_the_console(folder: Path) -> None:
    with cloud_house(folder) as house:
        house.submit("digits", Plan(starts=False, push=False))
        house.play("wait until digits attempts=1 within=5min")
        vm = house.vm("digits")
        house.compute.append_serial(vm.name, vm.zone, b'spot: phase=image t=61 msg="pulling"\n')
        house.play("wait 5min")
        house.plans["digits"] = Plan(steps=100, push=False)  # of the next machine, which is requested at once
        house.play("wait until digits causes=boot_timeout within=40min")
        completes(house)
        house.play("expect digits causes=boot_timeout,finished counted=0")
        assert b"phase=image" in house.objects.get(runfiles.console("digits", 1))[0]
        assert FIRST not in house.inserts()[1:]


@pytest.mark.parametrize(
    ("left", "cause", "zone"),
    [
        (heartbeat.NO_GPU, "gpu_unavailable", SECOND),
        (heartbeat.NO_START, "unknown", FIRST),
        (heartbeat.NO_IMAGE, "image_error", None),
    ],
)
def test_the_last_word_of_a_machine_that_could_not_start(folder: Path, left: str, cause: str, zone: str | None) -> None:
    """`zone`: of the next attempt; None = there is none, and no other zone is tried."""
    with cloud_house(folder) as house:
        house.last_words["digits"] = (left, "no card after 1200 s")
        house.submit("digits", Plan(steps=100, push=False))
        house.play(f"wait until digits causes={cause} within=5min")
        if zone is not None:
            completes(house)
            house.play(f"expect digits causes={cause},finished zones={FIRST},{zone}")
        else:
            house.play("wait until digits status=failed machines=0 within=10min", f"expect digits cause={cause}")
            assert house.inserts() == [FIRST]


# --- people ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("deed", ["delete_by", "stop_by"])
def test_a_machine_that_a_person_took_away_names_the_person(folder: Path, deed: str) -> None:
    with cloud_house(folder) as house:
        trains(house)
        getattr(house.compute, deed)("alice@example.com", house.vm("digits").name)
        completes(house)
        house.play("expect digits causes=machine_deleted,finished counted=0")
        assert any("alice@example.com" in text for text in house.told("digits"))


def test_the_third_deletion_within_an_hour_ends_the_run(folder: Path) -> None:
    with cloud_house(folder) as house:
        house.submit("digits", LONG)
        for number in (1, 2, 3):
            house.play(f"wait until digits status=running attempts={number} within=20min")
            house.compute.delete_by("alice@example.com", house.vm("digits").name)
            house.play("wait 2min")
        house.play(
            "wait until digits status=failed machines=0 within=10min",
            "expect digits cause=machine_deleted attempts=3",
            "expect digits sentence~stop",
        )


def test_foreign_machines_are_told_of_and_never_touched(folder: Path) -> None:
    with cloud_house(folder) as house:
        house.add("mine-by-hand", FIRST)
        house.add("of-another", FIRST, {SUPERVISOR_LABEL: "another", RUN_LABEL: "digits"})
        trains(house)
        completes(house)
        assert set(house.compute.names()) == {"mine-by-hand", "of-another"}
        assert all("-a1-" in name for name in house.deletes())


# --- stop -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", ["waiting", "launching", "running", "recovering", "finishing"])
def test_a_stop_marker_by_hand_at_each_step_and_again_after_a_resume(folder: Path, step: str) -> None:
    with cloud_house(folder) as house:
        _reach(house, step)
        house.storage.put(BUCKET, runfiles.stop_marker("digits"), b"")
        house.play("wait until digits status=stopped machines=0 within=30min")
        house.compute.restock()
        house.play("resume digits", "wait until digits status=running within=30min", "wait 90s")
        house.play("expect digits status=running generation=2")
        house.storage.put(BUCKET, runfiles.stop_marker("digits"), b"again")
        house.play("wait until digits status=stopped machines=0 within=30min")


def _reach(house: CloudHouse, step: str) -> None:
    if step == "waiting":
        house.compute.stock_out("*")
    plan = Plan(steps=600, boot=60.0, push=False)
    house.submit("digits", replace(plan, steps=50, finish=600.0) if step == "finishing" else plan)
    if step == "recovering":
        house.play("wait until digits status=running within=20min")
        house.compute.host_error(house.vm("digits").name)
        house.compute.stock_out("*")
        house.play("wait until digits causes=host_error within=5min")
    else:
        house.play(f"wait until digits status={step} within=20min")
    house.plans["digits"] = plan


# --- what cannot be read --------------------------------------------------------------------------------------------


def test_a_zone_that_the_list_could_not_reach_is_unknown(folder: Path) -> None:
    """Half an hour: nothing is started, nothing deleted; the beats prove that it trains."""
    with cloud_house(folder) as house:
        trains(house, plan=Plan(steps=2400, push=False))
        house.compute.unreachable(FIRST)
        before = len(house.inserts())
        house.play("wait 15min", "expect digits status=running attempts=1")
        assert len(house.inserts()) == before
        assert not [text for text in house.told("digits") if "missing in the listing" in text]
        house.submit("another", Plan(steps=2400, push=False))
        house.play("wait 15min", f"expect another status=running try_zones={SECOND}")
        assert house.deletes() == []
        house.compute.reachable(FIRST)
        house.play("wait until digits status=completed within=3h")
        completes(house, "another")
        house.play("expect digits causes=finished")


@pytest.mark.parametrize("status", [429, 503, 403])
def test_a_storm_of_ten_minutes_changes_nothing(folder: Path, status: int) -> None:
    with cloud_house(folder) as house:
        trains(house, plan=Plan(steps=900, push=False))
        before = len(house.compute.requests)
        house.compute.fail_next(None, "", status, for_s=600.0, reason="rateLimitExceeded" if status == 403 else None)
        house.play("wait 10min", "expect digits attempts=1")
        assert len(house.compute.requests) - before <= 20 * 6  # a look each 30 s, five tries each: the storm is not fed
        completes(house)
        house.play("expect digits causes=finished")


def test_a_storm_of_the_store_changes_nothing(folder: Path) -> None:
    with cloud_house(folder) as house:
        trains(house, plan=Plan(steps=900, push=False))
        house.storage.trouble(503, times=None)
        house.agents_access.blocked = True
        house.play("wait 10min", "expect digits attempts=1")
        house.storage.calm()
        house.agents_access.blocked = False
        completes(house)
        house.play("expect digits causes=finished")


def test_a_false_404_while_it_goes_does_not_make_it_gone(folder: Path) -> None:
    """Deletes that overlap: 403, then a 404 that is not true. Its cost counts until the list agrees."""
    with cloud_house(folder) as house:
        house.compute.delete_s = 120.0
        trains(house)
        vm = house.vm("digits")
        house.compute.false_404(vm.name, house.now() + 3600.0)
        house.play("wait until digits status=completed within=30min")
        while vm.name in house.compute.names():
            house.play("expect digits settled=no", "wait 15s")
        completes(house)
        assert len(house.deletes()) <= 2


# --- the supervisor itself ------------------------------------------------------------------------------------------


def test_the_run_finishes_while_the_supervisor_is_dead(folder: Path) -> None:
    with cloud_house(folder) as house:
        trains(house, plan=Plan(steps=200, checkpoint=40, push=False))
        house.kill()
        house.run_for(1200.0)
        assert house.vm("digits").status == "TERMINATED"  # the meter has stopped
        house.start()
        completes(house)
        house.play("expect digits causes=finished attempts=1")
        assert house.inserts() == [FIRST]
