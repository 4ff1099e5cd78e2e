"""The permissions that the supervisor's own account needs on Google Cloud, in one table, grouped by purpose.

The doctor checks them, `deploy/terraform/roles.tf` grants them group by group, and the fakes of the tests refuse every
call that they do not cover; a test compares the three. The permission of a method is in Google's API reference of that
method. Public boot images, such as those of cos-cloud, need no permission.
"""

from __future__ import annotations

from collections.abc import Mapping

from supervisor.providers.gce.config import GceConfig

# group -> permission of the project -> what fails without it
PROJECT: Mapping[str, Mapping[str, str]] = {
    "runs": {
        "compute.instances.create": "no machine can be started",
        "compute.instances.setLabels": "no machine can be started: its labels name its supervisor and its run",
        "compute.instances.setMetadata": "no machine can be started: its metadata contains its run",
        "compute.instances.setServiceAccount": "no machine can be started: each runs as the worker's account",
        "compute.disks.create": "no machine can be started: each has a boot disk",
        "compute.subnetworks.use": "no machine can be started: each is in a subnet",
        "compute.instances.delete": "machines cannot be released",
        "compute.instances.get": "a machine that is missing in the list cannot be looked up",
        "compute.instances.list": "machines cannot be seen",
        "compute.instances.getSerialPortOutput": "the console of a machine cannot be read or kept",
        "compute.zoneOperations.get": "the result of a create call cannot be seen",
        "compute.zoneOperations.list": "a preemption cannot be distinguished from a fault",
    },
    "looks": {
        "compute.projects.get": "the project's number and quotas cannot be read",
        "compute.regions.get": "the quotas of the regions cannot be read",
        "compute.zones.get": "the status of the zones cannot be seen",
        "compute.machineTypes.get": "the shapes of the zones cannot be seen",
        "compute.acceleratorTypes.get": "the cards of the zones cannot be seen",
    },
    "external_ip": {"compute.subnetworks.useExternalIp": "no machine can have an external address"},
    "capacity_advice": {"compute.advice.capacity": "zones are tried in the order of the settings"},
    "price_history": {"compute.advice.capacityHistory": "spot prices by zone cannot be read"},
    "subnet": {"compute.subnetworks.get": "the settings of the subnet cannot be checked"},
    "data_disk": {
        "compute.disks.get": "the data disk cannot be seen",
        "compute.disks.use": "the data disk cannot be attached",
        "compute.disks.useReadOnly": "many machines cannot read the data disk at once",
    },
    "boot_image": {
        "compute.images.get": "the boot image cannot be seen",
        "compute.images.getFromFamily": "the newest boot image of the family cannot be seen",
        "compute.images.useReadOnly": "no machine can be started from the project's own boot image",
    },
    "base_images": {
        "compute.images.create": "no base can be made of a prepared machine",
        "compute.images.setLabels": "no base can be made: its labels show whose it is",
        "compute.images.get": "it cannot be seen whether the image of a base is ready",
        "compute.images.delete": "images of bases cannot be deleted",
        "compute.images.useReadOnly": "no machine can start from the image of a base",
        "compute.disks.useReadOnly": "the disk of a prepared machine cannot be read",
    },
    "cloud_logging": {"logging.logEntries.list": "consoles of machines that do not exist any more cannot be read"},
    "keep": {
        "compute.instances.start": "a run with `keep: machine` cannot start its machine again",
        "compute.instances.stop": "a run with `keep: machine` cannot switch its machine off",
    },
    "preempt": {"compute.instances.simulateMaintenanceEvent": "`spot dev preempt` cannot preempt a machine"},
}
# Used at every start of a machine or check of the doctor; the other groups depend on a setting or a command.
ALWAYS = ("runs", "looks")
# group -> what needs it, which no setting names; the doctor says where they are missing
ON_REQUEST: Mapping[str, str] = {"keep": "`keep: machine`", "base_images": "`spot base create`"}

# on the bucket
BUCKET: Mapping[str, str] = {
    "storage.objects.create": "nothing can be written",
    "storage.objects.delete": "nothing can be replaced or deleted",
    "storage.objects.get": "nothing can be read",
    "storage.objects.list": "beats and checkpoints cannot be seen",
    "storage.buckets.get": "the settings of the bucket cannot be checked",
}
# on the account that the machines run as
WORKER_ACCOUNT: Mapping[str, str] = {"iam.serviceAccounts.actAs": "no machine can be started as this account"}
# on the repository of the training images, if it is a private repository of Artifact Registry
REGISTRY: Mapping[str, str] = {
    "artifactregistry.repositories.downloadArtifacts": "the current content of a tag cannot be pinned"
}


def groups_in_use(config: GceConfig) -> tuple[str, ...]:
    """The groups of PROJECT that these settings need, without those that only a command needs."""
    own_image = config.boot_image.strip("/").startswith((f"projects/{config.project}/", "global/"))
    by_setting = {
        "external_ip": config.external_ip,
        "capacity_advice": config.capacity_advice,
        "subnet": bool(config.subnet),
        "data_disk": config.data_disk is not None,
        "boot_image": own_image,
    }
    return (*ALWAYS, *(group for group, used in by_setting.items() if used))


def needed_in_project(config: GceConfig) -> dict[str, str]:
    """permission -> what fails without it."""
    needed = {name: why for group in groups_in_use(config) for name, why in PROJECT[group].items()}
    read_only = config.data_disk is not None and config.data_disk.read_only
    needed.pop("compute.disks.use" if read_only else "compute.disks.useReadOnly", None)
    return needed
