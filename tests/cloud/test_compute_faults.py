"""The faults of the fake Compute Engine, each as the official client gets it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from google.api_core import exceptions as google_errors

from tests.cloud.compute_rig import ZONE, Rig, compute_rig, spot
from tests.cloud.web import Hang, Reset
from tests.waiting import wait_for


@pytest.fixture
def rig() -> Iterator[Rig]:
    with compute_rig() as made:
        yield made


@pytest.mark.parametrize(
    "code", ["ZONE_RESOURCE_POOL_EXHAUSTED", "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS", "GPU_STOCKOUT"]
)
def test_a_stock_out_is_a_finished_operation_with_an_error(rig: Rig, code: str) -> None:
    rig.fake.stock_out(ZONE, shape="nvidia-tesla-t4", code=code, until=rig.now + 60)
    asked = rig.insert()
    assert rig.status() == "PROVISIONING"
    rig.after(rig.fake.fail_s)
    failed = rig.operation(asked)
    assert failed.status.name == "DONE"
    assert failed.error.errors[0].code == code
    assert failed.http_error_status_code == 503
    assert bool(failed.error.errors[0].error_details) == code.endswith("_WITH_DETAILS")
    assert rig.fake.names() == []
    rig.after(60)
    rig.running()


def test_a_stock_out_of_another_shape_or_zone_or_model_is_none_of_ours(rig: Rig) -> None:
    rig.fake.stock_out(ZONE, shape="nvidia-l4")
    rig.fake.stock_out("us-east1-c")
    g2 = {"machineType": "zones/us-west1-a/machineTypes/g2-standard-8", "guestAccelerators": []}
    rig.fake.stock_out("us-west1-a", shape="nvidia-l4")  # which this machine type brings along
    rig.http.post("zones/us-west1-a/instances", json=spot("vm-g2") | g2).raise_for_status()
    rig.after(rig.fake.fail_s)
    assert rig.fake.names() == []
    rig.fake.stock_out(ZONE, model="STANDARD")
    rig.running()


def test_quota_of_a_region_and_of_the_whole_project(rig: Rig) -> None:
    rig.fake.quota("us-east1", "PREEMPTIBLE_NVIDIA_T4_GPUS", limit=1)
    region = rig.insert()
    rig.after(5)
    rig.fake.raise_quota()
    rig.fake.quota()
    everywhere = rig.insert(zone="us-west1-a")
    rig.after(5)
    for asked, metric in ((region, "PREEMPTIBLE_NVIDIA_T4_GPUS"), (everywhere, "GPUS_ALL_REGIONS")):
        (error,) = rig.operation(asked).error.errors
        assert error.code == "QUOTA_EXCEEDED"
        assert "'%s' exceeded" % metric in error.message
        assert error.error_details[0].quota_info.metric_name == "compute.googleapis.com/" + metric.lower()
    rig.fake.raise_quota()
    rig.fake.quota(at_once=True)
    with pytest.raises(google_errors.Forbidden) as refused:
        rig.insert()
    assert refused.value.errors[0]["reason"] == "quotaExceeded"
    assert len(rig.fake.operations.all()) == 2


@pytest.mark.parametrize("how", [Reset, Hang, 500])
def test_the_answer_is_lost_and_the_machine_comes_up(rig: Rig, how: Any) -> None:
    rig.fake.fail_next("POST", "/instances$", how, lost=True)
    with pytest.raises((httpx.TransportError, httpx.HTTPStatusError)):
        rig.http.post("zones/%s/instances" % ZONE, json=spot("vm-1"), timeout=0.3).raise_for_status()
    wait_for(rig.fake.names, what="the machine whose answer was lost")
    rig.after(10)
    assert rig.status() == "RUNNING"


def test_an_answer_of_something_in_between_is_no_json(rig: Rig) -> None:
    rig.running()
    rig.oracle.check = lambda *_: []  # type: ignore[method-assign]  it is not a response of the API
    rig.fake.fail_next("GET", "/vm-1$", (404, b"<html>Not Found</html>"))
    with pytest.raises(google_errors.NotFound) as odd:
        rig.status()
    assert odd.value.errors == []  # no reason: this 404 does not say that there is no such machine
    assert rig.status() == "RUNNING"


def test_rate_limits_and_storms_end_by_themselves(rig: Rig) -> None:
    rig.fake.fail_next("GET", "/zones$", 403)
    rig.fake.fail_next("GET", "/zones$", 429)
    for status in (403, 429):
        refused = rig.http.get("zones")
        assert refused.status_code == status
        assert refused.json()["error"]["errors"][0]["reason"] == "rateLimitExceeded"
    assert rig.get("zones")["items"]
    rig.fake.storm(503, for_s=600)
    assert [rig.http.get("zones").status_code for _ in range(3)] == [503] * 3
    rig.after(600)
    assert rig.get("zones")["items"]
    assert rig.fake.count("GET", "/zones$") == 7


def test_an_expired_token_is_401_until_there_is_another(rig: Rig) -> None:
    rig.get("zones")
    rig.fake.expire_tokens()
    refused = rig.http.get("zones")
    assert refused.status_code == 401
    assert refused.json()["error"]["errors"][0]["reason"] == "authError"
    rig.http.headers["Authorization"] = "Bearer ya29.new"
    assert rig.get("zones")["items"]
    del rig.http.headers["Authorization"]
    assert rig.http.get("zones").status_code == 401


def test_an_unreachable_zone_makes_the_list_partial_and_its_calls_fail(rig: Rig) -> None:
    rig.running("vm-1")
    rig.running("vm-2", "us-east1-c")
    rig.fake.unreachable(ZONE, until=rig.now + 60)
    (page,) = rig.instances.aggregated_list(project="p").pages
    assert list(page.unreachables) == ["zones/" + ZONE]
    assert page.items["zones/" + ZONE].warning.code == "UNREACHABLE"
    assert [vm.name for vm in page.items["zones/us-east1-c"].instances] == ["vm-2"]
    assert rig.http.get("zones/%s/instances/vm-1" % ZONE).status_code == 503
    rig.fake.unreachable(ZONE, said_by=("warning",))
    (page,) = rig.instances.aggregated_list(project="p").pages
    assert list(page.unreachables) == []
    rig.fake.reachable(ZONE)
    (page,) = rig.instances.aggregated_list(project="p").pages
    assert [vm.name for vm in page.items["zones/" + ZONE].instances] == ["vm-1"]


def refused_insert(rig: Rig, **wrong: Any) -> str:
    answer = rig.http.post("zones/%s/instances" % ZONE, json=spot("vm-1") | wrong)
    assert answer.status_code == 400
    return str(answer.json()["error"]["message"])


def test_what_the_service_would_refuse_is_refused(rig: Rig) -> None:
    scheduling = spot("vm-1")["scheduling"]
    assert "does not exist in zone" in refused_insert(rig, machineType="zones/%s/machineTypes/n9-standard-8" % ZONE)
    assert "Label" in refused_insert(rig, labels={"spot-launch-id": "1.2.3"})
    assert "262144" in refused_insert(rig, metadata={"items": [{"key": "spot-job", "value": "x" * 262_145}]})
    half = [{"key": "key-%d" % at, "value": "x" * 262_000} for at in range(2)]
    assert "512 KB" in refused_insert(rig, metadata={"items": [*half, {"key": "more", "value": "x" * 1000}]})
    notice = {"preemptionNoticeDuration": {"seconds": "60"}}
    assert "0 or 120" in refused_insert(rig, scheduling=scheduling | notice)
    assert "automatic restart" in refused_insert(rig, scheduling=scheduling | {"automaticRestart": True})
    assert "live migration" in refused_insert(rig, scheduling=scheduling | {"onHostMaintenance": "MIGRATE"})
    disk = {"boot": True, "initializeParams": {"sourceImage": "projects/cos-cloud/global/images/family/no"}}
    assert "cannot be found" in refused_insert(rig, disks=[disk])
    assert "Unknown zone" in rig.http.post("zones/mars-1/instances", json=spot("vm-1")).text
    assert rig.fake.names() == []
    rig.http.post("zones/%s/instances" % ZONE, json=spot("vm-1")).raise_for_status()


def test_a_data_disk_is_of_its_zone_and_of_one_machine(rig: Rig) -> None:
    rig.fake.catalog.add_disk(ZONE, "data")
    source = "projects/p/zones/%s/disks/data" % ZONE
    disks = [*spot("vm-1")["disks"], {"source": source, "deviceName": "data"}]
    rig.http.post("zones/%s/instances" % ZONE, json=spot("vm-1") | {"disks": disks}).raise_for_status()
    assert rig.get("zones/%s/disks/data" % ZONE)["users"] == [
        "https://www.googleapis.com/compute/v1/projects/p/zones/%s/instances/vm-1" % ZONE
    ]
    second = rig.http.post("zones/%s/instances" % ZONE, json=spot("vm-2") | {"disks": disks})
    assert second.json()["error"]["errors"][0]["reason"] == "resourceInUseByAnotherResource"
    rig.fake.delete_by("alice@example.com", "vm-1")
    rig.after(10)
    assert "users" not in rig.get("zones/%s/disks/data" % ZONE)
