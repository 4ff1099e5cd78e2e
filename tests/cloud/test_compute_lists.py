"""Lists of the fake Compute Engine: pages, filters, masks, places and advice; and how fast 10,000 machines are."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cloud.compute import ComputeFake
from tests.cloud.compute_errors import ApiError
from tests.cloud.compute_filter import parse_filter
from tests.cloud.compute_mask import apply_mask, parse_mask
from tests.cloud.compute_rig import ZONE, Rig, compute_rig, spot
from tests.waiting import wait_for

ROW: dict[str, Any] = {
    "name": "vm-7",
    "id": "123",
    "status": "RUNNING",
    "labels": {"run": "digits", "owner": "ann"},
    "scheduling": {"preemptible": True},
    "disks": [{"deviceName": "boot"}, {"deviceName": "data"}],
}


@pytest.fixture
def rig() -> Iterator[Rig]:
    with compute_rig() as made:
        yield made


@pytest.mark.parametrize(
    ("text", "hit"),
    [
        ("", True),
        ("name=vm-7", True),
        ('name="vm-7"', True),
        ("name = vm-8", False),
        ("name=vm-*", True),
        ("labels.run=digits", True),
        ("labels.owner:*", True),
        ("labels.nobody:*", False),
        ("labels.nobody=digits", False),
        ("labels.nobody!=digits", True),
        ("id=123", True),
        ("labels.run=digits AND status=RUNNING", True),
        ("labels.run=digits status=STOPPING", False),
        ("(status=STOPPING) OR (status=RUNNING)", True),
        ("status=STOPPING OR status=RUNNING AND name=vm-8", False),  # OR binds tighter
        ("status=STOPPING OR (status=RUNNING AND name=vm-7)", True),
        ("NOT status=STOPPING", True),
        ("-status=RUNNING", False),
        ("scheduling.preemptible=true", True),
        ("disks.deviceName=data", True),
        ("name eq vm-.*", True),
        ("name ne vm-.*", False),
    ],
)
def test_what_a_filter_lets_through(text: str, hit: bool) -> None:
    assert parse_filter(text)(ROW) is hit


@pytest.mark.parametrize("text", ["name", "name=", "=vm", "(name=vm", "name=vm)", "name eq vm AND id=1", "name ~ x"])
def test_a_filter_that_cannot_be_read_is_400_and_never_everything(text: str) -> None:
    with pytest.raises(ApiError) as refused:
        parse_filter(text)
    assert refused.value.status == 400


@pytest.mark.parametrize(
    ("mask", "left"),
    [
        ("*", ROW),
        ("name", {"name": "vm-7"}),
        ("name,labels/run", {"name": "vm-7", "labels": {"run": "digits"}}),
        ("disks(deviceName)", {"disks": [{"deviceName": "boot"}, {"deviceName": "data"}]}),
        ("labels/run,labels/owner", {"labels": {"run": "digits", "owner": "ann"}}),
        ("labels(run),labels", {"labels": {"run": "digits", "owner": "ann"}}),
        ("nothing", {}),
    ],
)
def test_what_a_mask_leaves(mask: str, left: dict[str, Any]) -> None:
    assert apply_mask(ROW, parse_mask(mask)) == left


@pytest.mark.parametrize("mask", ["name,", "items(", "items(name", "a b", "items)", "/name"])
def test_a_mask_that_cannot_be_read_is_400(mask: str) -> None:
    with pytest.raises(ApiError):
        parse_mask(mask)


@given(st.text(alphabet='ab=:()"*,/ AND', max_size=20))
def test_no_text_breaks_the_readers(text: str) -> None:
    for read in (parse_filter, parse_mask):
        with suppress(ApiError):
            read(text)


def names_by_page(rig: Rig, change: Any = None, **query: object) -> list[list[str]]:
    pages, token = [], None
    while token is not None or not pages:
        told = rig.get("aggregated/instances", **query, **({"pageToken": token} if token else {}))
        pages.append([vm["name"] for scope in told["items"].values() for vm in scope.get("instances", [])])
        token = told.get("nextPageToken")
        if change is not None:
            change(len(pages))
    return pages


def test_pages_hold_what_was_there_all_the_time_exactly_once(rig: Rig) -> None:
    rig.fake.add_instances(1203)

    def change(pages: int) -> None:
        rig.fake.drop(rig.fake.instance("vm-%05d" % (pages * 17)))
        rig.fake.fill([{"name": "new-%d" % pages, "zone": "us-west1-a"}])

    pages = names_by_page(rig, change)
    assert [len(page) for page in pages[:2]] == [500, 500]
    seen = [name for page in pages for name in page]
    assert len(seen) == len(set(seen))
    assert {"vm-%05d" % at for at in range(1203)} - set(seen) <= {"vm-00017", "vm-00034", "vm-00051"}
    assert [len(page) for page in names_by_page(rig, maxResults=7, filter="name=vm-0010*")] == [7, 3]
    rig.fake.page_rows = 3
    assert [len(page) for page in names_by_page(rig, maxResults=7, filter="name=vm-0010*")] == [3, 3, 3, 1]
    assert rig.http.get("aggregated/instances", params={"maxResults": "501"}).status_code == 400


def test_every_reachable_zone_is_a_scope_and_empty_ones_say_so(rig: Rig) -> None:
    rig.running()
    told = rig.get("aggregated/instances")
    assert set(told["items"]) == {"zones/" + zone for zone in rig.fake.catalog.zones}
    assert told["items"]["zones/us-west1-a"]["warning"]["code"] == "NO_RESULTS_ON_PAGE"


def test_operations_newest_first_and_by_what_they_are_about(rig: Rig) -> None:
    vm = rig.running("vm-1")
    rig.running("vm-2")
    rig.fake.preempt("vm-1")
    rig.after(40)
    told = rig.get("zones/%s/operations" % ZONE, orderBy="creationTimestamp desc", maxResults=2)
    assert [one["operationType"] for one in told["items"]] == ["compute.instances.preempted", "insert"]
    assert told["nextPageToken"]
    mine = rig.get("zones/%s/operations" % ZONE, filter="targetId=%s" % vm.id, fields="items(operationType,user)")
    assert mine == {
        "items": [
            {"operationType": "insert", "user": rig.fake.account},
            {"operationType": "compute.instances.preempted", "user": "system"},
        ]
    }
    both = '(operationType="delete") OR (operationType="compute.instances.preempted")'
    everywhere = rig.get("aggregated/operations", filter=both)["items"]["zones/" + ZONE]["operations"]
    assert [one["operationType"] for one in everywhere] == ["compute.instances.preempted"]


def test_ten_thousand_machines_are_listed_quickly(rig: Rig) -> None:
    rig.fake.add_instances(10_000, labels=lambda at: {"spot-runner": "spot", "spot-run-id": "run-%d" % at})
    rig.oracle.check = lambda *_: []  # type: ignore[method-assign]  its time is not the fake's
    mask = "nextPageToken,unreachables,items/*/warning/code,items/*/instances(id,name,status,labels,zone)"
    rig.get("aggregated/instances", fields=mask)  # sorts once
    best = []
    for _ in range(3):
        start = time.process_time()
        pages = names_by_page(rig, fields=mask, maxResults=500)
        best.append((time.process_time() - start) / len(pages))
    assert len(pages) == 20
    assert min(best) < 0.03


def test_places_and_advice(rig: Rig) -> None:
    project = rig.http.get(rig.fake.url + "/compute/v1/projects/p").json()
    assert project["defaultServiceAccount"].endswith("-compute@developer.gserviceaccount.com")
    assert "PREEMPTIBLE_NVIDIA_T4_GPUS" in {one["metric"] for one in rig.get("regions/us-east1")["quotas"]}
    assert rig.get("zones/" + ZONE)["status"] == "UP"
    assert rig.get("zones/%s/machineTypes/g2-standard-8" % ZONE)["accelerators"][0]["guestAcceleratorCount"] == 1
    assert rig.get("zones/%s/acceleratorTypes/nvidia-tesla-t4" % ZONE)["maximumCardsPerInstance"] == 4
    assert rig.get("regions/us-east1/subnetworks/default")["privateIpGoogleAccess"] is True
    images = rig.fake.url + "/compute/v1/projects/cos-cloud/global/images/"
    image = rig.http.get(images + "family/cos-stable").json()
    assert rig.http.get(images + image["name"]).json() == image
    for missing in ("zones/mars-1", "zones/%s/machineTypes/n9" % ZONE, "zones/%s/disks/none" % ZONE, "nothing/here"):
        rig.oracle.check = lambda *_: []  # type: ignore[method-assign]  one of these is not a method
        assert rig.http.get(missing).status_code == 404
    rig.fake.refuse("/zones/", 403, "forbidden")
    assert rig.http.get("zones/" + ZONE).status_code == 403
    rig.fake.calm()
    assert rig.get("zones/" + ZONE)["name"] == ZONE


def test_capacity_advice_names_the_best_zone(rig: Rig) -> None:
    rig.fake.advice.obtainability |= {"us-east1-c": 0.9, "us-east1-b": 0.1}
    zones = [{"zone": "zones/us-east1-b"}, {"zone": "zones/us-east1-c"}]
    asked = {
        "distributionPolicy": {"targetShape": "ANY", "zones": zones},
        "instanceFlexibilityPolicy": {"instanceSelections": {"one": {"machineTypes": ["g2-standard-8"]}}},
        "instanceProperties": {"scheduling": {"provisioningModel": "SPOT"}},
        "size": 1,
    }
    told = rig.http.post("regions/us-east1/advice/capacity", json=asked).raise_for_status().json()
    (recommended,) = told["recommendations"]
    assert recommended["scores"]["obtainability"] == 0.9
    assert recommended["shards"][0]["zone"].endswith("us-east1-c")
    history = {
        "types": ["PREEMPTION", "PRICE"],
        "instanceProperties": {"machineType": "g2-standard-8", "scheduling": {"provisioningModel": "SPOT"}},
        "locationPolicy": {"location": "zones/us-east1-b"},
    }
    told = rig.http.post("regions/us-east1/advice/capacityHistory", json=history).raise_for_status().json()
    assert len(told["preemptionHistory"]) == len(told["priceHistory"]) == 7
    rig.fake.advice.offered = False
    assert rig.http.post("regions/us-east1/advice/capacity", json=asked).status_code == 404


def test_a_live_fake_ticks_by_itself_and_waits_for_operations() -> None:
    fake = ComputeFake(live=True)
    fake.create_s, fake.queue_s = 0.2, 0.05
    up: list[str] = []
    fake.on_running = lambda vm: up.append(fake.instance(vm.name).status)  # a hook may call the API
    try:
        fake.create(ZONE, spot("vm-1"), "ann@example.com", time.time())
        wait_for(lambda: up == ["RUNNING"])
    finally:
        fake.close()
