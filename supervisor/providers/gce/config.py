"""The configuration of the gce provider as frozen values, made from the settings by make.py.

A shape is written as `n1-standard-8+1xnvidia-tesla-t4` (a machine type with cards added) or as a machine type that
includes its cards, such as `g2-standard-8` or `a2-highgpu-4g`. The number of cards is part of the name:
https://cloud.google.com/compute/docs/accelerator-optimized-machines (section "machine types" of each series).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from supervisor.domain.machines import Offer, Placement
from supervisor.providers.gce.settings import BOOT_IMAGE

BILLED_S = 60.0  # the minimum time that a machine is billed: cloud.google.com/compute/vm-instance-pricing
GOOGLE = "https://compute.googleapis.com"
SCOPE = "https://www.googleapis.com/auth/cloud-platform"  # of the supervisor itself: IAM roles set the limits
# Of machines: every package that a training imports can use the token of its machine. Secret Manager takes no narrower
# scope than all Cloud APIs, so only machines that read a secret get that.
SCOPES = "https://www.googleapis.com/auth/"
STORAGE_SCOPE = f"{SCOPES}devstorage.read_write"

_SHAPE = re.compile(r"([a-z][a-z0-9-]*[a-z0-9])(?:\+([1-9][0-9]?)x([a-z][a-z0-9-]*[a-z0-9]))?\Z")
_A_SERIES = re.compile(r"a[0-9]+x?-[a-z]+-([1-9][0-9]?)g(-|\Z)")  # a2-highgpu-4g, a3-edgegpu-8g-nolssd, a4x-highgpu-4g
FLEX_START_SERIES = frozenset({"a2", "a3", "a4", "g2", "h4d"})
_G_SERIES = {  # series -> vCPUs -> cards; g4 below 48 vCPUs has a part of one card
    "g2": {4: 1, 8: 1, 12: 1, 16: 1, 24: 2, 32: 1, 48: 4, 96: 8},
    "g4": {6: 1, 12: 1, 24: 1, 48: 1, 96: 2, 192: 4, 384: 8},
}


@dataclass(frozen=True, slots=True)
class Shape:
    """One kind of machine. `gpu_type`: the type of the cards that the insert adds; "" = no cards, or the machine type
    includes them. `gpus`: the number of cards in both cases."""

    machine_type: str
    gpu_type: str = ""
    gpus: int = 0


@dataclass(frozen=True, slots=True)
class DataDisk:
    """An existing disk that outlives every machine. It pins all machines to its zone. `read_only`: many machines can
    attach it at once; otherwise one at a time."""

    name: str
    zone: str
    mount: str = "/mnt/disks/data"
    fs: str = "ext4"
    device_name: str = "spot-data"
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class NewDisk:
    """A blank disk, created and deleted with each machine. `kind`: such as pd-balanced."""

    gb: int
    kind: str
    mount: str = "/mnt/disks/data"
    fs: str = "ext4"
    device_name: str = "spot-data"
    read_only = False


@dataclass(frozen=True)
class GceConfig:
    """A field holds the setting of its name, with or without the prefix `gce_`.

    `zones`: in the order of the tries. `external_ip` False: the subnet must have Private Google Access or a NAT.
    `boot_image`: an image or a family, as a path below the root of the API. An empty endpoint means Google's own.
    `prices`: shape -> (spot, on-demand) in $/h. `name`: the name of the provider in the settings."""

    project: str
    zones: tuple[str, ...]
    shapes: Mapping[str, Shape]
    service_account: str = "default"
    network: str = "default"
    subnet: str = ""
    external_ip: bool = True
    boot_image: str = BOOT_IMAGE
    boot_disk_gb: int = 100
    boot_disk_type: str = "pd-ssd"
    min_cpu_platform: str = ""
    machine_scopes: tuple[str, ...] = ()  # beside that of storage, without the address before their names
    shielded: bool = True
    gpu_driver_version: str = "default"
    notice_s: int = 0
    shm_size: str = "2g"
    gpu_timeout_s: float = 1200.0
    data_disk: DataDisk | None = None
    new_disk: NewDisk | None = None  # never together with data_disk: both use the same mount path
    capacity_advice: bool = True
    serial_logging: bool = True
    machine_prefix: str = "spot"
    public_url: str = ""
    store_url: str = ""
    endpoint: str = ""
    storage_endpoint: str = ""
    secret_manager_endpoint: str = ""
    billing_endpoint: str = ""
    bigquery_endpoint: str = ""
    billing_table: str = ""
    billing_read_gb: int = 10
    logging_endpoint: str = ""
    resource_manager_endpoint: str = ""
    iam_endpoint: str = ""
    name: str = "gce"
    prices: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    @property
    def root(self) -> str:
        """The address of the Compute API, without a trailing slash."""
        return (self.endpoint or GOOGLE).rstrip("/")

    @property
    def regions(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(region_of(zone) for zone in self.zones))

    @property
    def offered_zones(self) -> tuple[str, ...]:
        """The zones where machines can start: with a data disk only its own zone."""
        return self.zones if self.data_disk is None else (self.data_disk.zone,)

    @property
    def offered_regions(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(region_of(zone) for zone in self.offered_zones))


def region_of(zone: str) -> str:
    """us-east1-b -> us-east1."""
    return zone.rpartition("-")[0]


def parse_shape(text: str) -> Shape:
    """`MACHINE_TYPE` or `MACHINE_TYPE+NxGPU_TYPE`. Raises ValueError with the mistake."""
    match = _SHAPE.match(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a shape: write MACHINE_TYPE or MACHINE_TYPE+NxGPU_TYPE, "
                         "such as n1-standard-8+1xnvidia-tesla-t4")  # fmt: skip
    machine_type, count, gpu_type = match.groups()
    own = own_cards(machine_type)
    if count is None:
        return Shape(machine_type, "", own)
    if own:
        raise ValueError(f"{machine_type} already includes {own} cards: write it without +{count}x{gpu_type}")
    return Shape(machine_type, gpu_type, int(count))


def own_cards(machine_type: str) -> int:
    """The number of cards that this machine type includes. Raises ValueError for a type of a series with cards whose
    number is unknown: a shape must not promise a number that nothing can check."""
    match = _A_SERIES.match(machine_type)
    if match is not None:
        return int(match.group(1))
    series, _, rest = machine_type.partition("-")
    if series in _G_SERIES:
        cpus = rest.rpartition("-")[2]
        cards = _G_SERIES[series].get(int(cpus)) if cpus.isdigit() and rest.startswith("standard-") else None
        if cards is not None:
            return cards
    if series in _G_SERIES or re.match(r"a[2-9]", series):
        raise ValueError(f"{machine_type}: its number of cards is unknown")
    return 0


def has_flex_start(shape: Shape) -> bool:
    """The accelerator-optimized series without A4X and G4, and H4D: docs.cloud.google.com/compute/docs/instances/
    about-flex-start-vms, as of 2026-11. Cards that are added to an N1 are in no list, so they are not requested."""
    return shape.machine_type.partition("-")[0] in FLEX_START_SERIES


def offers(config: GceConfig) -> tuple[Offer, ...]:
    """All offers in order of preference: every zone of a shape, then the next shape; on-demand after spot, flex-start
    last. What Google's discount for flex-start is, no table of ours says: the price of on-demand counts, never less."""
    offered = []
    for spot, flex in ((True, False), (False, False), (False, True)):
        for shape in config.shapes:
            if flex and not has_flex_start(config.shapes[shape]):
                continue
            spot_usd, on_demand_usd = config.prices.get(shape, (None, None))
            for zone in config.offered_zones:
                placement = Placement(config.name, region_of(zone), zone, shape, spot, flex)
                usd = spot_usd if spot else on_demand_usd
                offered.append(Offer(placement, usd, on_demand_usd, BILLED_S))
    return tuple(offered)
