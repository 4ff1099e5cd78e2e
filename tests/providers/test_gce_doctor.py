"""The doctor's lines about Google: each fact with its cause and the command that fixes it, against the tests' cloud."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from supervisor.ports.provider import ImageHidden, ImageMissing, ProviderUnavailable
from supervisor.providers.gce.calls.errors import IDENTITY, ApiError
from supervisor.providers.gce.config import DataDisk, parse_shape
from supervisor.providers.gce.doctor import places
from supervisor.providers.gce.doctor.access import member
from tests.cloud.compute_rig import FixedToken
from tests.providers.doctor_scene import Scene, a_project

NAMES = [
    "identity", "project", "gcloud", "project access", "machines", "zones", "shapes", "quotas", "boot image",
    "boot disk",
    "account", "prices", "advice", "bucket", "bucket access", "public_url",
]  # fmt: skip


@pytest.fixture
def scene() -> Iterator[Scene]:
    with a_project() as scene:
        yield scene


def test_a_project_in_order(scene: Scene) -> None:
    zones = ("us-east1-c", "us-east1-b", "us-central1-a")
    found = scene.look(zones=zones)
    assert list(found) == NAMES
    assert {name: one.fact for name, one in found.items() if one.result != "ok"} == {}
    assert found["project"].fact.startswith(f"{scene.catalog.project} (number 123456789012)"), "name and number"
    assert found["zones"].fact == "us-east1-c, us-east1-b, us-central1-a: up, tried in this order"
    assert found["quotas"].fact.startswith("us-east1 PREEMPTIBLE_NVIDIA_T4_GPUS 0 of 8 used")
    assert "GPUS_ALL_REGIONS 0 of 16 used" in found["quotas"].fact
    assert found["boot image"].fact == (
        "cos-129-lts is cos-129-19506-505-8; its default GPU driver is R580 (as of 2026-08), "
        "and the console of each boot shows the version"
    )
    assert found["public_url"].fact == "none: beats of machines come through the bucket only"


def test_without_credentials_nothing_else_is_asked(scene: Scene) -> None:
    def none() -> Any:
        raise ApiError("no Google credentials: none were found", None, IDENTITY)

    scene.credentials = none
    found = scene.look()
    assert list(found) == ["identity", "gcloud", "public_url"]
    assert found["identity"].result == "fail"
    assert found["identity"].fix.startswith("gcloud auth application-default login")
    assert scene.rig.checked == 0


@pytest.mark.parametrize(
    ("status", "reason", "fix", "asked"),
    [
        (403, "accessNotConfigured", "gcloud services enable compute.googleapis.com --project=", True),
        (403, "forbidden", "gcloud projects add-iam-policy-binding ", True),
        (404, "notFound", "gcloud projects list", False),
        (401, "authError", "gcloud auth application-default login", False),
    ],
)
def test_a_project_that_cannot_be_read(scene: Scene, status: int, reason: str, fix: str, asked: bool) -> None:
    scene.rig.fake.refuse("", status, reason)
    found = scene.look()
    more = ["project access", "bucket", "bucket access"] if asked else []
    assert list(found) == ["identity", "project", "gcloud", *more, "public_url"]
    assert (found["project"].result, found["project"].fix.startswith(fix)) == ("fail", True), found["project"]


def test_whose_credentials_they_are_is_told_without_the_project(scene: Scene) -> None:
    """On a machine of Google's the account is known after the first token: a project that is not there gives none."""

    class Machine(FixedToken):
        service_account_email = "default"

        def refresh(self, request: object) -> None:
            self.token, self.service_account_email = "ya29.fake-1", "spot@p.iam.gserviceaccount.com"

        def __init__(self) -> None:
            super().__init__()
            self.token = None

    scene.credentials = Machine
    found = scene.look(project="gone")
    assert found["identity"].fact == "acts as spot@p.iam.gserviceaccount.com"
    assert found["project"].result == "fail"


def test_zones_shapes_and_an_image_that_are_not_there(scene: Scene) -> None:
    scene.catalog.absent |= {("us-east1-b", "g2-standard-8"), ("us-east1-b", "nvidia-tesla-t4")}
    found = scene.look(
        zones=("us-east1-c", "us-east1-b"), boot_image="projects/cos-cloud/global/images/family/cos-gone"
    )
    assert (found["shapes"].result, found["shapes"].fact) == ("warn", "t4 not in us-east1-b; l4 not in us-east1-b")
    assert found["boot image"].result == "fail"
    assert found["boot image"].fix == "gcloud compute images list --project=cos-cloud --no-standard-images"
    found = scene.look(zones=("us-east1-c", "us-east1-z"), shapes={"x": parse_shape("n4-nothing-8")})
    assert (found["zones"].result, found["zones"].fact) == ("fail", "us-east1-z: not there")
    first = scene.look(zones=("us-east1-z", "us-east1-c"))["machines"]
    assert "us-east1-z" in first.cause
    assert "role" not in first.fix, "no role would mend that"
    assert (found["shapes"].result, found["shapes"].fact) == ("fail", "x: in none of the zones")


@pytest.mark.parametrize(
    ("quotas", "result", "told"),
    [
        ({"PREEMPTIBLE_NVIDIA_T4_GPUS": (1.0, 1.0)}, "warn", "PREEMPTIBLE_NVIDIA_T4_GPUS 1 of 1 used"),
        # Without a quota for preemptible ones, spot machines count against the ordinary one.
        ({"PREEMPTIBLE_NVIDIA_T4_GPUS": (0.0, 0.0)}, "ok", "us-east1 NVIDIA_T4_GPUS 0 of 8 used"),
        (
            {"PREEMPTIBLE_NVIDIA_T4_GPUS": (0.0, 0.0), "NVIDIA_T4_GPUS": (0.0, 0.0)},
            "warn",
            "NVIDIA_T4_GPUS 0 of 0 used",
        ),
    ],
)
def test_quotas(scene: Scene, quotas: dict[str, tuple[float, float]], result: str, told: str) -> None:
    scene.catalog.quotas["us-east1"] = quotas
    found = scene.look()["quotas"]
    assert found.result == result
    assert told in found.fact
    assert result == "ok" or found.fix.endswith(f"quotas?project={scene.catalog.project}")


