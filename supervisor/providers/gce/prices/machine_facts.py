"""What Google's machine types are made of: vCPUs, memory, cards, and the CPUs that they may be given.

Looked up on 2026-11-22, second hand: the tables of Google's own pages were not at hand. Sizes and cards of A2 and A3:
skypilot-org/skypilot-catalog, catalogs/v8/gcp/vms.csv at 006059e, read from Google's list of machine types; of G2:
tables that others took from docs.cloud.google.com/compute/docs/accelerator-optimized-machines. CPUs:
Cyclenerd/google-cloud-compute-machine-types, instances/series/*.sql, made from Google's page of CPU platforms. What is
not in these tables is not known, and nothing is said of it. Memory is told in GB, as Google sells it.

Which cards a machine has: their type as Google writes it, and how people say it.

A shape names the type itself (`n1-standard-8+1xnvidia-tesla-t4`), or its machine type brings cards along
(`g2-standard-8`). Which ones those are stands here for each kind of machine type that is known; of the others it is
known only how many cards they have, and no more is said.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from supervisor.providers.gce.config import Shape, parse_shape

# Beginning of machine types that bring cards along -> their type. https://cloud.google.com/compute/docs/gpus
OWN_CARDS = {
    "g2-": "nvidia-l4",
    "a2-highgpu-": "nvidia-tesla-a100",
    "a2-megagpu-": "nvidia-tesla-a100",
    "a2-ultragpu-": "nvidia-a100-80gb",
    "a3-highgpu-": "nvidia-h100-80gb",
    "a3-megagpu-": "nvidia-h100-mega-80gb",
    "a3-ultragpu-": "nvidia-h200-141gb",
}
_MAKERS = ("nvidia", "tesla")  # words of a type that nobody says
_SHORT = 3  # letters: RTX, VWS


def card_type(shape: Shape) -> str:
    """`nvidia-l4`; "" = it has none, or not known."""
    own = (card for prefix, card in OWN_CARDS.items() if shape.machine_type.startswith(prefix))
    return shape.gpu_type or next(own, "")


def gpus(shapes: Mapping[str, Shape], name: str) -> str:
    """`L4`, `8 × A100 80GB`, `8 GPUs` where the type is not known; "" = none, or no shape that can be read. `shapes`:
    those of the settings; a name that is not among them is read as one of before."""
    try:
        shape = shapes.get(name) or parse_shape(name)
    except ValueError:
        return ""
    count, card = shape.gpus, card_type(shape)
    if not count:
        return ""
    if not card:
        return "1 GPU" if count == 1 else f"{count} GPUs"
    return spoken(card) if count == 1 else f"{count} × {spoken(card)}"


def spoken(card: str) -> str:
    """nvidia-tesla-t4 -> T4, nvidia-h100-mega-80gb -> H100 Mega 80GB."""
    parts = [part for part in card.split("-") if part not in _MAKERS]
    return " ".join(part.capitalize() if part.isalpha() and len(part) > _SHORT else part.upper() for part in parts)


# Machine family -> GB of memory for each vCPU.
_GB_PER_VCPU = {
    "n1-standard": 3.75, "n1-highmem": 6.5, "n1-highcpu": 0.9,
    "n2-standard": 4.0, "n2-highmem": 8.0, "n2-highcpu": 1.0,
    "n2d-standard": 4.0, "n2d-highmem": 8.0, "n2d-highcpu": 1.0,
    "e2-standard": 4.0, "e2-highmem": 8.0, "e2-highcpu": 1.0,
    "c2-standard": 4.0, "c2d-standard": 4.0, "c2d-highmem": 8.0, "c2d-highcpu": 2.0,
    "c3-standard": 4.0, "c3-highmem": 8.0, "c3-highcpu": 2.0,
}  # fmt: skip
_SIZES = {"n1": (1, 2, 4, 8, 16, 32, 64, 96)}  # series whose machines take cards -> vCPUs that are sold
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
# Beginning of machine types -> the CPUs that such a machine may get, the oldest first; only these may be asked for as
# the least.
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
# Beginnings of machine types that take no persistent disk, and of those that cannot boot from Hyperdisk Balanced.
# skypilot-org/skypilot 4705, astronomer 2463 and Google's page "About Hyperdisk", as read on 2026-11-22.
HYPERDISK, PERSISTENT = "hyperdisk-balanced", "pd-ssd"
_HYPERDISK_ONLY = ("a3-ultragpu-", "a4-", "a4x-", "g4-", "c4-", "c4a-", "c4d-", "n4-")
_PERSISTENT_ONLY = ("n1-", "g2-", "a2-")
_ARM = ("a4x-", "c4a-")
# Before the first of them with AVX-512.
OLD_PLATFORMS = frozenset({"Intel Sandy Bridge", "Intel Ivy Bridge", "Intel Haswell", "Intel Broadwell"})


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """`card_gb`: memory of one card; None = there is none, or it is not known."""

    vcpus: int
    ram_gb: float
    cards: int = 0
    card_gb: int | None = None

    @property
    def cards_gb(self) -> int | None:
        """Memory of all cards together."""
        return None if self.card_gb is None else self.cards * self.card_gb


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
    """What such a machine boots from: `wanted` (gce_boot_disk_type), or what its series takes instead."""
    if wanted.startswith("pd-") and shape.machine_type.startswith(_HYPERDISK_ONLY):
        return HYPERDISK
    if wanted.startswith("hyperdisk-") and shape.machine_type.startswith(_PERSISTENT_ONLY):
        return PERSISTENT
    return wanted


def is_arm(shape: Shape) -> bool:
    """It needs a boot image, and images of its runs, for ARM."""
    return shape.machine_type.startswith(_ARM)


def cpu_platforms(shape: Shape) -> tuple[str, ...]:
    """The oldest first; empty = not known."""
    found = (cpus for start, cpus in _CPU_PLATFORMS.items() if shape.machine_type.startswith(f"{start}-"))
    return next(found, ())


def series_of(shape: Shape) -> str:
    return shape.machine_type.partition("-")[0]


def roomier(shape: Shape, ram_gb: float) -> str:
    """The smallest machine type of the series with as many cards of the same kind, no fewer vCPUs, and at least so much
    memory; "" = no such one is known. Of cards that are added, those machines to which they can be added."""
    series = series_of(shape)
    own = _WITH_CARDS.get(shape.machine_type)
    if own is not None:
        found: list[tuple[float, str]] = [
            (other[1], name)
            for name, other in _WITH_CARDS.items()
            if series_of(Shape(name)) == series and other[2:] == own[2:] and other[1] >= ram_gb
        ]
        return min(found)[1] if found else ""
    facts = facts_of(shape)
    least = 1 if facts is None else facts.vcpus
    sizes = [
        (vcpus, vcpus * per_vcpu, f"{family}-{vcpus}")
        for family, per_vcpu in _GB_PER_VCPU.items()
        for vcpus in _SIZES.get(series, ())
        if family.startswith(f"{series}-") and vcpus >= least and vcpus * per_vcpu >= ram_gb
    ]
    return min(sizes)[2] if sizes else ""
