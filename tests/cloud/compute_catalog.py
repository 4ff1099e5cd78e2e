"""What Google offers in this fake: regions and zones, machine and accelerator types, images, networks, disks, quotas.

All of it is plain data that a test may change: `compute.catalog.zones`, `.absent`, `.images`, `.quotas`, `.disks` ...
"""

from __future__ import annotations

from typing import Any

from tests.cloud.compute_errors import GOOGLE, invalid, not_found, rfc3339
from tests.cloud.compute_operations import numeric_id

_ZONES = {"us-east1": "bcd", "us-central1": "abcf", "us-west1": "abc", "europe-west4": "abc", "asia-east1": "abc"}
_FAMILIES = {  # prefix: sizes, memory in MB for each CPU
    "n1-standard": ((1, 2, 4, 8, 16, 32), 3840),
    "n1-highmem": ((2, 4, 8, 16), 6656),
    "n2-standard": ((2, 4, 8, 16, 32), 4096),
    "e2-standard": ((2, 4, 8, 16), 4096),
    "c2-standard": ((4, 8, 16), 4096),
}
_GPUS = {"nvidia-tesla-t4": 4, "nvidia-tesla-v100": 8, "nvidia-tesla-p4": 4, "nvidia-tesla-p100": 4}
_BORN = rfc3339(0)
_PROJECT_QUOTAS = {"GPUS_ALL_REGIONS": (16.0, 0.0), "CPUS_ALL_REGIONS": (512.0, 0.0)}
_CARDS = ("NVIDIA_T4_GPUS", "NVIDIA_V100_GPUS", "NVIDIA_L4_GPUS", "NVIDIA_A100_GPUS", "NVIDIA_P100_GPUS")
_REGION_QUOTAS = {
    "CPUS": (200.0, 0.0),
    "PREEMPTIBLE_CPUS": (200.0, 0.0),
    "INSTANCES": (1000.0, 0.0),
    "SSD_TOTAL_GB": (4096.0, 0.0),
    "DISKS_TOTAL_GB": (20480.0, 0.0),
    "IN_USE_ADDRESSES": (100.0, 0.0),
    **{prefix + card: (8.0, 0.0) for prefix in ("", "PREEMPTIBLE_") for card in _CARDS},
}


def _machine_types() -> dict[str, dict[str, Any]]:
    """name -> the parts of a MachineType that differ. G2, A2 and A3 bring their cards along."""
    made: dict[str, dict[str, Any]] = {
        "%s-%d" % (family, size): {"guestCpus": size, "memoryMb": size * memory}
        for family, (sizes, memory) in _FAMILIES.items()
        for size in sizes
    }
    cards = {4: 1, 8: 1, 12: 1, 16: 1, 24: 2, 32: 1, 48: 4, 96: 8}
    bundled = {"g2-standard-%d" % size: (size, "nvidia-l4", count) for size, count in cards.items()}
    bundled |= {"a2-highgpu-%dg" % count: (12 * count, "nvidia-tesla-a100", count) for count in (1, 2, 4, 8)}
    bundled |= {"a3-highgpu-%dg" % count: (26 * count, "nvidia-h100-80gb", count) for count in (1, 2, 4, 8)}
    bundled |= {"a3-ultragpu-8g": (224, "nvidia-h200-141gb", 8), "a4-highgpu-8g": (224, "nvidia-b200", 8)}
    for name, (cpus, card, count) in bundled.items():
        accelerators = [{"guestAcceleratorType": card, "guestAcceleratorCount": count}]
        made[name] = {"guestCpus": cpus, "memoryMb": cpus * 4096, "accelerators": accelerators}
    return made


