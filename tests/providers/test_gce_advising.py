"""The advice of a plan on Google Cloud: memory, CPUs, disks, and data in another region, with figures and a fix."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from supervisor.domain.findings import OK, WARN, Finding
from supervisor.domain.machines import Offer, Placement
from supervisor.ports.objectstore import StoreUnavailable
from supervisor.ports.platform import PlanQuestion
from supervisor.ports.provider import ProviderUnavailable
from supervisor.providers.gce.advice.advising import advise
from supervisor.providers.gce.advice.data_places import DataPlaces
from supervisor.providers.gce.config import DataDisk, GceConfig, parse_shape, region_of
from supervisor.providers.gce.machines.instance import scopes
from supervisor.providers.gce.prices.machine_facts import facts_of, roomier
from tests.cloud.compute_catalog import Catalog
from tests.waiting import wait_for

REGION = {"location": "US-EAST1", "locationType": "region"}
GB = 10**9


def config(shape: str = "a2-highgpu-1g", **changed: Any) -> GceConfig:
    base = GceConfig("p", ("us-east1-c",), {"s": parse_shape(shape)}, store_url="gs://runs/team", boot_disk_gb=100)
    return replace(base, **changed)


def question(zones: tuple[str, ...] = ("us-east1-c",), **more: Any) -> PlanQuestion:
    offers = tuple(Offer(Placement("gce", region_of(zone), zone, "s", True), 0.2, 0.6) for zone in zones)
    return PlanQuestion(offers, **more)


def advice(
    given: GceConfig, asked: PlanQuestion | None = None, facts: Mapping[str, Any] = REGION
) -> dict[str, Finding]:
    places = DataPlaces(given, lambda: facts)
    found = advise(given, places, asked or question(given.zones))
    assert {(one.result, one.group) for one in found} <= {(WARN, "google"), (OK, "google")}
    assert [one.name for one in found if one.result == OK] == ["machine access", "machine end"]
    problems = [one for one in found if one.result == WARN]
    assert all(one.cause for one in problems)
    return {one.name: one for one in problems}


def test_a_well_chosen_machine_beside_its_data_gets_no_line() -> None:
    asked = question(image="us-east1-docker.pkg.dev/p/r/train:1", checkpoint_bytes=10 * GB)
    assert advice(config(), asked) == {}


# --- memory and CPU ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "told", "better"),
    [
        ("n1-standard-8+1xnvidia-tesla-t4", "30 GB of memory and 16 GB", "use n1-highmem-8"),
        ("n1-standard-8+2xnvidia-tesla-v100", "30 GB of memory and 32 GB", "use n1-highmem-16"),
        ("g2-standard-8", "32 GB of memory and 24 GB", "use g2-standard-12"),
        ("g2-standard-24", "96 GB of memory and 48 GB", ""),
    ],
)
def test_memory_below_twice_that_of_the_cards_is_told_with_a_roomier_machine(
    shape: str, told: str, better: str
) -> None:
    found = advice(config(shape)).get("memory")
    if not better:
        assert found is None
        return
    assert found is not None
    assert told in found.fact
    assert better in found.fix


def test_memory_above_four_times_that_of_the_cards_is_told_with_a_machine_that_has_enough() -> None:
    found = advice(config("g2-standard-32"))["memory"]
    assert "128 GB of memory for 24 GB" in found.fact
    assert "g2-standard-12 has enough" in found.fix
    assert "memory" not in advice(config("g2-standard-16"))
    assert "memory" not in advice(config("n2-standard-8")), "a machine without cards"


@pytest.mark.parametrize(
    ("has_secrets", "more", "told"),
    [
        (False, (), "devstorage.read_write: every package"),
        (False, ("bigquery",), "devstorage.read_write and bigquery: every package"),
        (True, (), "cloud-platform: Secret Manager takes no narrower one"),
    ],
)
def test_what_a_machine_may_use_is_said_with_the_reason(has_secrets: bool, more: tuple[str, ...], told: str) -> None:
    given = config(machine_scopes=more)
    access, end = advise(given, DataPlaces(given, lambda: REGION), question(has_secrets=has_secrets))[-2:]
    assert told in access.fact
    assert "deleted with its run" in end.fact
    assert not any("cloud-platform" in scope for scope in scopes(given, False)), "all APIs are never asked for"


def test_what_is_advised_instead_is_enough_and_has_the_same_cards() -> None:
    for text in ("g2-standard-4", "g2-standard-8", "n1-standard-4+1xnvidia-tesla-t4"):
        shape = parse_shape(text)
        facts = facts_of(shape)
        assert facts is not None
        assert facts.cards_gb is not None
        better = facts_of(replace(shape, machine_type=roomier(shape, 2 * facts.cards_gb)))
        assert better is not None
        assert better.ram_gb >= 2 * facts.cards_gb
        assert better.cards_gb == facts.cards_gb


def test_the_table_of_machines_agrees_with_what_the_cloud_lists_of_them() -> None:
    """The fake's list is other code; of machines with cards it knows vCPUs and cards only."""
    listed = Catalog("p")
    for name in ("n1-standard-8", "n1-highmem-16", "g2-standard-24", "a2-highgpu-4g", "a3-highgpu-8g"):
        machine, facts = listed.machine_type("us-east1-c", name), facts_of(parse_shape(name))
        assert facts is not None
        assert facts.vcpus == machine["guestCpus"]
        cards = sum(one["guestAcceleratorCount"] for one in machine.get("accelerators", ()))
        assert facts.cards == cards
        if not cards:
            assert facts.ram_gb == machine["memoryMb"] / 1024


