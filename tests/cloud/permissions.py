"""Which permission each method of Google's needs, and on what: the column "IAM permissions" of Google's API references.

A method that is not named here is refused by the fakes, so that a new call cannot come without its line. Some needs
depend on what is sent: a new machine with labels needs leave to set labels, an object that is replaced is deleted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tests.cloud.web import Request

PROJECT, BUCKET, SECRET, REPOSITORY = "project", "bucket", "secret", "repository"
WORKER_ACCOUNT, BUILD_ACCOUNT = "worker account", "build account"
ACT_AS = "iam.serviceAccounts.actAs"


@dataclass(frozen=True)
class Need:
    """`name`: of the object, where objects are meant."""

    permission: str
    where: str = PROJECT
    name: str = ""


@dataclass(frozen=True)
class Call:
    """`method`: its id in the discovery document; `arguments`: of its path. `exists(bucket, object)`."""

    method: str
    arguments: Mapping[str, str]
    request: Request
    exists: Callable[[str, str], bool]


# Methods whose permission has the same name.
_SAME = (
    "compute.acceleratorTypes.get", "compute.advice.capacity", "compute.advice.capacityHistory", "compute.disks.get",
    "compute.images.delete", "compute.images.get",
    "compute.images.getFromFamily", "compute.instances.delete", "compute.instances.get",
    "compute.instances.getSerialPortOutput", "compute.instances.list", "compute.instances.setLabels",
    "compute.instances.simulateMaintenanceEvent", "compute.instances.start", "compute.instances.stop",
    "compute.machineTypes.get", "compute.machineTypes.list", "compute.projects.get", "compute.regions.get",
    "compute.regions.list", "compute.subnetworks.get", "compute.zoneOperations.get", "compute.zoneOperations.list",
    "compute.zones.get", "compute.zones.list",
)  # fmt: skip
_PLAIN: Mapping[str, tuple[Need, ...]] = {
    **{method: (Need(method),) for method in _SAME},
    "compute.instances.aggregatedList": (Need("compute.instances.list"),),
    "compute.instances.setMetadata": (Need("compute.instances.setMetadata"), Need(ACT_AS, WORKER_ACCOUNT)),
    "compute.images.insert": (
        Need("compute.images.create"),
        Need("compute.images.setLabels"),
        Need("compute.disks.useReadOnly"),
    ),
    "compute.zoneOperations.wait": (Need("compute.zoneOperations.get"),),
    "compute.globalOperations.aggregatedList": (Need("compute.globalOperations.list"),),
    "storage.buckets.get": (Need("storage.buckets.get", BUCKET),),
    "secretmanager.projects.secrets.versions.access": (Need("secretmanager.versions.access", SECRET),),
    "cloudbuild.projects.locations.builds.get": (Need("cloudbuild.builds.get"),),
    "cloudbuild.projects.locations.builds.list": (Need("cloudbuild.builds.list"),),
    "cloudbuild.projects.locations.builds.cancel": (Need("cloudbuild.builds.update"),),
    "logging.entries.list": (Need("logging.logEntries.list"),),
    "logging.entries.write": (Need("logging.logEntries.create"),),
    "registry.manifests.get": (Need("artifactregistry.repositories.downloadArtifacts", REPOSITORY),),
    "registry.upload": (Need("artifactregistry.repositories.uploadArtifacts", REPOSITORY),),
    # Every caller may read its own permissions, and Google's public prices.
    "cloudresourcemanager.projects.testIamPermissions": (),
    "iam.projects.serviceAccounts.testIamPermissions": (),
    "storage.buckets.testIamPermissions": (),
    "cloudbilling.services.list": (),
    "cloudbilling.services.skus.list": (),
    "registry.token": (),
}
# What programs do that no fake sees: https://cloud.google.com/build/docs/running-builds/submit-build-via-cli-api and
# https://cloud.google.com/artifact-registry/docs/access-control. Docker requests a layer before it pushes it.
PROGRAMS: Mapping[str, tuple[Need, ...]] = {
    "docker pull": _PLAIN["registry.manifests.get"],
    "docker push": (*_PLAIN["registry.manifests.get"], *_PLAIN["registry.upload"]),
    "gcloud builds submit": (Need("serviceusage.services.use"), Need("storage.buckets.get", BUCKET)),
}


def needs(call: Call) -> tuple[Need, ...] | None:
    """None: nothing is known of this method."""
    if call.method in ("compute.images.get", "compute.images.getFromFamily") and _public(call.request.path):
        return ()
    if call.method in _BY_WHAT_IS_SENT:
        return tuple(_BY_WHAT_IS_SENT[call.method](call))
    return _PLAIN.get(call.method)


def _public(link: str) -> bool:
    """An image of cos-cloud, debian-cloud ... may be used by everybody who has an account."""
    words = link.split("/")
    return "projects" in words and words[words.index("projects") + 1].endswith("-cloud")


def _insert(call: Call) -> Iterator[Need]:
    """https://cloud.google.com/compute/docs/reference/rest/v1/instances/insert, IAM permissions."""
    body = call.request.json() or {}
    yield Need("compute.instances.create")
    for field, permission in (
        ("labels", "compute.instances.setLabels"),
        ("metadata", "compute.instances.setMetadata"),
        ("tags", "compute.instances.setTags"),
        ("serviceAccounts", "compute.instances.setServiceAccount"),
    ):
        if body.get(field):
            yield Need(permission)
    if body.get("serviceAccounts"):
        yield Need(ACT_AS, WORKER_ACCOUNT)
    for disk in body.get("disks", ()):
        yield from _disk(disk)
    for card in body.get("networkInterfaces", ()):
        yield Need("compute.subnetworks.use")
        if card.get("accessConfigs"):
            yield Need("compute.subnetworks.useExternalIp")


