"""The body of the insert: a pure function whose every result is checked against Google's discovery document."""

from __future__ import annotations

import base64
import gzip
import json
from dataclasses import replace
from typing import Any

import pytest

from supervisor.api.shapes.run_spec import COMMAND_MAX_BYTES
from supervisor.domain.machines import Placement
from supervisor.ports.provider import LaunchRejected, LaunchRequest
from supervisor.providers.gce.config import DataDisk, GceConfig, NewDisk, Shape, offers, parse_shape
from supervisor.providers.gce.machines.instance import Payload, bucket_and_prefix, build, startup_script
from tests.cloud.discovery import Oracle
from tests.cloud.web import Request, Response

ORACLE = Oracle("compute")
DIGEST = f"sha256:{'a' * 64}"
PAYLOAD = Payload(startup_script(), "b" * 64)
CONFIG = GceConfig(
    "p",
    ("us-east1-c",),
    {"t4": Shape("n1-standard-8", "nvidia-tesla-t4", 1), "l4": Shape("g2-standard-24", "", 2)},
    store_url="gs://bucket/some/where",
)
JOB: dict[str, object] = {
    "version": 1,
    "run_id": "digits",
    "launch_id": "1.2.3",
    "nonce": "n" * 32,
    "command": "python train.py --epochs 3",
    "env": {"A": "b"},
    "secrets": ["API_KEY"],
    "server_file": None,
}


def request(shape: str = "t4", spot: bool = True, **changed: Any) -> LaunchRequest:
    return LaunchRequest(**{
        "name": "spot-0123abcd-a2-t3",
        "request_id": "11111111-2222-5333-8444-555555555555",
        "placement": Placement("gce", "us-east1", "us-east1-c", shape, spot),
        "supervisor_id": "5f0c2d",
        "run_id": "digits",
        "launch_id": "1.2.3",
        "machine_max_s": 86400.0,
        "job": JOB,
        "image": f"us-docker.pkg.dev/p/r/digits@{DIGEST}",
        "secrets": {"API_KEY": "gcp:projects/p/secrets/key/versions/1"},
        **changed,
    })  # fmt: skip


def checked(config: GceConfig, asked: LaunchRequest) -> dict[str, Any]:
    """The body, once the oracle has nothing against it."""
    body = build(config, asked, PAYLOAD)
    sent = Request(
        "POST",
        f"/compute/v1/projects/p/zones/{asked.placement.zone}/instances",
        {"requestId": [asked.request_id]},
        {"content-type": "application/json"},
        json.dumps(body).encode(),
    )
    assert ORACLE.check(sent, Response(200, {"name": "operation-1", "id": "1", "status": "RUNNING"})) == []
    return body


def items(body: dict[str, Any]) -> dict[str, str]:
    return {item["key"]: item["value"] for item in body["metadata"]["items"]}


