"""deploy/terraform grants exactly what the product's calls need: no permission is missing, and none is superfluous.

Everything that speaks to Google is done once, and each call is put down to its account: a real supervisor with machines
that boot, the doctor, prices, consoles, Google's own events, an import, a rehearsed preemption, and an image build.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import pytest
from google.auth.transport.requests import AuthorizedSession
from google.oauth2.credentials import Credentials

from supervisor.images import cloud_build
from supervisor.images.build import build
from supervisor.images.request import DOCKER, GCLOUD, STAGED, WAYS, BuildRequest, Built, checked
from supervisor.ports.provider import ImageRequest
from supervisor.providers.gce.calls.clients import Compute
from supervisor.providers.gce.calls.retry import Retry
from supervisor.providers.gce.config import DataDisk, GceConfig, parse_shape
from supervisor.providers.gce.doctor import places as doctor_places
from supervisor.providers.gce.machines.images import GceImages
from tests.acceptance.cloud_story import CloudStory, cloud_story
from tests.cloud import rolefiles
from tests.cloud.access import Access, Use
from tests.cloud.cloud import BUCKET, PROJECT, SHAPES, Cloud
from tests.cloud.rolefiles import BUILD, BUILDER, WORKER, Grant
from tests.providers.gce_subject import GceSubject
from tests.waiting import wait_for

pytestmark = pytest.mark.xdist_group("stories-cloud")

ZONE = "us-east1-c"
SETTINGS = {
    "SPOT_GCE_ZONES": ZONE,
    "SPOT_GCE_SERVICE_ACCOUNT": f"spot-worker@{PROJECT}.iam.gserviceaccount.com",
    "SPOT_GCE_SUBNET": "default",
    "SPOT_GCE_BOOT_IMAGE": f"projects/{PROJECT}/global/images/family/own",
}
OLD = "rav-old-1"


def test_what_is_granted_is_what_the_calls_need(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    used = {
        *_lives(tmp_path),
        *_asked_by_a_person(),
        *_builds(tmp_path, monkeypatch),
        *_mounts_a_data_disk(tmp_path / "disk", read_only=False),
        *_mounts_a_data_disk(tmp_path / "shared-disk", read_only=True),
        *_switches_a_kept_machine_off(tmp_path / "kept"),
    }
    needed = {use.grant for use in used}
    missing, superfluous = needed - rolefiles.grants(), rolefiles.grants() - needed
    assert missing == set(), _told(missing)
    assert superfluous == set(), _told(superfluous)


def _told(grants: Iterable[Grant]) -> str:
    return "\n".join(f"{one.identity}: {one.permission} on {one.where}" for one in sorted(grants))


def _lives(folder: Path) -> set[Use]:
    """A supervisor and its machines, and all that a person may ask of it."""
    with cloud_story(folder, SETTINGS) as story:
        cloud = story.cloud
        cloud.compute.catalog.images[PROJECT, "own"] = "own-1"
        secret = cloud.secrets.add(PROJECT, "hf-token", "hush")
        story.spot(
            "submit", "--run-id", "digits", "--code", ".", "--image", cloud.image("train:1"),
            "--secret", f"HF={secret}", "--keep-machine", "--", sys.executable, "train.py", "--steps", "100000",
            "--checkpoint-every", "10", "--step-delay-s", "0.03",
        )  # fmt: skip
        story.trains("digits")
        _asks(story)
        _has_its_machine_taken(story)
        for vm in cloud.machines.vms:
            if any("pull" in call for call in vm.calls("docker")):
                cloud.access.note(WORKER, "docker pull")
        story.daemon.call("POST", "/v1/runs/digits/stop")
        story.daemon.wait_status("digits", "stopped")
        (name,) = cloud.compute.names()
        assert cloud.compute.instance(name).status == "TERMINATED", "it is kept, switched off"
        assert name in story.spot("machine", "ls")
        story.spot("machine", "rm", "digits", "--yes")
        wait_for(lambda: cloud.compute.names() == [], 60, "the machines to be gone")
        return set(cloud.access.used)


def _asks(story: CloudStory) -> None:
    call = story.daemon.call
    call("GET", "/v1/doctor")
    call("POST", "/v1/prices/refresh")
    call("GET", "/v1/machines")
    call("GET", "/v1/runs/digits/events?cloud=true")
    assert call("GET", "/v1/runs/digits/console?after=0")["text"]
    call("GET", "/v1/runs/digits/console?source=cloud_logging")
    spec = {"command": "true", "image": story.cloud.image("train:1")}
    call("POST", "/v1/runs?validate_only=true", {"run_id": "other", "spec": spec})
    root = f"runs/{OLD}"
    story.cloud.storage.put(BUCKET, f"{root}/run_manifest.json", b'{"run_id": "rav-old-1", "status": "STOPPED"}')
    story.cloud.storage.put(BUCKET, f"{root}/checkpoint_sync/checkpoints/last.pt", b"weights")
    call("POST", "/v1/imports", {"url": f"gs://{BUCKET}/{root}", "run_id": "imported", "spec": spec})


def _asked_by_a_person() -> set[Use]:
    """With a person's own credentials, which belong to no project."""
    cloud = Cloud()
    config = GceConfig(PROJECT, (ZONE,), {}, endpoint=cloud.compute.url)
    compute = Compute(config, Retry(), lambda: Credentials("ya29.of-a-person"))  # type: ignore[no-untyped-call]
    url = f"{cloud.projects.url}/v1/projects/{PROJECT}:testIamPermissions"
    compute.other_api("POST", url, {"permissions": ["compute.zones.get"]})
    cloud.close()
    return set(cloud.access.used)


