"""A beat's telemetry in five numbers, which each sample of a run keeps and sentences show; and its disks."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated

import msgspec

from supervisor.contract.beat_telemetry import MAX_GPUS, Disk, Telemetry, column, figure, parts_of


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
_DISK_FIELDS = ("free_bytes", "total_bytes", "free_inodes", "total_inodes")
_FREE = re.compile(
    r'_disk":\{"free_bytes":([0-9.e+]+),"total_bytes":([0-9.e+]+)'
    r'(?:,"free_inodes":([0-9.e+]+),"total_inodes":([0-9.e+]+))?\}'
)
_DISK = re.compile(r'"(checkpoints|results|scratch)_disk":(\{[^{}]*\})')


_Figure = Annotated[int, msgspec.Meta(ge=0, lt=10**18)] | Annotated[float, msgspec.Meta(ge=0, lt=1e18)] | None
_Column = list[_Figure]


class _Gpus(msgspec.Struct, gc=False):
    util_pct: _Column = []
    memory_used_mib: _Column = []
    memory_total_mib: _Column = []


class _Cgroup(msgspec.Struct, gc=False):
    memory_bytes: _Figure = None


class _Tree(msgspec.Struct, gc=False):
    rss_bytes: _Figure = None


class _Disk(msgspec.Struct, gc=False):
    free_bytes: _Figure = None
    total_bytes: _Figure = None
    free_inodes: _Figure = None
    total_inodes: _Figure = None


class _Parts(msgspec.Struct, gc=False):
    """The parts of a telemetry text from which the five numbers are made."""

    gpus: _Gpus | None = None
    cgroup: _Cgroup | None = None
    tree: _Tree | None = None
    checkpoints_disk: _Disk | None = None
    results_disk: _Disk | None = None
    scratch_disk: _Disk | None = None


_decode = msgspec.json.Decoder(_Parts).decode


def figures_of(telemetry: str) -> MachineFigures:
    """`telemetry`: the telemetry of a pulse."""
    try:
        parts = _decode(telemetry) if telemetry else _Parts()
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        parts = _checked_parts(telemetry)
    gpus = parts.gpus or _Gpus()
    memory = parts.cgroup.memory_bytes if parts.cgroup is not None else None
    if memory is None and parts.tree is not None:
        memory = parts.tree.rss_bytes
    disks = [disk for disk in (parts.checkpoints_disk, parts.results_disk, parts.scratch_disk) if disk is not None]
    return MachineFigures(
        gpu_pct=mean(gpus.util_pct[:MAX_GPUS]),
        gpu_memory_pct=_used(gpus.memory_used_mib[:MAX_GPUS], gpus.memory_total_mib[:MAX_GPUS]),
        memory_bytes=memory,
        free_bytes_pct=_least((disk.free_bytes, disk.total_bytes) for disk in disks),
        free_inodes_pct=_least((disk.free_inodes, disk.total_inodes) for disk in disks),
    )


def _checked_parts(telemetry: str) -> _Parts:
    """The same of a text with absurd figures: these are left out, and the others count."""
    parts = parts_of(telemetry)
    gpus, group, tree = (parts.get(name, {}) for name in ("gpus", "cgroup", "tree"))
    disks = {
        name: _Disk(*(figure(parts[name].get(field)) for field in _DISK_FIELDS)) for name in DISKS if name in parts
    }
    return _Parts(
        gpus=_Gpus(*(list(column(gpus.get(field))) for field in ("util_pct", "memory_used_mib", "memory_total_mib"))),
        cgroup=_Cgroup(figure(group.get("memory_bytes"))),
        tree=_Tree(figure(tree.get("rss_bytes"))),
        **disks,
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
        disks[role] = Disk(*(figure(figures.get(name)) for name in _DISK_FIELDS))
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


def _least(free_and_total: Iterable[tuple[float | None, float | None]]) -> float | None:
    shares = [share_pct(free, total) for free, total in free_and_total]
    return min((share for share in shares if share is not None), default=None)
