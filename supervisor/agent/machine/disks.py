"""The file systems that hold the training's folders: free bytes and free inodes, as an ordinary user may take them."""

from __future__ import annotations

import os
from typing import Dict, Mapping, Optional, Tuple

from supervisor.contract.beat_telemetry import Disk

# A disk is full when no more than this share is free, and never while this much is: a hundredth of a large disk is a
# lot of room, and of a small one a failed write may have given the last pages back.
SHARE = 0.01
ROOM_BYTES, ROOM_INODES = 64 << 20, 100
LEAST_BYTES, LEAST_INODES = 1 << 20, 1


def read(folder: str) -> Optional[Disk]:
    """None where the folder is not there. A file system that counts no inodes has none."""
    try:
        seen = os.statvfs(folder)
    except OSError:
        return None
    counted = seen.f_files > 0
    return Disk(
        free_bytes=float(seen.f_bavail * seen.f_frsize),
        total_bytes=float(seen.f_blocks * seen.f_frsize),
        free_inodes=float(seen.f_favail) if counted else None,
        total_inodes=float(seen.f_files) if counted else None,
    )


def by_role(folders: Mapping[str, str]) -> Dict[str, Disk]:
    """Role -> its file system; one that several roles share is told for the first of them. A quota of its own makes a
    folder a disk of its own."""
    found: Dict[str, Disk] = {}
    told = set()
    for role, folder in folders.items():
        disk = read(folder)
        place = _place(folder, disk)
        if disk is not None and place not in told:
            told.add(place)
            found[role] = disk
    return found


def full(folders: Mapping[str, str]) -> str:
    """The first of `folders` (role -> path) whose file system has no bytes or no inodes left, with its figures; '' when
    there is room in all of them."""
    for role, disk in by_role(folders).items():
        if _over(disk.free_bytes, disk.total_bytes, LEAST_BYTES, ROOM_BYTES):
            return "%s: %d of %d MiB are free" % (
                role,
                (disk.free_bytes or 0) // 2**20,
                (disk.total_bytes or 0) // 2**20,
            )
        if _over(disk.free_inodes, disk.total_inodes, LEAST_INODES, ROOM_INODES):
            return "%s: %d of %d inodes are free, and %d MiB" % (
                role,
                disk.free_inodes or 0,
                disk.total_inodes or 0,
                (disk.free_bytes or 0) // 2**20,
            )
    return ""


def _over(free: Optional[float], total: Optional[float], least: int, room: int) -> bool:
    if free is None or not total:
        return False
    return free <= min(max(SHARE * total, least), room)


def _place(folder: str, disk: Optional[Disk]) -> Tuple[Optional[int], Optional[float]]:
    try:
        return os.stat(folder).st_dev, None if disk is None else disk.total_bytes
    except OSError:
        return None, None