def _has_its_machine_taken(story: CloudStory) -> None:
    """By Google's own rehearsal of a preemption; the run goes on with the same machine, which boots again."""
    (before,) = story.cloud.instances()
    story.daemon.call("POST", "/v1/dev/preempt", {"run_id": "digits", "confirm": True})
    story.until("digits", lambda run: run["attempt"] == 2 and run["status"] == "running", "attempt 2")
    assert story.attempts("digits")[0]["cause"] == "preempted"
    (after,) = story.cloud.instances()
    assert (after.id, after.labels["spot-attempt"]) == (before.id, "2")


def _builds(folder: Path, monkeypatch: pytest.MonkeyPatch) -> set[Use]:
    """A person who builds, and Cloud Build with the account that Terraform makes."""
    cloud = Cloud()
    cloud.access.is_of("ya29.of-a-person", BUILDER)
    session = AuthorizedSession(Credentials("ya29.of-a-person"))  # type: ignore[no-untyped-call]
    monkeypatch.setattr(cloud_build, "_open_session", lambda: session)
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", cloud.storage.url)
    source = folder / "source"
    source.mkdir()
    (source / "train.py").write_text("print('training')\n")
    request = BuildRequest(
        folder=source, image=cloud.image("team/train:1"), project=PROJECT, staging=f"gs://{BUCKET}/build-staging",
        account=f"spot-build@{PROJECT}.iam.gserviceaccount.com", ways=(STAGED,), endpoint=cloud.builds.url, poll_s=0.0,
    )  # fmt: skip
    assert not _built(request).recovered
    cloud.builds.lose_create = 1  # so that the next one is looked for by its mark
    lost = replace(request, mark="spot-lost")
    assert _built(lost).recovered
    cloud_build.CloudBuild(lost).cancel(next(iter(cloud.builds.builds)))
    # The other two ways are programs, which speak to Google by themselves.
    assert set(WAYS) == {GCLOUD, STAGED, DOCKER}
    cloud.access.note(BUILDER, "gcloud builds submit")
    cloud.access.note(BUILDER, "docker push")
    cloud.close()
    assert {use.grant.identity for use in cloud.access.used} == {BUILDER, BUILD}
    return set(cloud.access.used)


def _built(request: BuildRequest) -> Built:
    return build(checked(request), lambda _: None, lambda _: None)


def _mounts_a_data_disk(folder: Path, read_only: bool) -> set[Use]:
    """In sandboxes a disk has no place. The boot image is one of the project by its name, and no family."""
    folder.mkdir()
    config = GceConfig(
        PROJECT, (ZONE,), {"t4": parse_shape(SHAPES.partition("=")[2])}, store_url=f"gs://{BUCKET}",
        boot_image=f"projects/{PROJECT}/global/images/own-1", data_disk=DataDisk("data", ZONE, read_only=read_only),
    )  # fmt: skip
    subject = GceSubject(folder, config)
    subject.compute.catalog.add_disk(ZONE, "data")
    subject.compute.catalog.images[PROJECT, "own"] = "own-1"
    access = Access()
    subject.compute.server.guard(access.gate("compute"))
    subject.provider.launch(subject.request())
    (name,) = subject.compute.names()
    assert len(subject.compute.instance(name).body["disks"]) == 2
    compute = Compute(subject.config, Retry(deadline_s=5.0, per_try_s=5.0), _credentials)
    assert doctor_places.boot_image(subject.config, compute.read).result == "ok"
    disk = subject.config.data_disk
    assert disk is not None
    assert doctor_places.data_disk(subject.config, disk, compute.read).result == "ok"
    _makes_a_base(subject, compute, name)
    subject.close()
    assert access.faults == []
    return access.used


def _makes_a_base(subject: GceSubject, compute: Compute, machine: str) -> None:
    images, request_id = GceImages(subject.config, compute), "3b241101-e2bb-4255-8caf-4136c566a962"
    images.request(ImageRequest("torch-v1", request_id, "torch", ZONE, machine, "torch-v1", "sup-1"))
    assert images.find("torch-v1", "sup-1", "torch-v1") is not None
    images.delete("torch-v1", request_id)


def _switches_a_kept_machine_off(folder: Path) -> set[Use]:
    """One that does not do it by itself."""
    folder.mkdir()
    subject = GceSubject(folder)
    subject.up(subject.kept())
    access = Access()
    subject.compute.server.guard(access.gate("compute"))
    subject.off(subject.kept())
    subject.close()
    assert access.faults == []
    return access.used


def _credentials() -> Credentials:
    return Credentials("ya29.any")  # type: ignore[no-untyped-call]
