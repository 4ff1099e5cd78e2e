"""What the fake cloud bills: its own meter and its own price list, which no other code reads.

As Google does it: a VM by the second while it is RUNNING (or has a stop request that has not started), at least one
minute each time it was started; its cards and its external address with it; the boot disk from its creation until it
is deleted, also while the VM boots, stops, or is switched off. Nothing for a VM that was never made.
Sources: cloud.google.com/compute/docs/instances/instance-lifecycle, /compute/vm-instance-pricing and
/compute/disks-image-pricing.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.cloud.compute_instances import Instance

MINIMUM_S = 60.0
MONTH_H = 730.0
# (Spot, standard), dollars: of a vCPU's hour, of a GiB's hour, of a card's hour. Made up, and unlike each other.
CORE = {"n1": (0.0071, 0.0317), "g2": (0.0101, 0.0249), "a2": (0.0133, 0.0316)}
MEMORY = {"n1": (0.00095, 0.00425), "g2": (0.00118, 0.00292), "a2": (0.0018, 0.0042)}
CARD = {"nvidia-tesla-t4": (0.117, 0.35), "nvidia-l4": (0.21, 0.561), "nvidia-tesla-a100": (1.17, 2.93)}
DISK_GB_MONTH = {"pd-ssd": 0.17, "pd-balanced": 0.1, "pd-standard": 0.04}
ADDRESS = (0.0025, 0.005)


@dataclass
class Line:
    """One VM. `on_since`, `gone_at`: epoch seconds; None = it is off, it is there."""

    vm: Instance
    created_at: float
    rate: float  # dollars for an hour of RUNNING
    disk_rate: float  # dollars for an hour of its disk
    on_since: float | None = None
    on_s: float = 0.0
    gone_at: float | None = None
    void: bool = False  # it was never made

    def usd(self, now: float) -> float:
        if self.void:
            return 0.0
        on_s = self.on_s + (max(MINIMUM_S, now - self.on_since) if self.on_since is not None else 0.0)
        there_s = (now if self.gone_at is None else self.gone_at) - self.created_at
        return (on_s * self.rate + there_s * self.disk_rate) / 3600.0


class Bill:
    def __init__(self) -> None:
        self.lines: dict[int, Line] = {}

    def created(self, vm: Instance, disks: list[dict[str, Any]], machine: dict[str, Any], now: float) -> None:
        """`disks`: as requested; a disk that existed before is not on this bill. `machine`: its type."""
        market = 0 if vm.spot else 1
        series = vm.machine_type.split("-")[0]
        rate = disk_rate = 0.0
        if series in CORE:
            rate = machine["guestCpus"] * CORE[series][market]
            rate += machine["memoryMb"] / 1024 * MEMORY[series][market]
            cards: dict[str, int] = defaultdict(int, vm.accelerators)
            for one in machine.get("accelerators", []):
                cards[one["guestAcceleratorType"]] += one["guestAcceleratorCount"]
            rate += sum(count * CARD[card][market] for card, count in cards.items())
        if any(card.get("accessConfigs") for card in vm.body.get("networkInterfaces", [])):
            rate += ADDRESS[market]
        for disk in (one["initializeParams"] for one in disks if "initializeParams" in one):
            kind = str(disk.get("diskType", "pd-standard")).rsplit("/", 1)[-1]
            disk_rate += int(disk.get("diskSizeGb", 10)) * DISK_GB_MONTH[kind] / MONTH_H
        self.lines[vm.vm_id] = Line(vm, now, rate, disk_rate)

    def on(self, vm: Instance, now: float) -> None:
        line = self.lines.get(vm.vm_id)
        if line is not None and line.on_since is None:
            line.on_since = now

    def off(self, vm: Instance, now: float) -> None:
        line = self.lines.get(vm.vm_id)
        if line is not None and line.on_since is not None:
            line.on_s += max(MINIMUM_S, now - line.on_since)
            line.on_since = None

    def gone(self, vm: Instance, now: float, void: bool = False) -> None:
        self.off(vm, now)
        line = self.lines.get(vm.vm_id)
        if line is not None:
            line.gone_at, line.void = now, void

    def usd(self, label: str, value: str, now: float) -> float:
        """Of all VMs with this label, gone or not."""
        return sum(line.usd(now) for line in self.lines.values() if line.vm.labels.get(label) == value)
