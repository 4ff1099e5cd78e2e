"""The tests' cloud lets each account do what deploy/terraform grants it, and not more: as a real project would."""

from __future__ import annotations

import json
import re
import urllib.error
from collections.abc import Iterator
from urllib.request import Request, urlopen

import pytest

from tests.cloud.cloud import BUCKET, PROJECT, Cloud
from tests.cloud.permissions import ACT_AS
from tests.cloud.rolefiles import WORKER, Grant

ZONE = "us-east1-b"
INSTANCE = {
    "name": "vm-1",
    "machineType": f"zones/{ZONE}/machineTypes/n1-standard-8",
    "labels": {"a": "b"},
    "disks": [
        {"boot": True, "initializeParams": {"sourceImage": "projects/cos-cloud/global/images/family/cos-stable"}}
    ],
    "networkInterfaces": [{"network": "projects/p/global/networks/default"}],
    "serviceAccounts": [{"email": "spot-worker@p.iam.gserviceaccount.com", "scopes": []}],
}


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    made = Cloud(live=False)
    yield made
    made.close()


def ask(url: str, body: object = None, bearer: str = "ya29.any", method: str | None = None) -> tuple[int, str]:
    raw = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    headers = {"Authorization": f"Bearer {bearer}", "Content-Type": "application/json"}
    try:
        with urlopen(Request(url, raw, headers, method=method), timeout=60) as answer:  # noqa: S310 - loopback
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def compute(cloud: Cloud, path: str) -> str:
    return f"{cloud.compute.url}/compute/v1/projects/{PROJECT}/{path}"


def upload(cloud: Cloud, name: str) -> str:
    return f"{cloud.storage.url}/upload/storage/v1/b/{BUCKET}/o?uploadType=media&name={name}"


def test_what_is_granted_is_done_and_remembered(cloud: Cloud) -> None:
    assert ask(compute(cloud, f"zones/{ZONE}"))[0] == 200
    assert [(use.grant.permission, use.method) for use in cloud.access.used] == [("compute.zones.get",) * 2]


@pytest.mark.parametrize(
    ("permission", "words"),
    [
        ("compute.instances.create", "Required 'compute.instances.create' permission for 'projects/p/zones/us-east1-b"),
        ("compute.instances.setLabels", "Required 'compute.instances.setLabels' permission"),
        ("compute.instances.setServiceAccount", "Required 'compute.instances.setServiceAccount' permission"),
        ("compute.disks.create", "Required 'compute.disks.create' permission"),
        ("compute.subnetworks.use", "Required 'compute.subnetworks.use' permission"),
        (ACT_AS, "The user does not have access to service account 'spot-worker@p.iam.gserviceaccount.com'"),
    ],
)  # fmt: skip
def test_a_machine_needs_each_right_that_its_body_asks_for(cloud: Cloud, permission: str, words: str) -> None:
    with cloud.access.without(permission):
        status, told = ask(compute(cloud, f"zones/{ZONE}/instances"), INSTANCE)
    assert (status, json.loads(told)["error"]["errors"][0]["reason"]) == (403, "forbidden")
    assert words in told
    assert cloud.compute.names() == []
    assert ask(compute(cloud, f"zones/{ZONE}/instances"), INSTANCE)[0] == 200


def test_what_the_body_does_not_ask_for_needs_no_right(cloud: Cloud) -> None:
    for permission in ("compute.instances.setMetadata", "compute.subnetworks.useExternalIp", "compute.disks.use"):
        cloud.access.withhold(permission)
    assert ask(compute(cloud, f"zones/{ZONE}/instances"), INSTANCE)[0] == 200


def test_who_replaces_an_object_must_be_allowed_to_delete_it(cloud: Cloud) -> None:
    with cloud.access.without("storage.objects.delete"):
        assert ask(upload(cloud, "a"), b"1")[0] == 200
        status, told = ask(upload(cloud, "a"), b"2")
    assert status == 403
    assert "Permission 'storage.objects.delete' denied on resource (or it may not exist)." in told