def _disk(disk: Mapping[str, Any]) -> Iterator[Need]:
    if "initializeParams" in disk:
        yield Need("compute.disks.create")
        image = disk["initializeParams"].get("sourceImage", "")
        if image and not _public(image):
            yield Need("compute.images.useReadOnly")
    else:
        yield Need("compute.disks.useReadOnly" if disk.get("mode") == "READ_ONLY" else "compute.disks.use")


def _object(permission: str) -> Callable[[Call], Iterator[Need]]:
    def found(call: Call) -> Iterator[Need]:
        yield Need(permission, BUCKET, call.arguments.get("object") or call.request.one("prefix") or "")

    return found


def _write(call: Call) -> Iterator[Need]:
    """The permission is checked at the start of an upload; its later pieces have a session instead."""
    if call.request.one("upload_id") is not None:
        return
    name = call.request.one("name") or _name_in(call.request.body)
    yield Need("storage.objects.create", BUCKET, name)
    if call.exists(call.arguments["bucket"], name):
        yield Need("storage.objects.delete", BUCKET, name)


def _name_in(body: bytes) -> str:
    """Of the JSON that an upload begins with, whatever may follow."""
    text = body[:8192].decode("utf-8", "replace")
    if "{" not in text:
        return ""
    try:
        about, _ = json.JSONDecoder().raw_decode(text, text.index("{"))
    except ValueError:
        return ""
    return str(about.get("name", ""))


def _build(call: Call) -> Iterator[Need]:
    yield Need("cloudbuild.builds.create")
    if (call.request.json() or {}).get("serviceAccount"):
        yield Need(ACT_AS, BUILD_ACCOUNT)


_BY_WHAT_IS_SENT: Mapping[str, Callable[[Call], Iterator[Need]]] = {
    "compute.instances.insert": _insert,
    "storage.objects.get": _object("storage.objects.get"),
    "storage.objects.list": _object("storage.objects.list"),
    "storage.objects.delete": _object("storage.objects.delete"),
    "storage.objects.patch": _object("storage.objects.update"),
    "storage.objects.insert": _write,
    "cloudbuild.projects.locations.builds.create": _build,
}
