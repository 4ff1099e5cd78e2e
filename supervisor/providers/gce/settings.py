"""The settings of machines on Google Cloud and the rules between them.

This file checks everything that needs no request to Google: the form of each value, its bounds, and pairs that
contradict each other, which are refused with both values. The doctor checks the rest, such as whether a zone exists.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from supervisor.domain.errors import SettingsRefused
from supervisor.domain.findings import Finding
from supervisor.settings import values as settings_values
from supervisor.settings.kinds import StoreForm, match, need
from supervisor.settings.values import Rules

KIND = "gce"
NEW_DISK = "new"  # a value of gce_data_disk: each machine gets a new disk
# A milestone with long support, to March 2028: cloud.google.com/container-optimized-os/docs/concepts/versioning, as of
# 2026-11. `cos-stable` changes kernel, docker and GPU driver under running projects when Google moves it on.
BOOT_IMAGE = "projects/cos-cloud/global/images/family/cos-129-lts"
NOTICES_S = (0, 120)  # scheduling.preemptionNoticeDuration takes no other value (discovery document, rev 20261106)
STORE = StoreForm(
    "gs://BUCKET[/PREFIX]",
    re.compile(r"gs://[a-z0-9][a-z0-9._-]{1,220}[a-z0-9](/[A-Za-z0-9._/-]*)?"),
    ". For example: SPOT_STORE_URL=gs://my-bucket (BUCKET=my-bucket in an old environment file)",
)
RULES = Rules(
    empty=frozenset({"gce_subnet", "gce_data_disk", "gce_data_disk_zone", "gce_min_cpu_platform", "gce_billing_table"}),
    counts={
        "gce_boot_disk_gb": (10, 65536),
        "gce_data_disk_gb": (10, 65536),
        "gce_notice_s": (0, 120),
        "gce_billing_read_gb": (1, 1000),
    },
    pairs={"gce_shapes": "name=machine pairs, such as t4=n1-standard-8+1xnvidia-tesla-t4,l4=g2-standard-8"},
    texts={"gce_shapes": re.compile(r"[a-z][a-z0-9-]*[a-z0-9](\+[1-9][0-9]?x[a-z][a-z0-9-]*[a-z0-9])?")},
)
_PLACE = r"[A-Za-z0-9][A-Za-z0-9._/-]*"
_FORMS: Mapping[str, tuple[str, str]] = {
    "gce_project": (r"[a-z0-9][a-z0-9.:-]{0,62}", "the id of a project, such as my-project-123456"),
    "gce_service_account": (r"default|[^@\s]+@[^@\s]+", "the email address of an account, or default"),
    "gce_network": (_PLACE, "the name of a network"),
    "gce_subnet": (_PLACE, "the name of a subnet in the zones' regions"),
    "gce_boot_image": (_PLACE, "projects/P/global/images/family/F, or projects/P/global/images/I"),
    "gce_boot_disk_type": (r"[a-z][a-z0-9-]*", "a disk type, such as pd-ssd"),
    "gce_gpu_driver_version": (
        r"default|latest|R?[0-9]+(\.[0-9]+)*",
        "default, latest, or a version such as 535.288.01",
    ),
    "gce_shm_size": (r"[1-9][0-9]{0,6}[kmg]", "a size such as 2g"),
    "gce_data_disk": (r"[a-z]([a-z0-9-]*[a-z0-9])?", "the name of a disk, or new"),
    "gce_data_disk_type": (r"[a-z][a-z0-9-]*", "a disk type, such as pd-balanced"),
    "gce_data_disk_mount": (r"(/[A-Za-z0-9._-]+)+", "an absolute path, such as /mnt/disks/data"),
    "gce_min_cpu_platform": (r"[A-Z][A-Za-z]+( [A-Za-z0-9]+){1,3}", "a CPU platform, such as Intel Skylake"),
    "gce_data_disk_fs": (r"ext4|xfs", "ext4 or xfs"),
    "gce_billing_table": (
        r"[a-z][a-z0-9-]{4,28}[a-z0-9]\.[A-Za-z0-9_]{1,200}\.gcp_billing_export_resource_v1_[A-F0-9_]{6,40}",
        "the table of the detailed export, PROJECT.DATASET.gcp_billing_export_resource_v1_ACCOUNT",
    ),
}
_ALL_APIS = "cloud-platform"
_ZONE = re.compile(r"[a-z]+-[a-z]+[0-9]+-([a-z]|ai[0-9]+[a-z])")


@dataclass(frozen=True, kw_only=True)
class GceSettings:
    """Used where a provider has this kind. An empty text means: not used, or Google's own."""

    gce_project: str = ""
    gce_zones: tuple[str, ...] = ()
    gce_shapes: Mapping[str, str] = field(default_factory=dict)
    gce_prices: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    gce_service_account: str = "default"
    gce_network: str = "default"
    gce_subnet: str = ""
    gce_external_ip: bool = True
    gce_boot_image: str = BOOT_IMAGE
    gce_boot_disk_gb: int = 100
    gce_boot_disk_type: str = "pd-ssd"
    gce_shielded: bool = True
    gce_gpu_driver_version: str = "default"
    gce_notice_s: int = 0
    gce_shm_size: str = "2g"
    gce_data_disk: str = ""
    gce_data_disk_zone: str = ""
    gce_data_disk_mount: str = "/mnt/disks/data"
    gce_data_disk_fs: str = "ext4"
    gce_data_disk_read_only: bool = False
    gce_data_disk_gb: int = 500  # of a new disk, as gce_data_disk_type
    gce_data_disk_type: str = "pd-balanced"
    gce_capacity_advice: bool = True
    gce_serial_logging: bool = True  # Cloud Logging keeps a copy of the console, which outlives the machine
    gce_min_cpu_platform: str = ""  # such as Intel Skylake; empty = any CPU of the zone
    gce_machine_scopes: tuple[str, ...] = ()  # what a training may use beside Cloud Storage, such as BigQuery
    gce_billing_table: str = ""  # of Google's detailed billing export in BigQuery; empty = the bill is not read
    gce_billing_read_gb: int = 10  # a larger read of it is refused before it costs anything
    gce_endpoint: str = ""
    secret_manager_endpoint: str = ""
    cloud_build_endpoint: str = ""
    billing_endpoint: str = ""
    bigquery_endpoint: str = ""
    logging_endpoint: str = ""
    resource_manager_endpoint: str = ""
    iam_endpoint: str = ""


