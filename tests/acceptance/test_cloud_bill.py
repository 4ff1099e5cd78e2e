"""What a run has cost, by the API, is what the cloud itself bills for the same machines.

The bill is the fake cloud's own: its meter, its price list (tests/cloud/compute_bill.py). The supervisor learns the
same prices the way it does in earnest: from the price list over HTTP, part by part.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from google.oauth2.credentials import Credentials

from supervisor.domain.machines import RUN_LABEL
from supervisor.domain.run import attempt_cost_usd
from supervisor.providers.gce.calls.clients import Compute
from supervisor.providers.gce.calls.retry import Retry
from supervisor.providers.gce.config import GceConfig, parse_shape
from supervisor.providers.gce.prices.pricing import Pricing
from supervisor.services.views.run_view import run_json
from tests.acceptance.cloud_house import SHAPE, CloudHouse, cloud_house
from tests.cloud import compute_bill as bill
from tests.cloud.billing import PER_GIB_MONTH
from tests.cloud.cloud import PROJECT, ZONES
from tests.scenarios.sim_plan import Plan

WITHIN = 0.01
SERIES = {"n1": "N1 Predefined Instance", "g2": "G2 Instance", "a2": "A2 Instance"}
CARDS = {
    "nvidia-tesla-t4": "Nvidia Tesla T4 GPU",
    "nvidia-l4": "Nvidia L4 GPU",
    "nvidia-tesla-a100": "Nvidia Tesla A100 GPU",
}


@contextmanager
def priced_house(folder: Path) -> Iterator[CloudHouse]:
    """A house whose offers cost what the fake's price list says, and nothing that a setting says."""
    with cloud_house(folder, prices={}) as house:
        _publish(house)
        config = GceConfig(
            PROJECT,
            ZONES,
            {"t4": parse_shape(SHAPE)},
            endpoint=house.compute.url,
            billing_endpoint=house.cloud.billing.url,
        )
        retry = Retry(monotonic=house.clock.monotonic, sleep=house.clock.advance)
        compute = Compute(config, retry, lambda: Credentials("ya29.of-the-house"))
        pricing = Pricing(config, compute, house.now)
        house.provider.real.priced = pricing.priced
        pricing.refresh()
        yield house


def _publish(house: CloudHouse) -> None:
    listed = house.cloud.billing
    for series, name in SERIES.items():
        for what, table, unit in (("Core", bill.CORE, "h"), ("Ram", bill.MEMORY, "GiBy.h")):
            spot, standard = table[series]
            listed.add(f"{name} {what} running in Americas", standard, unit=unit)
            text = f"Spot Preemptible {name} {what} running in Americas"
            listed.add(text, spot, unit=unit, usage="Preemptible")
    for card, name in CARDS.items():
        listed.add_card(name, bill.CARD[card][1], bill.CARD[card][0])
    listed.add("SSD backed PD Capacity", bill.DISK_GB_MONTH["pd-ssd"], unit=PER_GIB_MONTH, group="SSD")
    listed.add_addresses(bill.ADDRESS[1], bill.ADDRESS[0])


def ours(house: CloudHouse, run_id: str) -> float:
    run = house.rows.find(run_id)
    assert run is not None
    told = run_json(run, house.clock.now(), {})["cost"]
    assert told["known"]
    return float(told["usd"])


def theirs(house: CloudHouse, run_id: str) -> float:
    return float(house.compute.bill.usd(RUN_LABEL, run_id, house.now()))


def agrees(house: CloudHouse, run_id: str = "digits") -> None:
    assert ours(house, run_id) == pytest.approx(theirs(house, run_id), rel=WITHIN)
    assert theirs(house, run_id) > 0.01


