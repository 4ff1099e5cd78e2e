"""The settings of machines on Google Cloud, and what must hold between them and the rest.

What only Google knows (does the zone exist, may the account do that) is the doctor's business. Here stands what can be
known without asking: forms, bounds, and pairs that contradict each other, refused with both values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from supervisor.domain.errors import SettingsRefused
from supervisor.settings import values as settings_values

LOCAL, GCE = "local", "gce"
NOTICES_S = (
    0,
    120,
)  # scheduling.preemptionNoticeDuration takes no other value (discovery document, rev 20261106)
STORE_FORMS = {LOCAL: "file:///FOLDER", GCE: "gs://BUCKET[/PREFIX]"}
_BUCKET_URL = re.compile(r"gs://[a-z0-9][a-z0-9._-]{1,220}[a-z0-9](/[A-Za-z0-9._/-]*)?")
_PLACE = r"[A-Za-z0-9][A-Za-z0-9._/-]*"
_FORMS: Mapping[str, tuple[str, str]] = {
    "gce_project": (r"[a-z0-9][a-z0-9.:-]{0,62}", "the id of a project, such as my-project-123456"),
    "gce_service_account": (r"default|[^@\s]+@[^@\s]+", "an account's address, or default"),
    "gce_network": (_PLACE, "the name of a network"),
    "gce_subnet": (_PLACE, "the name of a subnet in the zones' regions"),
    "gce_boot_image": (_PLACE, "projects/P/global/images/family/F, or projects/P/global/images/I"),
    "gce_boot_disk_type": (r"[a-z][a-z0-9-]*", "a type of disk, such as pd-ssd"),
    "gce_gpu_driver_version": (
        r"default|latest|R?[0-9]+(\.[0-9]+)*",
        "default, latest, or a version such as 535.288.01",
    ),
    "gce_shm_size": (r"[1-9][0-9]{0,6}[kmg]", "a size such as 2g"),
    "gce_data_disk": (r"[a-z]([a-z0-9-]*[a-z0-9])?", "the name of a disk, or new"),
    "gce_data_disk_type": (r"[a-z][a-z0-9-]*", "a type of disk, such as pd-balanced"),
    "gce_data_disk_mount": (r"(/[A-Za-z0-9._-]+)+", "a folder with its whole path, such as /mnt/disks/data"),
    "gce_min_cpu_platform": (r"[A-Z][A-Za-z]+( [A-Za-z0-9]+){1,3}", "a platform such as Intel Skylake"),
    "gce_data_disk_fs": (r"ext4|xfs", "ext4 or xfs"),
}
NEW_DISK = "new"  # of gce_data_disk: one is made with each machine
_ZONE = re.compile(r"[a-z]+-[a-z]+[0-9]+-([a-z]|ai[0-9]+[a-z])")


@dataclass(frozen=True, kw_only=True)
class GceSettings:
    """Read where provider = gce. Empty texts: not used, or Google's own."""

    public_url: str = ""  # where machines push their beats; empty = beats go through the bucket only
    default_image: str = ""  # of a run that names none
    gce_project: str = ""
    gce_zones: tuple[str, ...] = ()
    gce_shapes: Mapping[str, str] = field(default_factory=dict)
    gce_prices: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    gce_service_account: str = "default"
    gce_network: str = "default"
    gce_subnet: str = ""
    gce_external_ip: bool = True
    gce_boot_image: str = "projects/cos-cloud/global/images/family/cos-129-lts"
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
    gce_data_disk_gb: int = 500  # of a new one, as its type
    gce_data_disk_type: str = "pd-balanced"
    gce_capacity_advice: bool = True
    gce_serial_logging: bool = True  # the console goes to Cloud Logging too, where it outlives the machine
    gce_min_cpu_platform: str = ""  # such as Intel Skylake; empty = whatever the zone has
    gce_endpoint: str = ""
    secret_manager_endpoint: str = ""
    cloud_build_endpoint: str = ""
    billing_endpoint: str = ""
    logging_endpoint: str = ""
    resource_manager_endpoint: str = ""
    iam_endpoint: str = ""


ENDPOINTS = tuple(f.name for f in fields(GceSettings) if f.name.endswith(settings_values.ENDPOINT))