def test_of_a_machine_that_no_table_knows_nothing_is_said() -> None:
    assert advice(config("x9-standard-8")) == {}


def test_a_series_that_may_bring_an_old_cpu_is_told_until_the_least_one_is_set() -> None:
    shape = "n1-highmem-8+1xnvidia-tesla-t4"
    found = advice(config(shape))["cpu platform"]
    assert "Intel Sandy Bridge to Intel Broadwell" in found.fact
    assert found.fix == "set gce_min_cpu_platform = Intel Skylake"
    assert advice(config(shape, min_cpu_platform="Intel Skylake")) == {}


def test_a_least_cpu_that_the_series_never_has_is_told() -> None:
    found = advice(config(min_cpu_platform="Intel Skylake"))["cpu platform"]
    assert "never has that CPU" in found.fact
    assert "Intel Cascade Lake" in found.fix


def test_cpus_are_told_apart_within_a_series_and_of_unknown_ones_nothing_is_said() -> None:
    """The H200 machines of the A3 series have other CPUs than those with H100 cards."""
    told = advice(config("a3-highgpu-8g", min_cpu_platform="Intel Skylake"))["cpu platform"]
    assert "Intel Sapphire Rapids" in told.fix
    assert advice(config("a3-ultragpu-8g", min_cpu_platform="Intel Skylake")) == {}


# --- the disk ---------------------------------------------------------------------------------------------------------


def test_a_boot_disk_below_what_the_checkpoints_need_is_told_with_the_size_that_is_enough() -> None:
    found = advice(config(), question(checkpoint_bytes=20 * GB))["boot disk"]
    assert "has 100 GB, and this run needs about 110 GB" in found.fact
    assert "3 checkpoints and the one that is being written, 20 GB each" in found.cause
    enough = config(boot_disk_gb=110)
    assert found.fix == "set gce_boot_disk_gb = 110"
    assert advice(enough, question(checkpoint_bytes=20 * GB)) == {}
    assert "boot disk" in advice(enough, question(checkpoint_bytes=20 * GB, checkpoints_kept=4))


def test_of_a_checkpoint_whose_size_nobody_knows_nothing_is_said() -> None:
    assert advice(config(boot_disk_gb=10)) == {}


def test_a_data_disk_that_holds_all_machines_in_its_zone_is_told() -> None:
    disk = DataDisk("corpus", "us-east1-c")
    found = advice(config(zones=("us-east1-c", "us-east1-b"), data_disk=disk), question())
    assert "us-east1-b of gce_zones are never tried" in found["data disk"].cause
    assert advice(config(data_disk=disk)) == {}


# --- data elsewhere ---------------------------------------------------------------------------------------------------


def test_a_bucket_in_another_region_is_told_with_the_sum_of_each_restore() -> None:
    far = {"location": "US-CENTRAL1", "locationType": "region"}
    found = advice(config(), question(checkpoint_bytes=12 * GB), far)["data places"]
    assert found.fact == "the bucket gs://runs is in us-central1, and machines start in us-east1"
    assert found.cause == "each restore costs $0.24 (12 GB at $0.02)"
    assert advice(config(), facts=far)["data places"].cause == (
        "each restore costs $0.02 for each GB of its checkpoint"
    )


def test_across_the_ocean_it_costs_more_and_an_unknown_price_is_no_zero() -> None:
    zones = ("us-east1-c", "europe-west4-a", "asia-east1-a")
    found = advice(config(zones=zones), question(zones, checkpoint_bytes=10 * GB))["data places"]
    assert "europe-west4, asia-east1" in found.fact
    assert "$0.50" in found.cause
    assert "the price of data for asia-east1 is unknown" in found.cause


