"""A beat's telemetry in five numbers, which each sample of a run keeps and sentences show; and its disks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from supervisor.contract.beat_telemetry import Disk, Telemetry, column, figure, parts_of


@dataclass(frozen=True, slots=True)
class MachineFigures:
    """None = not known; shares are from 0 to 100."""

    gpu_pct: float | None = None  # mean utilisation of its cards
    gpu_memory_pct: float | None = None  # used memory of all its cards
    memory_bytes: float | None = None  # of its control group; else of the training's processes
    free_bytes_pct: float | None = None  # of the fullest disk
    free_inodes_pct: float | None = None


NOTHING = MachineFigures()
DISKS = ("checkpoints_disk", "results_disk", "scratch_disk")
_FREE = re.compile(
    r'_disk":\{"free_bytes":([0-9.e+]+),"total_bytes":([0-9.e+]+)'
    r'(?:,"free_inodes":([0-9.e+]+),"total_inodes":([0-9.e+]+))?\}'
)
_DISK = re.compile(r'"(checkpoints|results|scratch)_disk":(\{[^{}]*\})')


def figures_of(telemetry: str) -> MachineFigures:
    """`telemetry`: the telemetry of a pulse."""
    parts = parts_of(telemetry)
    if not parts:
        return NOTHING
    gpus, group, tree = (parts.get(name, {}) for name in ("gpus", "cgroup", "tree"))
    memory = figure(group.get("memory_bytes"))
    disks = [parts[name] for name in DISKS if name in parts]
    return MachineFigures(
        gpu_pct=mean(column(gpus.get("util_pct"))),
        gpu_memory_pct=_used(column(gpus.get("memory_used_mib")), column(gpus.get("memory_total_mib"))),
        memory_bytes=figure(tree.get("rss_bytes")) if memory is None else memory,
        free_bytes_pct=_least(disks, "free_bytes", "total_bytes"),
        free_inodes_pct=_least(disks, "free_inodes", "total_inodes"),
    )


def disks_of(telemetry: Telemetry) -> dict[str, Disk]:
    """Role -> its file system; a shared one is under its first role."""
    disks = {name.removesuffix("_disk"): getattr(telemetry, name) for name in DISKS}
    return {role: disk for role, disk in disks.items() if disk is not None}


def has_ample_disks(telemetry: str, pct: float, needed_bytes: float) -> bool:
    """True: every disk clearly has more than `pct` of its bytes and inodes and more than `needed_bytes` free. False:
    parse the telemetry to know. It only scans the text, because a tick has ten thousand of them."""
    sizes = _FREE.findall(telemetry)
    share = pct / 100.0
    try:
        for free, total, free_inodes, total_inodes in sizes:
            free_bytes = float(free)
            if free_bytes <= share * float(total) or free_bytes <= needed_bytes:
                return False
            if free_inodes and float(free_inodes) <= share * float(total_inodes):
                return False
    except ValueError:
        return False
    return len(sizes) == telemetry.count('_disk":')


def disks_in(telemetry: str) -> dict[str, Disk]:
    """`disks_of` a pulse's telemetry, without parsing the rest of it."""
    disks = {}
    for role, text in _DISK.findall(telemetry):
        try:
            figures = json.loads(text)
        except (ValueError, RecursionError):
            continue
        names = ("free_bytes", "total_bytes", "free_inodes", "total_inodes")
        disks[role] = Disk(*(figure(figures.get(name)) for name in names))
    return disks


def mean(figures: Iterable[float | None]) -> float | None:
    values = [value for value in figures if value is not None]
    return sum(values) / len(values) if values else None


def share_pct(part: float | None, whole: float | None) -> float | None:
    """0 to 100; None = not known."""
    return None if part is None or not whole else min(100.0, 100.0 * part / whole)


def _used(used: Iterable[float | None], total: Iterable[float | None]) -> float | None:
    """Of the cards that report both."""
    pairs = [(part, whole) for part, whole in zip(used, total, strict=False) if part is not None and whole]
    return share_pct(sum(part for part, _ in pairs), sum(whole for _, whole in pairs))


def _least(disks: Iterable[Mapping[str, object]], free: str, total: str) -> float | None:
    shares = [share_pct(figure(disk.get(free)), figure(disk.get(total))) for disk in disks]
    return min((share for share in shares if share is not None), default=None)
