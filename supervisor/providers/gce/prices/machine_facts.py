"""What Google's machine types consist of: vCPUs, memory, cards, disks, and the CPUs that they may get.

Read on 2026-11-22 from secondary sources, because the tables of Google's own pages were not available. Sizes and cards
of A2 and A3: skypilot-org/skypilot-catalog, catalogs/v8/gcp/vms.csv at 006059e, from Google's list of machine types; of
G2: copies of docs.cloud.google.com/compute/docs/accelerator-optimized-machines. CPUs:
Cyclenerd/google-cloud-compute-machine-types, instances/series/*.sql, from Google's page of CPU platforms. A machine
type that is in no table is unknown. Memory is in GB, as Google sells it.

A shape contains the type of its cards (`n1-standard-8+1xnvidia-tesla-t4`), or its machine type includes cards
(`g2-standard-8`). Their type is in these tables for each known machine type; for other types only the number is known.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from supervisor.providers.gce.config import Shape, parse_shape

# Prefix of machine types that include cards -> the type of the cards. https://cloud.google.com/compute/docs/gpus
OWN_CARDS = {
    "g2-": "nvidia-l4",
    "a2-highgpu-": "nvidia-tesla-a100",
    "a2-megagpu-": "nvidia-tesla-a100",
    "a2-ultragpu-": "nvidia-a100-80gb",
    "a3-highgpu-": "nvidia-h100-80gb",
    "a3-megagpu-": "nvidia-h100-mega-80gb",
    "a3-ultragpu-": "nvidia-h200-141gb",
}
_MAKERS = ("nvidia", "tesla")  # words that the short name of a card leaves out
_SHORT = 3  # letters: RTX, VWS
# Machine family -> GB of memory for each vCPU.
_GB_PER_VCPU = {
    "n1-standard": 3.75, "n1-highmem": 6.5, "n1-highcpu": 0.9,
    "n2-standard": 4.0, "n2-highmem": 8.0, "n2-highcpu": 1.0,
    "n2d-standard": 4.0, "n2d-highmem": 8.0, "n2d-highcpu": 1.0,
    "e2-standard": 4.0, "e2-highmem": 8.0, "e2-highcpu": 1.0,
    "c2-standard": 4.0, "c2d-standard": 4.0, "c2d-highmem": 8.0, "c2d-highcpu": 2.0,
    "c3-standard": 4.0, "c3-highmem": 8.0, "c3-highcpu": 2.0,
}  # fmt: skip
_SIZES = {"n1": (1, 2, 4, 8, 16, 32, 64, 96)}  # series whose machines take cards -> numbers of vCPUs
# Machine type -> (vCPUs, GB of memory, cards, their type).
_L4, _A100, _A100_80 = "nvidia-l4", "nvidia-tesla-a100", "nvidia-a100-80gb"
_H100, _H100_MEGA, _H200 = "nvidia-h100-80gb", "nvidia-h100-mega-80gb", "nvidia-h200-141gb"
_WITH_CARDS = {
    "g2-standard-4": (4, 16, 1, _L4), "g2-standard-8": (8, 32, 1, _L4), "g2-standard-12": (12, 48, 1, _L4),
    "g2-standard-16": (16, 64, 1, _L4), "g2-standard-24": (24, 96, 2, _L4), "g2-standard-32": (32, 128, 1, _L4),
    "g2-standard-48": (48, 192, 4, _L4), "g2-standard-96": (96, 384, 8, _L4),
    "a2-highgpu-1g": (12, 85, 1, _A100), "a2-highgpu-2g": (24, 170, 2, _A100), "a2-highgpu-4g": (48, 340, 4, _A100),
    "a2-highgpu-8g": (96, 680, 8, _A100), "a2-megagpu-16g": (96, 1360, 16, _A100),
    "a2-ultragpu-1g": (12, 170, 1, _A100_80), "a2-ultragpu-2g": (24, 340, 2, _A100_80),
    "a2-ultragpu-4g": (48, 680, 4, _A100_80), "a2-ultragpu-8g": (96, 1360, 8, _A100_80),
    "a3-highgpu-1g": (26, 234, 1, _H100), "a3-highgpu-2g": (52, 468, 2, _H100), "a3-highgpu-4g": (104, 936, 4, _H100),
    "a3-highgpu-8g": (208, 1872, 8, _H100), "a3-megagpu-8g": (208, 1872, 8, _H100_MEGA),
    "a3-ultragpu-8g": (224, 2952, 8, _H200),
}  # fmt: skip
_CARD_GB = {
    "nvidia-tesla-k80": 12, "nvidia-tesla-p4": 8, "nvidia-tesla-p100": 16, "nvidia-tesla-v100": 16,
    "nvidia-tesla-t4": 16, _L4: 24, _A100: 40, _A100_80: 80, _H100: 80, _H100_MEGA: 80, _H200: 141,
}  # fmt: skip
# Prefix of machine types -> the CPUs that such a machine may get, the oldest first; minCpuPlatform must be one of them.
_CPU_PLATFORMS = {
    "n1": ("Intel Sandy Bridge", "Intel Ivy Bridge", "Intel Haswell", "Intel Broadwell", "Intel Skylake"),
    "n2": ("Intel Cascade Lake", "Intel Ice Lake"),
    "n2d": ("AMD Rome", "AMD Milan"),
    "c2": ("Intel Cascade Lake",),
    "g2": ("Intel Cascade Lake",),
    "a2": ("Intel Cascade Lake",),
    "a3-highgpu": ("Intel Sapphire Rapids",),
    "a3-megagpu": ("Intel Sapphire Rapids",),
}
# Prefixes of machine types without persistent disks, and of those that cannot boot from Hyperdisk Balanced.
# skypilot-org/skypilot 4705, astronomer 2463 and Google's page "About Hyperdisk", as read on 2026-11-22.
HYPERDISK, PERSISTENT = "hyperdisk-balanced", "pd-ssd"
_HYPERDISK_ONLY = ("a3-ultragpu-", "a4-", "a4x-", "g4-", "c4-", "c4a-", "c4d-", "n4-")
_PERSISTENT_ONLY = ("n1-", "g2-", "a2-")
_ARM = ("a4x-", "c4a-")
# Without AVX-512.
OLD_PLATFORMS = frozenset({"Intel Sandy Bridge", "Intel Ivy Bridge", "Intel Haswell", "Intel Broadwell"})


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """`card_gb`: memory of one card; None = there is no card, or it is unknown."""

    vcpus: int
    ram_gb: float
    cards: int = 0
    card_gb: int | None = None

    @property
    def cards_gb(self) -> int | None:
        """Memory of all cards together."""
        return None if self.card_gb is None else self.cards * self.card_gb


def card_type(shape: Shape) -> str:
    """`nvidia-l4`; "" = no card, or unknown."""
    own = (card for prefix, card in OWN_CARDS.items() if shape.machine_type.startswith(prefix))
    return shape.gpu_type or next(own, "")


def gpus(shapes: Mapping[str, Shape], name: str) -> str:
    """`L4`, `8 × A100 80GB`, `8 GPUs` where the type is unknown; "" = no cards, or no readable shape. `shapes`: those
    of the settings; another name is read as a shape itself, because older settings may have had it."""
    try:
        shape = shapes.get(name) or parse_shape(name)
    except ValueError:
        return ""
    count, card = shape.gpus, card_type(shape)
    if not count:
        return ""
    if not card:
        return "1 GPU" if count == 1 else f"{count} GPUs"
    return short_name(card) if count == 1 else f"{count} × {short_name(card)}"


def short_name(card: str) -> str:
    """nvidia-tesla-t4 -> T4, nvidia-h100-mega-80gb -> H100 Mega 80GB."""
    parts = [part for part in card.split("-") if part not in _MAKERS]
    return " ".join(part.capitalize() if part.isalpha() and len(part) > _SHORT else part.upper() for part in parts)


def facts_of(shape: Shape) -> MachineFacts | None:
    """None: this machine type is in no table."""
    own = _WITH_CARDS.get(shape.machine_type)
    if own is not None:
        vcpus, ram_gb, cards, card = own
        return MachineFacts(vcpus, ram_gb, cards, _CARD_GB[card])
    match = re.fullmatch(r"([a-z0-9]+-[a-z]+)-([0-9]+)", shape.machine_type)
    per_vcpu = _GB_PER_VCPU.get(match[1]) if match is not None else None
    if match is None or per_vcpu is None:
        return None
    vcpus = int(match[2])
    return MachineFacts(vcpus, vcpus * per_vcpu, shape.gpus, _CARD_GB.get(shape.gpu_type))


def boot_disk_type(wanted: str, shape: Shape) -> str:
    """The disk type that such a machine boots from: `wanted` (gce_boot_disk_type), or what its series needs instead."""
    if wanted.startswith("pd-") and shape.machine_type.startswith(_HYPERDISK_ONLY):
        return HYPERDISK
    if wanted.startswith("hyperdisk-") and shape.machine_type.startswith(_PERSISTENT_ONLY):
        return PERSISTENT
    return wanted


def is_arm(shape: Shape) -> bool:
    """Its boot image and the images of its runs must be for ARM."""
    return shape.machine_type.startswith(_ARM)


def cpu_platforms(shape: Shape) -> tuple[str, ...]:
    """The oldest first; empty = unknown."""
    platforms = (cpus for prefix, cpus in _CPU_PLATFORMS.items() if shape.machine_type.startswith(f"{prefix}-"))
    return next(platforms, ())


def series_of(shape: Shape) -> str:
    return shape.machine_type.partition("-")[0]


def roomier(shape: Shape, ram_gb: float, fewer: bool = False) -> str:
    """The smallest machine type of the series with the same number and type of cards, no fewer vCPUs, and at least this
    much memory; "" = none is known. For added cards only machine types that take cards count. `fewer`: a smaller one
    than this, which may have fewer vCPUs."""
    series = series_of(shape)
    own, facts = _WITH_CARDS.get(shape.machine_type), facts_of(shape)
    least = 1 if facts is None or fewer else facts.vcpus
    most_gb = facts.ram_gb if fewer and facts is not None else math.inf
    if own is not None:
        sizes = [
            (0, float(other[1]), name)
            for name, other in _WITH_CARDS.items()
            if series_of(Shape(name)) == series and other[2:] == own[2:] and ram_gb <= other[1] < most_gb
        ]
    else:
        sizes = [
            (vcpus, vcpus * per_vcpu, f"{family}-{vcpus}")
            for family, per_vcpu in _GB_PER_VCPU.items()
            for vcpus in _SIZES.get(series, ())
            if family.startswith(f"{series}-") and vcpus >= least and ram_gb <= vcpus * per_vcpu < most_gb
        ]
    return min(sizes)[2] if sizes else ""
