"""How a run's machine is, in one or two lines of figures with units; pure: from the API's JSON to text.

What is not known is left out. What needs a look (a card lost, an error code of the driver, kills for memory) stands in
a line of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from supervisor.cli.client import Json
from supervisor.domain.machines.figures import mean, share_pct
from supervisor.wording.figures import gib_text, plural

MIB = 2**20
# NVML's clock event reasons that cost speed: hardware slowdown, software and hardware thermal, power brake.
SLOWED = 0x8 | 0x20 | 0x40 | 0x80


def telemetry_lines(run: Json) -> list[str]:
    """`GPU 93 %, 20.1 of 22.5 GiB, 71 °C · memory 12 of 30 GiB · checkpoints disk 80 GiB free, 96 % of inodes free`."""
    told = run.get("telemetry") or {}
    parts = [_gpus(told.get("gpus") or []), _memory(told), *_disks(told.get("disks") or {})]
    lines = [" · ".join(part for part in parts if part), "; ".join(_troubles(told))]
    return [line for line in lines if line]


def _gpus(gpus: Sequence[Json]) -> str:
    if not gpus:
        return ""
    name = "GPU" if len(gpus) == 1 else f"{len(gpus)} GPUs"
    use = mean(_figures(gpus, "util_pct"))
    told = [f"{name} {use:.0f} %" if use is not None else name]
    used, total = _figures(gpus, "memory_used_mib"), _figures(gpus, "memory_total_mib")
    if used and len(used) == len(total):
        told.append(_of(sum(used) * MIB, sum(total) * MIB))
    hottest = max(_figures(gpus, "temperature_c"), default=None)
    if hottest is not None:
        told.append(f"{'' if len(gpus) == 1 else 'up to '}{hottest:.0f} °C")
    return ", ".join(told)


def _memory(told: Json) -> str:
    cgroup, tree = told.get("cgroup") or {}, told.get("tree") or {}
    used = cgroup.get("memory_bytes")
    if used is None:
        used = tree.get("rss_bytes")
    if used is None:
        return ""
    limit = cgroup.get("memory_max_bytes")
    return "memory " + (gib_text(used) + " GiB" if limit is None else _of(used, limit))


def _disks(disks: Mapping[str, Json | None]) -> list[str]:
    found = []
    for role, disk in disks.items():
        if disk is None or disk.get("free_bytes") is None:
            continue
        told = f"{role} disk {gib_text(disk['free_bytes'])} GiB free"
        inodes = share_pct(disk.get("free_inodes"), disk.get("total_inodes"))
        found.append(told if inodes is None else f"{told}, {inodes:.0f} % of inodes free")
    return found


def _troubles(told: Json) -> list[str]:
    found = []
    for number, gpu in enumerate(told.get("gpus") or []):
        if gpu.get("lost"):
            found.append(f"GPU {number} is lost")
        if gpu.get("last_xid") is not None:
            found.append(f"GPU {number}: Xid {gpu['last_xid']:.0f}")
        if gpu.get("ecc_uncorrected"):
            found.append(f"GPU {number}: {plural(int(gpu['ecc_uncorrected']), 'uncorrected memory error')}")
        if int(gpu.get("clock_reasons") or 0) & SLOWED:
            found.append(f"GPU {number} is slowed down by heat or power")
    kills = (told.get("cgroup") or {}).get("oom_kills")
    if kills:
        found.append(f"the kernel has killed {int(kills)} of its processes for want of memory")
    return found


def _figures(gpus: Sequence[Json], name: str) -> list[float]:
    return [gpu[name] for gpu in gpus if gpu.get(name) is not None]


def _of(used: float, total: float) -> str:
    return f"{gib_text(used)} of {gib_text(total)} GiB"