class Catalog:
    """`absent`: (zone, type) pairs that a zone does not have. `images`: (project, family) -> image name.
    `disks`: (zone, name) -> {"sizeGb", "users"}. `quotas`: region ("" = of the project) -> {metric: (limit, usage)},
    where it differs from the usual."""

    def __init__(self, project: str) -> None:
        self.project = project
        self.zones = ["%s-%s" % (region, letter) for region, letters in _ZONES.items() for letter in letters]
        self.machine_types = _machine_types()
        self.accelerators = dict(_GPUS)
        self.absent: set[tuple[str, str]] = set()
        self.images = {
            ("cos-cloud", "cos-129-lts"): "cos-129-19506-505-8",
            ("cos-cloud", "cos-stable"): "cos-stable-121-18867-90-4",
            ("cos-cloud", "cos-121-lts"): "cos-121-18867-90-4",
            ("debian-cloud", "debian-12"): "debian-12-bookworm-v20261009",
        }
        self.deprecated: set[str] = set()  # names of images
        self.subnetworks = {"default"}
        self.disks: dict[tuple[str, str], dict[str, Any]] = {}
        self.quotas: dict[str, dict[str, tuple[float, float]]] = {}

    @property
    def regions(self) -> list[str]:
        return list(dict.fromkeys(region_of(zone) for zone in self.zones))

    def add_disk(self, zone: str, name: str, size_gb: int = 100) -> None:
        self.disks[(zone, name)] = {"sizeGb": str(size_gb), "users": []}

    def release_disks(self, link: str) -> None:
        for disk in self.disks.values():
            disk["users"] = [user for user in disk["users"] if user != link]

    def has_image(self, source: str) -> bool:
        """`projects/P/global/images/family/F`, `.../images/I`, or without the project."""
        parts = source.removeprefix(GOOGLE + "/").split("/")
        project = parts[1] if parts[0] == "projects" else self.project
        if parts[-2:-1] == ["family"]:
            return (project, parts[-1]) in self.images
        return any(owner == project and name == parts[-1] for (owner, _), name in self.images.items())

    # resources, as the API shows them

    def zone(self, name: str) -> dict[str, Any]:
        if name not in self.zones:
            raise not_found("projects/%s/zones/%s" % (self.project, name))
        return self._named("zone", "zones/" + name) | {
            "region": "%s/projects/%s/regions/%s" % (GOOGLE, self.project, region_of(name)),
            "status": "UP",
            "description": name,
        }

    def region(self, name: str) -> dict[str, Any]:
        if name not in self.regions:
            raise not_found("projects/%s/regions/%s" % (self.project, name))
        scope = "%s/projects/%s/zones/" % (GOOGLE, self.project)
        return self._named("region", "regions/" + name) | {
            "status": "UP",
            "zones": [scope + zone for zone in self.zones if region_of(zone) == name],
            "quotas": self._quotas(name),
        }

    def whole_project(self) -> dict[str, Any]:
        return self._named("project", "") | {
            "name": self.project,
            "selfLink": "%s/projects/%s" % (GOOGLE, self.project),
            "defaultServiceAccount": "123456789012-compute@developer.gserviceaccount.com",
            "quotas": self._quotas(""),
            "commonInstanceMetadata": {"kind": "compute#metadata"},
        }

    def machine_type(self, zone: str, name: str) -> dict[str, Any]:
        self.zone(zone)
        if name not in self.machine_types or (zone, name) in self.absent:
            raise not_found("projects/%s/zones/%s/machineTypes/%s" % (self.project, zone, name))
        made = self._named("machineType", "zones/%s/machineTypes/%s" % (zone, name))
        return made | self.machine_types[name] | {"zone": zone, "isSharedCpu": False}

    def accelerator_type(self, zone: str, name: str) -> dict[str, Any]:
        self.zone(zone)
        if name not in self.accelerators or (zone, name) in self.absent:
            raise not_found("projects/%s/zones/%s/acceleratorTypes/%s" % (self.project, zone, name))
        made = self._named("acceleratorType", "zones/%s/acceleratorTypes/%s" % (zone, name))
        return made | {
            "zone": "%s/projects/%s/zones/%s" % (GOOGLE, self.project, zone),
            "maximumCardsPerInstance": self.accelerators[name],
        }

    def image(self, project: str, name: str, *, family: bool) -> dict[str, Any]:
        for (owner, of_family), image in self.images.items():
            if owner == project and (of_family if family else image) == name:
                path = "%s/projects/%s/global/images/%s" % (GOOGLE, owner, image)
                return self._named("image", image) | {
                    "family": of_family,
                    "selfLink": path,
                    "status": "READY",
                    "diskSizeGb": "10",
                    "architecture": "X86_64",
                    **({"deprecated": {"state": "DEPRECATED"}} if image in self.deprecated else {}),
                }
        raise not_found("projects/%s/global/images/%s%s" % (project, "family/" if family else "", name))

    def subnetwork(self, region: str, name: str) -> dict[str, Any]:
        self.region(region)
        if name not in self.subnetworks:
            raise not_found("projects/%s/regions/%s/subnetworks/%s" % (self.project, region, name))
        return self._named("subnetwork", "regions/%s/subnetworks/%s" % (region, name)) | {
            "region": "%s/projects/%s/regions/%s" % (GOOGLE, self.project, region),
            "network": "%s/projects/%s/global/networks/default" % (GOOGLE, self.project),
            "ipCidrRange": "10.142.0.0/20",
            "privateIpGoogleAccess": True,
        }

    def disk(self, zone: str, name: str) -> dict[str, Any]:
        if (zone, name) not in self.disks:
            raise not_found("projects/%s/zones/%s/disks/%s" % (self.project, zone, name))
        disk = self.disks[(zone, name)]
        made = self._named("disk", "zones/%s/disks/%s" % (zone, name)) | {
            "zone": "%s/projects/%s/zones/%s" % (GOOGLE, self.project, zone),
            "sizeGb": disk["sizeGb"],
            "status": "READY",
        }
        return made | ({"users": ["%s/%s" % (GOOGLE, user) for user in disk["users"]]} if disk["users"] else {})

    def _quotas(self, region: str) -> list[dict[str, Any]]:
        usual = _REGION_QUOTAS if region else _PROJECT_QUOTAS
        return [
            {"metric": metric, "limit": limit, "usage": usage}
            for metric, (limit, usage) in (usual | self.quotas.get(region, {})).items()
        ]

    def _named(self, kind: str, path: str) -> dict[str, Any]:
        return {
            "kind": "compute#" + kind,
            "id": str(numeric_id(sum(path.encode()), 3)),
            "creationTimestamp": _BORN,
            "name": path.rsplit("/", 1)[-1],
            "selfLink": "%s/projects/%s/%s" % (GOOGLE, self.project, path),
        }


def region_of(zone: str) -> str:
    return zone.rsplit("-", 1)[0]


def known_zone(catalog: Catalog, zone: str) -> None:
    """Raises ApiError (400), as calls on machines do for a zone that does not exist."""
    if zone not in catalog.zones:
        raise invalid("zone", zone, "Unknown zone.")