def test_an_upload_in_parts_names_its_object_in_its_body(cloud: Cloud) -> None:
    url = f"{cloud.storage.url}/upload/storage/v1/b/{BUCKET}/o?uploadType=resumable"
    assert ask(url, {"name": "a"})[0] == 200
    cloud.storage.put(BUCKET, "a", b"1")
    with cloud.access.without("storage.objects.delete"):
        assert ask(url, {"name": "a"})[0] == 403


def test_a_machine_may_use_the_bucket_and_nothing_of_compute_engine() -> None:
    cloud = Cloud()
    cloud.access.is_of("ya29.of-a-machine", WORKER)
    assert ask(upload(cloud, "a"), b"1", "ya29.of-a-machine")[0] == 200
    assert ask(compute(cloud, f"zones/{ZONE}/instances"), None, "ya29.of-a-machine")[0] == 403
    with pytest.raises(AssertionError, match=r"by worker needs compute\.instances\.list on project: not in deploy"):
        cloud.close()


def test_a_call_that_no_role_covers_fails_the_test_even_where_its_403_is_swallowed() -> None:
    cloud = Cloud()
    status, told = ask(compute(cloud, "zones"))
    assert (status, "Required 'compute.zones.list' permission" in told) == (403, True)
    with pytest.raises(AssertionError, match=r"by supervisor needs compute\.zones\.list on project"):
        cloud.close()


def test_a_method_whose_permission_nobody_looked_up_fails_the_test() -> None:
    cloud = Cloud()
    assert ask(compute(cloud, f"zones/{ZONE}/instances/vm-1/reset"), {})[0] == 403
    with pytest.raises(AssertionError, match=r"compute\.instances\.reset: which permission it needs is not told"):
        cloud.close()


def test_a_role_line_that_is_taken_away_fails_the_tests_that_need_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.cloud import rolefiles

    line = Grant("supervisor", "compute.zones.get", "project")
    fewer = rolefiles.grants() - {line}
    monkeypatch.setattr(rolefiles, "grants", lambda: fewer)
    cloud = Cloud()
    assert ask(compute(cloud, f"zones/{ZONE}"))[0] == 403
    with pytest.raises(AssertionError, match=r"needs compute\.zones\.get"):
        cloud.close()


def test_what_is_done_without_a_request_is_judged_too() -> None:
    cloud = Cloud()
    cloud.access.note(WORKER, "docker push")
    with pytest.raises(AssertionError, match=re.escape("docker push by worker needs artifactregistry")):
        cloud.close()


def test_other_services_refuse_in_their_own_form(cloud: Cloud) -> None:
    cloud.access.is_of("ya29.of-a-machine", WORKER)
    reference = cloud.secrets.add(PROJECT, "hf", "hush").removeprefix("gcp:")
    cloud.access.withhold("secretmanager.versions.access", WORKER)
    status, told = ask(f"{cloud.secrets.url}/v1/{reference}:access", None, "ya29.of-a-machine")
    assert (status, json.loads(told)["error"]["status"]) == (403, "PERMISSION_DENIED")
    cloud.access.withhold("artifactregistry.repositories.downloadArtifacts")
    status, told = ask(f"{cloud.registry.url}/v2/train/manifests/1")
    assert (status, json.loads(told)["errors"][0]["code"]) == (403, "DENIED")


def test_who_asks_what_he_may_do_is_told_of_what_was_taken_away(cloud: Cloud) -> None:
    url = f"{cloud.storage.url}/storage/v1/b/{BUCKET}/iam/testPermissions?permissions=storage.objects.get"
    assert json.loads(ask(url)[1])["permissions"] == ["storage.objects.get"]
    cloud.access.withhold("storage.objects.get")
    assert "permissions" not in json.loads(ask(url)[1])
    assert not cloud.access.holds("storage.objects.get")
    assert not cloud.access.holds("compute.instances.create", WORKER)