ENDPOINTS = tuple(f.name for f in fields(GceSettings) if f.name.endswith(settings_values.ENDPOINT))
EXAMPLES = {
    "gce_project": "my-project-123456",
    "gce_zones": "us-east1-c,us-east1-b",
    "gce_shapes": "t4=n1-standard-8+1xnvidia-tesla-t4",
}


def check(s: GceSettings) -> None:
    """Raises SettingsRefused."""
    match(s, _FORMS)
    for name in ENDPOINTS:
        settings_values.check_own_url(name, getattr(s, name))
    settings_values.check_keys("gce_prices", s.gce_prices, "gce_shapes", tuple(s.gce_shapes))
    if s.gce_notice_s not in NOTICES_S:
        text = f"gce_notice_s = {s.gce_notice_s}: Google gives 0 or 120 seconds of notice and no other length"
        raise SettingsRefused(text, {"name": "gce_notice_s", "notice_s": s.gce_notice_s})
    _check_zones(s)
    _check_scopes(s)
    _check_disk(s)


def complete(s: GceSettings) -> None:
    """Raises SettingsRefused."""
    need(KIND, s, EXAMPLES)


def idle(s: GceSettings) -> str:
    return f"gce_project = {s.gce_project}" if s.gce_project else ""


def meaning(s: GceSettings, store_url: str, image: str) -> tuple[str, tuple[Finding, ...]]:
    """The settings in effect, as one line of the doctor."""
    zones, shapes = ", ".join(s.gce_zones), ", ".join(s.gce_shapes.values())
    regions = ", ".join(dict.fromkeys(zone.rpartition("-")[0] for zone in s.gce_zones))
    account = "the project's own" if s.gce_service_account == "default" else s.gce_service_account
    text = (
        f"project {s.gce_project}; {regions} ({zones}); {shapes}; account {account}; bucket "
        f"{store_url}; image {image or 'of each run'}"
    )
    return text, ()


def _check_zones(s: GceSettings) -> None:
    for name, zones in (("gce_zones", s.gce_zones), ("gce_data_disk_zone", (s.gce_data_disk_zone,))):
        for zone in zones:
            if zone and not _ZONE.fullmatch(zone):
                raise SettingsRefused(f"{name} names {zone}: expected zones such as us-east1-c", {"name": name})


def _check_scopes(s: GceSettings) -> None:
    if any(scope.startswith(_ALL_APIS) for scope in s.gce_machine_scopes):
        text = f"gce_machine_scopes names {_ALL_APIS}: every package of a training could use all APIs. Name single ones"
        raise SettingsRefused(text, {"name": "gce_machine_scopes"})


def _check_disk(s: GceSettings) -> None:
    if s.gce_data_disk == NEW_DISK and s.gce_data_disk_zone:
        raise SettingsRefused(
            f"gce_data_disk = new creates a disk with each machine, in its zone, but gce_data_disk_zone = "
            f"{s.gce_data_disk_zone} is set: remove gce_data_disk_zone",
            {"name": "gce_data_disk_zone"},
        )
    if s.gce_data_disk in ("", NEW_DISK) and s.gce_data_disk_read_only:
        raise SettingsRefused(
            "gce_data_disk_read_only = true needs an existing disk, and gce_data_disk is "
            f"{s.gce_data_disk or 'not set'}: set it to the name of a disk, with its gce_data_disk_zone",
            {"name": "gce_data_disk_read_only"},
        )
    if s.gce_data_disk == NEW_DISK:
        return
    if bool(s.gce_data_disk) != bool(s.gce_data_disk_zone):
        given, missing = "gce_data_disk", "gce_data_disk_zone"
        if not s.gce_data_disk:
            given, missing = missing, given
        raise SettingsRefused(
            f"{given} = {getattr(s, given)}, but {missing} is not set: a disk is in one zone, set both",
            {"name": missing},
        )
    if s.gce_data_disk and s.gce_data_disk_zone not in s.gce_zones:
        raise SettingsRefused(
            f"gce_data_disk_zone = {s.gce_data_disk_zone} is not one of gce_zones "
            f"({', '.join(s.gce_zones) or 'none'}): machines can only run in the zone of their disk",
            {"zone": s.gce_data_disk_zone, "zones": list(s.gce_zones)},
        )
