"""Images of disks on Google Cloud: one for each request, ours or not, and machines that start from one."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from google.oauth2.credentials import Credentials

from supervisor.domain.bases import ImageSeen
from supervisor.ports.provider import ImageRefused, ImageRequest, ProviderUnavailable
from supervisor.providers.gce.calls.clients import Compute
from supervisor.providers.gce.calls.retry import Retry
from supervisor.providers.gce.machines import instance
from supervisor.providers.gce.machines.images import GceImages
from supervisor.providers.gce.machines.instance import Payload
from tests.cloud.web import Reset
from tests.providers.gce_subject import GceSubject
from tests.providers.startup_rig import StartupRig
from tests.waiting import wait_for

REQUEST_ID = "3b241101-e2bb-4255-8caf-4136c566a962"


@pytest.fixture
def gce(tmp_path: Path) -> Iterator[GceSubject]:
    made = GceSubject(tmp_path)
    yield made
    made.close()


def images_of(gce: GceSubject) -> GceImages:
    retry = Retry(deadline_s=4.0, per_try_s=2.0, monotonic=gce.clock.monotonic, sleep=gce.clock.advance)
    credentials = Credentials(token="a-token")  # type: ignore[no-untyped-call]
    return GceImages(gce.config, Compute(gce.config, retry, lambda: credentials))


def wish(gce: GceSubject, zone: str = "us-east1-c") -> ImageRequest:
    """Of a machine that runs."""
    machine = gce.provider.launch(gce.request())
    return ImageRequest(
        "spot-base-1-torch-v1", REQUEST_ID, "spot-base-1-torch", zone, machine.name, "torch-v1", "sup-1"
    )


def find(images: GceImages, wanted: ImageRequest, supervisor_id: str = "sup-1") -> ImageSeen | None:
    return images.find(wanted.name, supervisor_id, wanted.base)


def test_a_repeated_or_lost_request_makes_one_image(gce: GceSubject) -> None:
    images, wanted = images_of(gce), wish(gce)
    assert find(images, wanted) is None
    gce.compute.fail_next("POST", "/images", Reset, times=5, lost=True)
    with pytest.raises(ProviderUnavailable):
        images.request(wanted)
    gce.compute.calm()
    assert find(images, wanted) == ImageSeen("pending", True, None, 100), "the lost request has made it"
    images.request(wanted)
    images.request(replace(wanted, request_id="7f0f1c1e-6f5d-4f3e-9d5a-0f5d0f5d0f5d"))  # the name is taken
    gce.clock.advance(61)
    assert find(images, wanted) == ImageSeen("ready", True, 4_200_000_000, 100)
    assert len(gce.compute.custom) == 1
    made = gce.compute.custom[wanted.name]
    assert (made["family"], made["labels"]["spot-base"]) == ("spot-base-1-torch", "torch-v1")


def test_another_supervisors_image_of_that_name_is_not_ours(gce: GceSubject) -> None:
    images, wanted = images_of(gce), wish(gce)
    images.request(wanted)
    seen = find(images, wanted, "sup-2")
    assert seen is not None
    assert not seen.ours


def test_a_disk_that_is_gone_is_a_definite_no_and_an_outage_is_not(gce: GceSubject) -> None:
    images, wanted = images_of(gce), wish(gce)
    with pytest.raises(ImageRefused, match="not found"):
        images.request(replace(wanted, disk="no-such-machine"))
    gce.compute.storm(503, 3600)
    with pytest.raises(ProviderUnavailable):
        images.request(wanted)
    with pytest.raises(ProviderUnavailable):
        find(images, wanted)
    with pytest.raises(ProviderUnavailable):
        images.delete(wanted.name, REQUEST_ID)
    gce.compute.calm()
    assert find(images, wanted) is None


def test_a_deletion_is_safe_to_repeat(gce: GceSubject) -> None:
    images, wanted = images_of(gce), wish(gce)
    images.request(wanted)
    images.delete(wanted.name, REQUEST_ID)
    images.delete(wanted.name, REQUEST_ID)
    assert find(images, wanted) is None


def test_a_machine_with_a_base_starts_from_its_image_on_a_disk_that_is_large_enough(gce: GceSubject) -> None:
    request = replace(gce.request(), base="spot-base-1-torch-v1", base_disk_gb=200)
    body = instance.build(gce.config, request, Payload("script", "a" * 64))
    disk = body["disks"][0]["initializeParams"]
    assert (disk["sourceImage"], disk["diskSizeGb"]) == ("projects/p/global/images/spot-base-1-torch-v1", "200")
    keys = {item["key"]: item["value"] for item in body["metadata"]["items"]}
    assert (keys["spot-base"], "spot-prepares" in keys) == ("true", False)
    body = instance.build(gce.config, replace(gce.request(), prepares="torch-v1"), Payload("script", "a" * 64))
    assert {"key": "spot-prepares", "value": "torch-v1"} in body["metadata"]["items"]


# --- the machine that is prepared -------------------------------------------------------------------------------------


@pytest.fixture
def rig(tmp_path: Path) -> Iterator[StartupRig]:
    made = StartupRig(tmp_path)
    yield made
    made.close()


def test_a_prepared_machine_keeps_its_container_cleans_its_disk_and_waits(rig: StartupRig) -> None:
    personal = rig.folder / "root" / "home" / "ann" / ".ssh" / "id_ed25519"
    personal.parent.mkdir(parents=True)
    personal.write_text("key")
    machine = rig.folder / "root" / "var" / "lib" / "spot" / "machine"
    rig.job(write=str(machine / "prepared"))
    vm = rig.boot(spot_prepares="torch-v1")
    report = "runs/digits-7/instances/2.prepared.json"
    wait_for(lambda: vm.script_ended.is_set() or rig.storage.find("trainings", report), what="the report")
    assert rig.storage.find("trainings", report) is not None, "\n".join(vm.lines())
    stored = rig.storage.find("trainings", report)
    assert stored is not None
    assert stored.data == b'{"launch_id": "1.2.1"}'
    assert ["commit", "spot", "spot-base"] in vm.calls("docker")
    assert list(machine.iterdir()) == []
    assert not personal.exists()
    assert not vm.switched_off, "its disk is still needed"


def test_a_machine_whose_run_has_not_succeeded_is_no_base(rig: StartupRig) -> None:
    vm = rig.boot(spot_prepares="torch-v1")
    rig.ended(vm)
    assert rig.storage.find("trainings", "runs/digits-7/instances/2.prepared.json") is None
    assert not any(call[0] == "commit" for call in vm.calls("docker"))


def test_a_machine_from_a_base_pulls_nothing_and_one_without_its_container_says_so(rig: StartupRig) -> None:
    kept = rig.folder / "root" / "var" / "lib" / "docker" / "kept"
    kept.mkdir(parents=True)
    (kept / "spot-base").touch()
    vm = rig.boot(spot_base="true")
    rig.ended(vm)
    assert not any(call[0] == "pull" for call in vm.calls("docker"))
    assert any("spot-base" in call for call in vm.calls("docker") if call[0] == "run")


def test_a_base_that_lost_its_container_is_an_error_of_the_image(rig: StartupRig) -> None:
    vm = rig.boot(spot_base="true")
    rig.ended(vm)
    assert any("left=no_image" in line and "no container on its disk" in line for line in vm.lines())


# --- the clean-up in its container ------------------------------------------------------------------------------------


def cleaned(root: Path, home: str = "/root") -> subprocess.CompletedProcess[str]:
    machine = root / "var" / "lib" / "spot" / "machine"
    machine.mkdir(parents=True, exist_ok=True)
    env = {"PATH": os.environ["PATH"], "SPOT_MACHINE_DIR": str(machine), "HOME": home}
    return subprocess.run(["/bin/sh", "-c", GceImages.clean_up], env=env, capture_output=True, text=True, check=False)


def test_personal_files_repositories_and_environments_are_removed_and_the_rest_stays(tmp_path: Path) -> None:
    gone = (
        "root/.ssh/id_rsa", "root/.bash_history", "root/.netrc", "home/ann/.git-credentials",
        "home/ann/.config/gcloud/credentials.db", "home/ann/.cache/huggingface/token", "opt/app/.git/config",
        "opt/app/.env", "workspace/.env.local", "etc/ssh/ssh_host_rsa_key", "tmp/x", "var/log/dpkg.log",
    )  # fmt: skip
    stay = (
        "opt/app/train.py",
        "home/ann/notes.txt",
        "var/lib/spot/machine/job.json",
        "usr/lib/x/environment",
        "root/.profile",
    )
    for name in (*gone, *stay):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("text")
    (tmp_path / "opt/app/train.py").chmod(0o600)
    done = cleaned(tmp_path)
    assert done.returncode == 0, done.stderr
    assert [name for name in gone if (tmp_path / name).exists()] == []
    assert [name for name in stay if not (tmp_path / name).exists()] == []
    assert (tmp_path / "opt/app/train.py").stat().st_mode & 0o044 == 0o044
    assert (tmp_path / "var/lib/spot/machine/prepared").exists()


def test_a_private_key_that_is_left_is_no_clean_disk(tmp_path: Path) -> None:
    key = tmp_path / "home" / "ann" / "deploy.pem"
    key.parent.mkdir(parents=True)
    key.write_text("-----BEGIN OPENSSH PRIVATE KEY-----\n")
    done = cleaned(tmp_path)
    assert done.returncode == 1
    assert "deploy.pem" in done.stderr
    assert not (tmp_path / "var/lib/spot/machine/prepared").exists()


def test_on_any_other_computer_nothing_is_deleted(tmp_path: Path) -> None:
    precious = tmp_path / "home" / "ann" / ".ssh" / "id_rsa"
    precious.parent.mkdir(parents=True)
    precious.write_text("key")
    env = {
        "PATH": os.environ["PATH"],
        "SPOT_MACHINE_DIR": str(tmp_path / "machines" / "m-1"),
        "HOME": str(precious.parents[1]),
    }
    done = subprocess.run(["/bin/sh", "-c", GceImages.clean_up], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, precious.exists()) == (1, True)
    assert "no rented machine" in done.stderr