def check(provider: str, store_url: str, s: GceSettings) -> None:
    """Raises SettingsRefused."""
    if provider not in STORE_FORMS:
        raise SettingsRefused(f"provider = {provider}: expected local or gce", {"name": "provider"})
    _check_store(provider, store_url)
    for name, (form, expected) in _FORMS.items():
        value = getattr(s, name)
        if value and not re.fullmatch(form, value):
            raise SettingsRefused(f"{name} = {value}: expected {expected}", {"name": name})
    settings_values.check_own_url("public_url", s.public_url)
    for name in ENDPOINTS:
        settings_values.check_own_url(name, getattr(s, name))
    settings_values.check_keys("gce_prices", s.gce_prices, "gce_shapes", tuple(s.gce_shapes))
    if s.gce_notice_s not in NOTICES_S:
        text = f"gce_notice_s = {s.gce_notice_s}: Google gives 0 or 120 seconds of notice, nothing between"
        raise SettingsRefused(text, {"name": "gce_notice_s", "notice_s": s.gce_notice_s})
    _check_zones(s)
    _check_disk(s)
    if provider == GCE:
        _check_given(s)


def warnings(provider: str, s: GceSettings) -> tuple[str, ...]:
    """What is accepted and perhaps not meant."""
    if provider != GCE and s.gce_project:
        return (
            f"gce_project = {s.gce_project} has no effect, because provider = {provider}. Set provider = gce.",
        )
    return ()


def _check_store(provider: str, store_url: str) -> None:
    fits = bool(_BUCKET_URL.fullmatch(store_url)) if provider == GCE else store_url.startswith("file:///")
    if not fits:
        # What is neither form is not repeated: it may be anything.
        is_ours = store_url.startswith(("file:///", "gs://"))
        raise SettingsRefused(
            f"provider = {provider} needs store_url = {STORE_FORMS[provider]}"
            + (f"; it is {store_url}" if is_ours else "")
            + (
                ". For example: SPOT_STORE_URL=gs://my-bucket (BUCKET=my-bucket in an old environment file)"
                if provider == GCE
                else ""
            ),
            {"provider": provider},
        )


def _check_given(s: GceSettings) -> None:
    for name, example in (
        ("gce_project", "my-project-123456"),
        ("gce_zones", "us-east1-c,us-east1-b"),
        ("gce_shapes", "t4=n1-standard-8+1xnvidia-tesla-t4"),
    ):
        if not getattr(s, name):
            variable = "SPOT_" + name.upper()
            raise SettingsRefused(
                f"provider = gce needs {name}, and it is not set. For example: {variable}={example}",
                {"name": name},
            )


def _check_zones(s: GceSettings) -> None:
    for name, zones in (("gce_zones", s.gce_zones), ("gce_data_disk_zone", (s.gce_data_disk_zone,))):
        for zone in zones:
            if zone and not _ZONE.fullmatch(zone):
                raise SettingsRefused(
                    f"{name} names {zone}: expected zones such as us-east1-c", {"name": name}
                )


def _check_disk(s: GceSettings) -> None:
    if s.gce_data_disk == NEW_DISK and s.gce_data_disk_zone:
        raise SettingsRefused(
            f"gce_data_disk = new makes a disk with each machine, in its zone, but gce_data_disk_zone = "
            f"{s.gce_data_disk_zone} is set: leave it out",
            {"name": "gce_data_disk_zone"},
        )
    if s.gce_data_disk in ("", NEW_DISK) and s.gce_data_disk_read_only:
        raise SettingsRefused(
            "gce_data_disk_read_only = true needs a disk that is there already, and gce_data_disk is "
            f"{s.gce_data_disk or 'not set'}: name one, with its gce_data_disk_zone",
            {"name": "gce_data_disk_read_only"},
        )
    if s.gce_data_disk == NEW_DISK:
        return
    if bool(s.gce_data_disk) != bool(s.gce_data_disk_zone):
        given, missing = "gce_data_disk", "gce_data_disk_zone"
        if not s.gce_data_disk:
            given, missing = missing, given
        raise SettingsRefused(
            f"{given} = {getattr(s, given)}, but {missing} is not set: a disk lies in one zone, name both",
            {"name": missing},
        )
    if s.gce_data_disk and s.gce_data_disk_zone not in s.gce_zones:
        raise SettingsRefused(
            f"gce_data_disk_zone = {s.gce_data_disk_zone} is not one of gce_zones "
            f"({', '.join(s.gce_zones) or 'none'}): machines can only run where their disk is",
            {"zone": s.gce_data_disk_zone, "zones": list(s.gce_zones)},
        )