def test_no_quota_at_all_fails(scene: Scene) -> None:
    scene.catalog.quotas[""] = {"GPUS_ALL_REGIONS": (0.0, 0.0)}
    scene.catalog.quotas["us-east1"] = {"PREEMPTIBLE_NVIDIA_T4_GPUS": (1.0, 1.0)}
    assert scene.look(shapes={"t4": parse_shape("n1-standard-8+1xnvidia-tesla-t4")})["quotas"].result == "fail"


def test_an_account_that_may_do_too_much(scene: Scene) -> None:
    found = scene.look(service_account="default")["account"]
    assert found.result == "warn"
    assert "123456789012-compute@developer.gserviceaccount.com" in found.fact
    assert found.fix.startswith("gcloud iam service-accounts create spot-worker")


def test_prices_that_nobody_told(scene: Scene) -> None:
    found = scene.look(shapes={"h200": parse_shape("a3-ultragpu-8g")})["prices"]
    assert (found.result, found.fact) == ("warn", "unknown for h200 in us-east1")
    assert "set gce_prices, such as h200=" in found.fix


@pytest.mark.parametrize(
    ("pin", "result", "told"),
    [
        (lambda image: "r/train@sha256:" + "ab" * 32, "ok", "default_image r/train:1 is sha256:abababababab now"),
        (ImageMissing("no such tag"), "fail", "default_image r/train:1: not there"),
        (ImageHidden("HTTP 403"), "warn", "default_image r/train:1: not visible"),
        (ProviderUnavailable("no answer"), "warn", "default_image r/train:1: not checked"),
    ],
)
def test_the_image_of_runs_that_name_none(scene: Scene, pin: Any, result: str, told: str) -> None:
    def answer(image: str) -> str:
        if isinstance(pin, Exception):
            raise pin
        return str(pin(image))

    assert "image" not in scene.look()
    found = scene.look(image={"image": "r/train:1", "pin": answer})["image"]
    assert (found.result, found.fact) == (result, told)


def test_networks(scene: Scene) -> None:
    assert scene.look(subnet="default")["network"].result == "ok"
    assert scene.look(external_ip=False)["network"].result == "warn"
    assert scene.look(subnet="gone")["network"].fact == "gone: not in us-east1"
    config = replace(scene.config, subnet="default", external_ip=False)
    closed = places.network(config, lambda path, **_: {"privateIpGoogleAccess": False})
    assert closed.fix.startswith("gcloud compute networks subnets update default --region=us-east1")


def test_boot_disks(scene: Scene) -> None:
    assert places.boot_disk(scene.config).fact == "100 GB of pd-ssd"
    shapes = {"t4": parse_shape("n1-standard-8+1xnvidia-tesla-t4"), "a4x": parse_shape("a4x-highgpu-4g")}
    found = places.boot_disk(replace(scene.config, shapes=shapes))
    assert (found.fact, found.result) == ("100 GB of pd-ssd, hyperdisk-balanced for a4x", "warn")
    assert "arm64" in found.fix


def test_data_disks(scene: Scene) -> None:
    disk = DataDisk("rav-data", "us-east1-c")
    assert scene.look(data_disk=disk)["data disk"].fix.startswith("gcloud compute disks create rav-data")
    scene.catalog.add_disk("us-east1-c", "rav-data", 500)
    found = scene.look(data_disk=disk)
    assert found["data disk"].fact == "rav-data in us-east1-c, 500 GB"
    scene.catalog.absent.add(("us-east1-b", "g2-standard-8"))
    assert scene.look(data_disk=disk)["shapes"].result == "ok", "only the disk's zone counts"


def test_listings_that_are_refused_or_partial(scene: Scene) -> None:
    scene.rig.fake.refuse("aggregated/instances", 403, "forbidden")
    scene.rig.fake.refuse("advice/capacity", 404, "notFound")
    found = scene.look()
    assert (found["machines"].result, found["zones"].result) == ("fail", "ok")
    assert (found["advice"].result, found["advice"].fix) == ("warn", "set gce_capacity_advice = false")
    assert scene.look(capacity_advice=False)["advice"].result == "ok"


@contextmanager
def proxy(status: int, kind: str) -> Iterator[str]:
    class Answers(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            assert self.path.endswith("/heartbeat")
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(status)
            self.send_header("content-type", kind)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    with http.server.HTTPServer(("127.0.0.1", 0), Answers) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_the_public_address(scene: Scene) -> None:
    with proxy(422, "application/problem+json") as url:
        assert scene.look(public_url=url)["public_url"].result == "ok"
    gone = scene.look(public_url=url)["public_url"]
    assert (gone.result, gone.fact) == ("warn", f"{url} does not respond from here")
    with proxy(200, "text/html") as url:
        assert scene.look(public_url=url)["public_url"].fact == f"{url} is not this supervisor"


def test_members_of_a_policy() -> None:
    assert member("a@p.iam.gserviceaccount.com") == "serviceAccount:a@p.iam.gserviceaccount.com"
    assert member("ann@example.org") == "user:ann@example.org"
    assert member("p.svc.id.goog") == member("") == "serviceAccount:ACCOUNT"