def job_of(body: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(gzip.decompress(base64.b64decode(items(body)["spot-job"])))
    return found


def test_a_spot_machine_dies_for_good_and_in_any_case() -> None:
    body = checked(replace(CONFIG, notice_s=120), request())
    assert body["scheduling"] == {
        "provisioningModel": "SPOT",
        "instanceTerminationAction": "DELETE",
        "onHostMaintenance": "TERMINATE",
        "automaticRestart": False,
        "maxRunDuration": {"seconds": "86400"},
        "preemptionNoticeDuration": {"seconds": "120"},
    }
    assert body["guestAccelerators"] == [
        {"acceleratorType": "projects/p/zones/us-east1-c/acceleratorTypes/nvidia-tesla-t4", "acceleratorCount": 1}
    ]
    assert "preemptionNoticeDuration" not in checked(CONFIG, request())["scheduling"]


def test_on_demand_has_its_dead_man_switch_too_and_no_notice() -> None:
    body = checked(replace(CONFIG, notice_s=120), request(shape="l4", spot=False))
    scheduling = body["scheduling"]
    assert scheduling["provisioningModel"] == "STANDARD"
    assert scheduling["instanceTerminationAction"] == "DELETE"
    assert scheduling["maxRunDuration"] == {"seconds": "86400"}
    assert "preemptionNoticeDuration" not in scheduling
    assert "guestAccelerators" not in body  # the machine type brings its cards
    assert job_of(body)["gpus"] == 2
    assert job_of(body)["notice_from"] is None


@pytest.mark.parametrize(("asked_s", "given"), [(5.0, "30"), (400 * 86400.0, str(120 * 86400))])
def test_the_longest_life_is_one_that_google_takes(asked_s: float, given: str) -> None:
    body = checked(CONFIG, request(machine_max_s=asked_s))
    assert body["scheduling"]["maxRunDuration"] == {"seconds": given}


def test_labels_and_account_and_disks() -> None:
    body = checked(CONFIG, request())
    assert body["labels"] == {
        "spot-runner": "spot",
        "spot-supervisor-id": "5f0c2d",
        "spot-run-id": "digits",
        "spot-attempt": "2",
        "spot-launch-id": "1-2-3",
        "runner_label": "spot",
        "run_id": "digits",
    }
    everything, storage = (
        f"https://www.googleapis.com/auth/{name}" for name in ("cloud-platform", "devstorage.read_write")
    )
    assert body["serviceAccounts"] == [{"email": "default", "scopes": [everything]}], "it reads a secret"
    bare = checked(CONFIG, replace(request(), secrets={}))
    assert bare["serviceAccounts"] == [{"email": "default", "scopes": [storage]}]
    assert body["disks"] == [
        {
            "boot": True,
            "autoDelete": True,
            "initializeParams": {
                "sourceImage": "projects/cos-cloud/global/images/family/cos-129-lts",
                "diskSizeGb": "100",
                "diskType": "zones/us-east1-c/diskTypes/pd-ssd",
            },
        }
    ]
    assert body["shieldedInstanceConfig"]["enableSecureBoot"] is True
    assert "shieldedInstanceConfig" not in checked(replace(CONFIG, shielded=False), request())


def test_a_data_disk_is_attached_and_outlives_the_machine() -> None:
    body = checked(replace(CONFIG, data_disk=DataDisk("corpus", "us-east1-c", "/data", "xfs")), request())
    disk = body["disks"][1]
    assert disk["source"] == "projects/p/zones/us-east1-c/disks/corpus"
    assert (disk["autoDelete"], disk["mode"], disk["deviceName"]) == (False, "READ_WRITE", "spot-data")
    told = items(body)
    assert told["spot-data-disk-device-name"] == "spot-data"
    assert told["spot-data-disk-mount-path"] == "/data"
    assert told["spot-data-disk-fs-type"] == "xfs"
    assert told["spot-data-disk-read-only"] == "false"


def test_a_shared_data_disk_is_attached_read_only() -> None:
    """Google gives a disk that may be written to one machine at a time."""
    disk = DataDisk("corpus", "us-east1-c", read_only=True)
    body = checked(replace(CONFIG, data_disk=disk), request())
    assert (body["disks"][1]["autoDelete"], body["disks"][1]["mode"]) == (False, "READ_ONLY")
    assert items(body)["spot-data-disk-read-only"] == "true"


def test_a_new_disk_is_made_in_the_machines_own_zone_and_goes_with_it() -> None:
    config = replace(CONFIG, new_disk=NewDisk(500, "pd-balanced"))
    body = checked(config, request())
    disk = body["disks"][1]
    zone = request().placement.zone
    assert disk["initializeParams"] == {
        "diskName": f"{body['name']}-data",
        "diskSizeGb": "500",
        "diskType": f"zones/{zone}/diskTypes/pd-balanced",
    }
    assert (disk["autoDelete"], disk["mode"], disk["boot"]) == (True, "READ_WRITE", False)
    assert items(body)["spot-data-disk-device-name"] == "spot-data"
    zones = ("us-east1-c", "us-east1-b")
    offered = offers(replace(config, zones=zones))
    assert {offer.placement.zone for offer in offered} == set(zones), "no zone is pinned"


@pytest.mark.parametrize(
    ("changed", "interface"),
    [
        ({}, {"network": "projects/p/global/networks/default",
              "accessConfigs": [{"type": "ONE_TO_ONE_NAT", "name": "External NAT"}]}),
        ({"external_ip": False}, {"network": "projects/p/global/networks/default"}),
        ({"subnet": "inner", "external_ip": False},
         {"subnetwork": "projects/p/regions/us-east1/subnetworks/inner"}),
        ({"subnet": "projects/host/regions/us-east1/subnetworks/shared", "external_ip": False},
         {"subnetwork": "projects/host/regions/us-east1/subnetworks/shared"}),
    ],
)  # fmt: skip
def test_network_interfaces(changed: dict[str, Any], interface: dict[str, Any]) -> None:
    assert checked(replace(CONFIG, **changed), request())["networkInterfaces"] == [interface]


def test_an_organisation_may_forbid_that_consoles_go_to_cloud_logging() -> None:
    body = checked(replace(CONFIG, serial_logging=False), request())
    assert "serial-port-logging-enable" not in items(body)


def test_the_machine_is_told_what_it_needs_and_nothing_is_written_into_the_script() -> None:
    body = checked(
        replace(CONFIG, public_url="https://spot.example.com", storage_endpoint="http://127.0.0.1:1"), request()
    )
    told = items(body)
    assert told["startup-script"] == startup_script()
    assert {key: told[key] for key in told if key not in ("startup-script", "spot-job")} == {
        "serial-port-logging-enable": "true",
        "spot-run-id": "digits",
        "spot-attempt": "2",
        "spot-launch-id": "1.2.3",
        "spot-nonce": "n" * 32,
        "spot-bucket": "bucket",
        "spot-prefix": "some/where/",
        "spot-image-ref": f"us-docker.pkg.dev/p/r/digits@{DIGEST}",
        "spot-job-command": base64.b64encode(b"python train.py --epochs 3").decode(),
        "spot-agent-sha256": "b" * 64,
        "spot-gpus": "1",
        "spot-gpu-timeout-sec": "1200",
        "spot-gpu-driver-version": "default",
        "spot-shm-size": "2g",
        "spot-storage-endpoint": "http://127.0.0.1:1",
    }
    job = job_of(body)
    assert "command" not in job
    assert job["env"] == {"A": "b"}
    assert {key: job[key] for key in job if key not in JOB or key == "server_file"} == {
        "name": "spot-0123abcd-a2-t3",
        "command_form": "shell",
        "in_image": True,
        "server_url": "https://spot.example.com",
        "server_file": None,
        "secret_refs": {"API_KEY": "gcp:projects/p/secrets/key/versions/1"},
        "sequence_from": 100,
        "notice_from": "gce",
        "notice_s": 0,
        "storage_endpoint": "http://127.0.0.1:1",
        "secret_manager_endpoint": None,
        "gpus": 1,
        "image_digest": DIGEST,
    }


def test_a_command_of_words_stays_one() -> None:
    words = ["python", "train.py", "--name", 'a "b" $(c) `d`\nä']
    body = checked(CONFIG, request(job={**JOB, "command": words, "conda_env": "train"}))
    assert json.loads(base64.b64decode(items(body)["spot-job-command"])) == words
    assert job_of(body)["command_form"] == "words"
    assert items(body)["spot-conda-env"] == "train"
    # What a submit takes, it counts in UTF-8: no alphabet may need more room than that.
    words = ["\u4e2d" * (COMMAND_MAX_BYTES // 3 - 2), "x"]
    body = checked(CONFIG, request(job={**JOB, "command": words}))
    assert json.loads(base64.b64decode(items(body)["spot-job-command"])) == words


def test_a_repeat_sends_the_same_bytes() -> None:
    assert json.dumps(build(CONFIG, request(), PAYLOAD)) == json.dumps(build(CONFIG, request(), PAYLOAD))


def test_a_tag_has_no_digest_and_a_run_without_an_image_is_refused() -> None:
    assert job_of(checked(CONFIG, request(image="python:3.12")))["image_digest"] is None
    with pytest.raises(LaunchRejected, match="the run has none") as refused:
        build(CONFIG, request(image=""), PAYLOAD)
    assert refused.value.of_run


@pytest.mark.parametrize(
    ("wanted", "machine_type", "kind"),
    [
        ("pd-ssd", "n1-standard-8", "pd-ssd"),
        ("pd-balanced", "a2-highgpu-1g", "pd-balanced"),
        ("pd-ssd", "a3-highgpu-8g", "pd-ssd"),
        ("pd-ssd", "a3-ultragpu-8g", "hyperdisk-balanced"),
        ("pd-balanced", "a4-highgpu-8g", "hyperdisk-balanced"),
        ("hyperdisk-extreme", "a4-highgpu-8g", "hyperdisk-extreme"),
        ("hyperdisk-balanced", "g2-standard-8", "pd-ssd"),
    ],
)
def test_the_boot_disk_is_of_a_kind_that_the_series_takes(wanted: str, machine_type: str, kind: str) -> None:
    config = replace(CONFIG, boot_disk_type=wanted, shapes={"one": parse_shape(machine_type)})
    asked = request(placement=replace(request().placement, shape="one"))
    disk = checked(config, asked)["disks"][0]["initializeParams"]
    assert disk["diskType"] == f"zones/{asked.placement.zone}/diskTypes/{kind}"


def test_a_run_id_of_63_characters_is_a_label() -> None:
    run_id = "r" + "0" * 61 + "z"
    body = checked(CONFIG, request(run_id=run_id))
    assert body["labels"]["spot-run-id"] == items(body)["spot-run-id"] == run_id


def noise(length: int) -> str:
    """Text that gzip does not make shorter."""
    import random

    return "".join(
        random.Random(7).choices("abcdefghijklmnopqrstuvwxyz0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ-_", k=length)
    )


@pytest.mark.parametrize(
    ("command", "environment", "refused"),
    [
        (190_000, 100_000, None),
        (196_608, 10, None),  # its base64 is exactly 262144 bytes
        (196_609, 10, "the command takes 262148 bytes"),
        (10, 270_000, "the environment and the rest of the spec takes"),
        (196_600, 255_000, "the machine's metadata takes"),
    ],
)
def test_sizes_at_their_limits(command: int, environment: int, refused: str | None) -> None:
    asked = request(job={**JOB, "command": "x" * command, "env": {"BIG": noise(environment)}})
    if refused is None:
        checked(CONFIG, asked)
        return
    with pytest.raises(LaunchRejected, match=refused) as told:
        build(CONFIG, asked, PAYLOAD)
    assert told.value.of_run
    assert "code bundle" in str(told.value)


def test_the_oracle_bites() -> None:
    """A field or a value that the API does not have is seen, so the other tests mean something."""
    broken = {**build(CONFIG, request(), PAYLOAD), "maxRunDuration": {"seconds": "1"}}
    broken["scheduling"] = {**broken["scheduling"], "provisioningModel": "PREEMPT"}
    sent = Request("POST", "/compute/v1/projects/p/zones/us-east1-c/instances", {}, {}, json.dumps(broken).encode())
    assert len(ORACLE.check(sent, Response(200, {"name": "operation-1"}))) == 2


@pytest.mark.parametrize(
    ("url", "parts"),
    [("gs://b", ("b", "")), ("gs://b/", ("b", "")), ("gs://b/x", ("b", "x/")), ("gs://b/x/y/", ("b", "x/y/"))],
)
def test_bucket_and_prefix(url: str, parts: tuple[str, str]) -> None:
    assert bucket_and_prefix(url) == parts
