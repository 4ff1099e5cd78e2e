"""A beat's telemetry in five numbers: what is kept of each minute of a run, and what a sentence needs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from supervisor.domain.beat_telemetry import Disk, Telemetry, decode


@dataclass(frozen=True, slots=True)
class MachineFigures:
    """Each None where it is not known; shares go from 0 to 100."""

    gpu_pct: float | None = None  # mean utilisation of its cards
    gpu_memory_pct: float | None = None  # used memory of all its cards
    memory_bytes: float | None = None  # of its control group; else of the training's processes
    free_bytes_pct: float | None = None  # of the disk with the least room
    free_inodes_pct: float | None = None


NOTHING = MachineFigures()


def figures_of(told: str) -> MachineFigures:
    """`told`: the telemetry of a pulse."""
    telemetry = decode(told)
    if telemetry is None:
        return NOTHING
    gpus, cgroup, tree = telemetry.gpus, telemetry.cgroup, telemetry.tree
    memory = cgroup.memory_bytes if cgroup is not None else None
    if memory is None and tree is not None:
        memory = tree.rss_bytes
    disks = disks_of(telemetry).values()
    return MachineFigures(
        gpu_pct=mean(gpus.util_pct) if gpus is not None else None,
        gpu_memory_pct=_used(gpus.memory_used_mib, gpus.memory_total_mib) if gpus is not None else None,
        memory_bytes=memory,
        free_bytes_pct=_least((disk.free_bytes, disk.total_bytes) for disk in disks),
        free_inodes_pct=_least((disk.free_inodes, disk.total_inodes) for disk in disks),
    )


def disks_of(telemetry: Telemetry) -> dict[str, Disk]:
    """Role -> its file system; one that several roles share stands under the first of them."""
    found = {
        "checkpoints": telemetry.checkpoints_disk,
        "results": telemetry.results_disk,
        "scratch": telemetry.scratch_disk,
    }
    return {role: disk for role, disk in found.items() if disk is not None}


def mean(figures: Iterable[float | None]) -> float | None:
    known = [figure for figure in figures if figure is not None]
    return sum(known) / len(known) if known else None


def share_pct(part: float | None, whole: float | None) -> float | None:
    """0 to 100; None where it cannot be told."""
    return None if part is None or not whole else min(100.0, 100.0 * part / whole)


def _used(used: Iterable[float | None], total: Iterable[float | None]) -> float | None:
    """Of the cards that tell both."""
    pairs = [(part, whole) for part, whole in zip(used, total, strict=False) if part is not None and whole]
    return share_pct(sum(part for part, _ in pairs), sum(whole for _, whole in pairs))


def _least(pairs: Iterable[tuple[float | None, float | None]]) -> float | None:
    known = [share for share in (share_pct(free, total) for free, total in pairs) if share is not None]
    return min(known, default=None)
