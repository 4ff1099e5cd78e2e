"""`keep: machine` on Google Cloud: real loop, provider and store over real HTTP, in virtual time (cloud_house.py)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from supervisor.domain.causes import Cause
from supervisor.domain.run import run_cost_usd
from supervisor.lifecycle.ending.keeping import give_up, put_back
from tests.acceptance.cloud_house import CloudHouse, cloud_house
from tests.cloud.cloud import ZONES
from tests.cloud.web import Reset
from tests.scenarios.sim_plan import Plan

FIRST, SECOND, _ = ZONES
LONG = Plan(steps=200, checkpoint=40, push=False)
FULL = "1:OSError: [Errno 28] No space left on device"
NOT_OFFERED = "RESOURCE_NOT_FOUND"


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


def the_disk_is_full_when_the_run_starts_again(folder: Path) -> None:
    """It stays full, so that VM is deleted. Another one would fill up too: a person decides, and nothing is lost."""
    with cloud_house(folder) as house:
        trains(house)
        first = house.vm("digits").name
        house.play(f'plan digits exits="{FULL}@0s"')
        house.compute.preempt(first)
        house.play("wait until digits status=waiting within=10min", "wait 5min")
        house.play("expect digits causes=preempted,disk_full machine_names=1 counted=0 machine_kept=no machines=0")
        assert house.deletes() == [first]
        [said] = [text for text in house.told("digits") if "ended as disk_full" in text]
        assert "0 steps lost" in said
        run, on_s = house.rows.find("digits"), sum(line.on_s for line in house.compute.bill.lines.values())
        assert run is not None
        assert run_cost_usd(run, house.now()) == pytest.approx(on_s / 3600.0 * 0.35, rel=0.2)
        house.play("plan digits exits=no", "retry digits", "wait until digits status=running attempts=3 within=10min")
        house.play("wait 1min", "expect digits resumed=65 machine_names=2")
        house.play("wait until digits status=completed within=3h")


def a_full_disk_that_has_space_again_is_used_again(folder: Path) -> None:
    with cloud_house(folder) as house:
        trains(house)
        first = house.vm("digits").name
        house.compute.preempt(first)
        house.play("wait until digits status=running attempts=2 within=10min", "agent digits repairs 12 4000000000")
        house.play(f'agent digits exits "{FULL}"', "wait until digits status=running attempts=3 within=10min")
        house.play("wait 1min")
        house.play("expect digits causes=preempted,disk_full counted=1 machine_names=1 resumed>=40")
        assert (house.vm("digits").name, house.deletes()) == (first, [])


def the_machine_type_is_no_longer_offered(folder: Path) -> None:
    """No wait of two hours: the VM is deleted at once, then a new one goes on from the checkpoint."""
    with cloud_house(folder) as house:
        trains(house, keep_wait_s=7200.0)
        first = house.vm("digits").name
        house.compute.stock_out(FIRST, code=NOT_OFFERED)
        house.compute.preempt(first)
        house.play("wait until digits status=running attempts=2 within=15min", "wait 1min")
        house.play(
            f"expect digits zones={FIRST},{SECOND} counted=0 machine_names=2 resumed>=40 machine_kept=no",
            'expect digits event_texts~"its start was refused"',
        )
        assert house.deletes() == [first]
        asked = [one.path for one in house.compute.requests if one.method in ("POST", "DELETE")]
        deleted_at = next(at for at, path in enumerate(asked) if path.endswith(f"/instances/{first}"))
        assert [at for at, path in enumerate(asked) if path.endswith("/instances")][1] > deleted_at
        house.play("wait until digits status=completed within=3h")


def the_machine_type_is_no_longer_offered_and_the_run_waits(folder: Path) -> None:
    """Its spec wants this machine and no other: it stays and is tried with the pauses of a zone. One day it starts."""
    with cloud_house(folder) as house:
        trains(house, keep_wait_s=600.0, keep_fallback="wait")
        vm_id = house.vm("digits").id
        house.compute.stock_out(FIRST, code=NOT_OFFERED)
        house.compute.preempt(house.vm("digits").name)
        house.play("wait until digits status=waiting within=15min", "wait 25min")
        house.play("expect digits status=waiting machine_kept=yes attempts=1 counted=0 tries>=3 tries<=6")
        assert (house.inserts(), house.deletes()) == ([FIRST], [])
        house.compute.restock()
        house.play("wait until digits status=running attempts=2 within=40min", "wait 1min")
        house.play("expect digits machine_names=1 resumed>=40")
        assert house.vm("digits").id == vm_id


# Each with the rule that it is about, and a broken one.
REFUSALS: dict[str, tuple[Callable[[Path], None], str, object]] = {
    "the VM with the full disk is started again and again": (
        the_disk_is_full_when_the_run_starts_again,
        "supervisor.lifecycle.ending.keeping.KEEPS_MACHINE",
        frozenset(Cause),
    ),
    "what is on the disk is thrown away, although the disk has space again": (
        a_full_disk_that_has_space_again_is_used_again,
        "supervisor.lifecycle.ending.ending.End.freed",
        property(lambda end: False),
    ),
    "the VM whose start was refused is forgotten": (
        the_machine_type_is_no_longer_offered,
        "supervisor.lifecycle.phases.launching.put_back",
        lambda run, *_: (run, ()),
    ),
    "a refused start gives the VM up, whatever the spec says": (
        the_machine_type_is_no_longer_offered_and_the_run_waits,
        "supervisor.lifecycle.phases.launching.put_back",
        lambda run, try_, cause, detail, now: give_up(put_back(run, try_, cause, detail, now)[0], detail, now),
    ),
}


@pytest.mark.parametrize("story", [story for story, _, _ in REFUSALS.values()], ids=lambda story: story.__name__)
def test_a_kept_vm_that_cannot_be_used_again(folder: Path, story: Callable[[Path], None]) -> None:
    story(folder)


@pytest.mark.parametrize("what", REFUSALS)
def test_a_broken_rule_breaks_its_story(folder: Path, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    story, rule, broken = REFUSALS[what]
    monkeypatch.setattr(rule, broken)
    with pytest.raises(AssertionError):
        story(folder)