def test_of_several_prices_the_dearest_is_told() -> None:
    zones = ("us-east1-c", "us-west1-a", "europe-west4-a")
    found = advice(config(zones=zones), question(zones, checkpoint_bytes=10 * GB))["data places"]
    assert "each restore costs $0.50 (10 GB at $0.05)" in found.cause


@pytest.mark.parametrize(
    ("facts", "billed"),
    [
        ({"location": "US", "locationType": "multi-region"}, True),
        ({"location": "NAM4", "locationType": "dual-region"}, False),
        (
            {
                "location": "US",
                "locationType": "dual-region",
                "customPlacementConfig": {"dataLocations": ["US-EAST1", "US-WEST1"]},
            },
            False,
        ),
        ({"location": "EUR4", "locationType": "dual-region"}, True),
    ],
)
def test_what_a_multi_or_a_dual_region_costs_to_read(facts: Mapping[str, Any], billed: bool) -> None:
    assert ("data places" in advice(config(), facts=facts)) is billed


@pytest.mark.parametrize(
    ("image", "told"),
    [
        ("us-east1-docker.pkg.dev/p/r/train:1", ""),
        ("us-docker.pkg.dev/p/r/train:1", ""),
        ("gcr.io/p/train:1", ""),
        ("europe-west4-docker.pkg.dev/p/r/train:1", "each pull costs $0.08 for each GB"),
        ("europe-docker.pkg.dev/p/r/train:1", "each pull costs $0.08 for each GB"),
        ("us-central1-docker.pkg.dev/p/r/train:1", "each pull costs $0.01 for each GB"),
        ("australia-southeast1-docker.pkg.dev/p/r/train:1", "the price of data for us-east1 is unknown"),
        ("pytorch/pytorch:2.4", ""),
        ("", ""),
    ],
)
def test_what_each_pull_of_the_image_costs(image: str, told: str) -> None:
    found = advice(config(), question(image=image)).get("image place")
    assert (found is None) is (told == "")
    assert found is None or told in found.cause


def test_a_registry_of_several_regions_costs_nothing_within_its_continent() -> None:
    montreal = config(zones=("northamerica-northeast1-a",))
    near, far = (question(montreal.zones, image=f"{at}-docker.pkg.dev/p/r/t:1") for at in ("us", "us-east1"))
    assert "image place" not in advice(montreal, near)
    assert "each pull costs $0.01 for each GB" in advice(montreal, far)["image place"].cause


def test_a_bucket_that_cannot_be_looked_at_is_said_to_be_unread() -> None:
    def away() -> Mapping[str, Any]:
        raise StoreUnavailable("403: storage.buckets.get is missing")

    given = config()
    found = advise(given, DataPlaces(given, away), question())[0]
    assert (found.name, found.result, found.fact) == ("data places", WARN, "the location of the bucket was not read")
    assert "storage.buckets.get" in found.cause


# --- where data is, for same_region -----------------------------------------------------------------------------------


def test_nothing_is_known_before_somebody_asked_and_then_it_is_kept() -> None:
    asked: list[int] = []

    def describe() -> Mapping[str, Any]:
        asked.append(1)
        return REGION

    places = DataPlaces(config(), describe)
    with pytest.raises(ProviderUnavailable, match="gs://runs is unknown"):
        places.of_bucket()
    regions = ("us-east1", "us-west1")
    (found,) = places.places(regions, "", ask=True)
    assert (found.what, found.location, found.regions) == ("the bucket gs://runs", "us-east1", ("us-east1",))
    assert len(places.places(regions, "us-west1-docker.pkg.dev/p/r/i:1", ask=False)) == 2
    assert len(asked) == 1


def test_without_asking_it_is_learnt_in_the_background() -> None:
    asked, may_answer = threading.Event(), threading.Event()

    def describe() -> Mapping[str, Any]:
        asked.set()
        assert may_answer.wait(10)
        return REGION

    places = DataPlaces(config(), describe)
    for _ in range(2):
        with pytest.raises(ProviderUnavailable):
            places.places(("us-east1",), "", ask=False)
    assert asked.wait(10)
    may_answer.set()
    wait_for(lambda: known(places), what="the bucket's place to be learnt")


def known(places: DataPlaces) -> bool:
    try:
        return places.of_bucket().name == "us-east1"
    except ProviderUnavailable:
        return False


def test_a_bucket_that_could_not_be_read_once_is_asked_again() -> None:
    answers: list[Any] = [StoreUnavailable("away"), REGION]

    def describe() -> Mapping[str, Any]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return dict(answer)

    places = DataPlaces(config(), describe)
    with pytest.raises(ProviderUnavailable, match="away"):
        places.places(("us-east1",), "", ask=True)
    assert places.places(("us-east1",), "", ask=True)[0].location == "us-east1"