def test_preempted_twice_a_stock_out_between_and_resumed_by_hand(tmp_path: Path) -> None:
    with priced_house(tmp_path) as house:
        house.submit("digits", Plan(steps=2400, push=False))
        house.play("wait until digits status=running within=10min", "wait 10min")
        agrees(house)
        house.compute.preempt(house.vm("digits").name)
        for zone in ZONES:
            house.compute.stock_out(zone)
        house.play("wait 12min")
        agrees(house)  # nothing is billed while there is no room
        house.compute.restock()
        house.play("wait until digits status=running attempts=2 within=40min", "wait 9min")
        house.compute.preempt(house.vm("digits").name)
        house.play("wait until digits status=running attempts=3 within=10min", "wait 7min")
        house.play("stop digits", "wait until digits status=stopped within=10min", "wait 2min")
        agrees(house)
        house.play("resume digits", "wait until digits status=completed within=3h", "wait 2min")
        assert house.cloud.instances() == []
        agrees(house)
        _attempts_add_up(house)


def _attempts_add_up(house: CloudHouse) -> None:
    run = house.rows.find("digits")
    assert run is not None
    attempts = house.rows.attempts(run.key)
    assert len(attempts) == 4
    costs = [attempt_cost_usd(attempt, house.clock.now()) or 0.0 for attempt in attempts]
    assert sum(costs) == pytest.approx(run.money.cost_usd, rel=0.001)


def test_a_machine_whose_release_is_refused_goes_on_billing_and_is_counted(tmp_path: Path) -> None:
    with priced_house(tmp_path) as house:
        house.submit("digits", Plan(steps=1200, push=False, after="stays"))
        house.play("wait until digits status=running within=10min", "wait 10min")
        house.compute.fail_next("DELETE", "/instances/", 400, times=1000, for_s=1800.0)
        house.play("wait 35min")
        agrees(house)
        house.compute.calm()
        house.play("wait until digits status=completed within=1h", "wait 10min")
        assert house.cloud.instances() == []
        agrees(house)


def test_a_machine_that_lives_for_seconds_is_billed_for_a_minute(tmp_path: Path) -> None:
    with priced_house(tmp_path) as house:
        house.submit("digits", Plan(steps=1000, boot=5.0, push=False))
        for attempt in (1, 2):
            house.play(f"wait until digits attempts={attempt} within=10min", "wait 12s")
            house.compute.preempt(house.vm("digits").name)
        house.play("wait until digits status=completed within=3h", "wait 2min")
        agrees(house)


def test_a_host_that_fails_and_a_person_who_deletes(tmp_path: Path) -> None:
    with priced_house(tmp_path) as house:
        house.submit("digits", Plan(steps=2000, push=False))
        house.play("wait until digits status=running within=10min", "wait 10min")
        house.compute.host_error(house.vm("digits").name)
        house.play("wait until digits status=running attempts=2 within=20min", "wait 10min")
        house.compute.delete_by("alice@example.com", house.vm("digits").name)
        house.play("wait until digits status=running attempts=3 within=20min")
        house.play("wait until digits status=completed within=3h", "wait 2min")
        agrees(house)


def test_new_prices_count_from_the_next_attempt_on(tmp_path: Path) -> None:
    """A machine keeps the price that it was started with, as the attempt's bill does here."""
    with priced_house(tmp_path) as house:
        house.submit("digits", Plan(steps=100_000, push=False))
        house.play("wait until digits status=running within=10min", "wait 10min")
        run = house.rows.find("digits")
        assert run is not None
        assert run.attempt is not None
        first = run.attempt.price_usd_per_h
        dearer = replace(house.provider.offers()[0], price_usd_per_h=9.0)
        house.provider.real.priced = lambda _: (dearer,)
        house.play("wait 2min")
        run = house.rows.find("digits")
        assert run is not None
        assert run.attempt is not None
        assert run.attempt.price_usd_per_h == first
        house.compute.preempt(house.vm("digits").name)
        house.play("wait until digits status=running attempts=2 within=20min")
        run = house.rows.find("digits")
        assert run is not None
        assert run.attempt is not None
        assert run.attempt.price_usd_per_h == 9.0
