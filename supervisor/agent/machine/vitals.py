"""The state of the machine for the beat: control group, disks, GPUs, processes, each from its own reader.

All readers run in one thread at the pace of the beats. A reader that fails costs its own figures and nothing else; a
reader that hangs (a driver, a dead network disk) costs the thread. So a beat carries only recent figures: old ones
would look like present ones.

Disks: free bytes and free inodes for an ordinary user.
"""

from __future__ import annotations

import logging
import os
import time
from contextlib import suppress
from typing import Any, Callable, Dict, Mapping, Optional, Set, Tuple

from supervisor.agent.machine.cgroup import OwnCgroup
from supervisor.agent.machine.folder import MachineFolder
from supervisor.agent.machine.gpus import GpuReader
from supervisor.agent.machine.processes import ProcessTree
from supervisor.contract.beat_telemetry import Disk, Telemetry, compact, encode

PERIOD_MIN_S = 1.0
OLD_PERIODS = 3  # a reading that is older than so many periods is not shown any more
# A disk is full when at most this share is free, but never while this much is free: one percent of a large disk is much
# space. There is a lower limit too, because on a small disk a failed write may have released the last pages again.
FULL_SHARE = 0.01
ENOUGH_BYTES, ENOUGH_INODES = 64 << 20, 100
LEAST_BYTES, LEAST_INODES = 1 << 20, 1
SHM, SHM_LEAST_BYTES = "/dev/shm", 128 << 20  # noqa: S108 - it is measured, nothing is written there
_log = logging.getLogger("agent")


def read_disk(folder: str) -> Optional[Disk]:
    """None where the folder does not exist. Some file systems count no inodes."""
    try:
        status = os.statvfs(folder)
    except OSError:
        return None
    has_inodes = status.f_files > 0
    return Disk(
        free_bytes=float(status.f_bavail * status.f_frsize),
        total_bytes=float(status.f_blocks * status.f_frsize),
        free_inodes=float(status.f_favail) if has_inodes else None,
        total_inodes=float(status.f_files) if has_inodes else None,
    )


def disks_by_role(folders: Mapping[str, str]) -> Dict[str, Disk]:
    """Role -> its file system. A file system that several roles share appears for the first of them; a folder with a
    quota of its own counts as a disk of its own."""
    disks: Dict[Tuple[int, Optional[float]], Tuple[str, Disk]] = {}
    for role, folder in folders.items():
        disk = read_disk(folder)
        if disk is not None:
            with suppress(OSError):
                disks.setdefault((os.stat(folder).st_dev, disk.total_bytes), (role, disk))
    return dict(disks.values())


def full_disks(folders: Mapping[str, str]) -> str:
    """The first of `folders` (role -> path) whose file system has no bytes or no inodes left, with its figures; '' when
    all of them have space."""
    for role, disk in disks_by_role(folders).items():
        free_mib = (disk.free_bytes or 0) // 2**20
        if _is_full(disk.free_bytes, disk.total_bytes, LEAST_BYTES, ENOUGH_BYTES):
            return "%s: %d of %d MiB are free" % (role, free_mib, (disk.total_bytes or 0) // 2**20)
        if _is_full(disk.free_inodes, disk.total_inodes, LEAST_INODES, ENOUGH_INODES):
            inodes = (disk.free_inodes or 0, disk.total_inodes or 0)
            return "%s: %d of %d inodes are free, and %d MiB" % (role, *inodes, free_mib)
    return ""


def _is_full(free: Optional[float], total: Optional[float], least: int, enough: int) -> bool:
    return bool(total) and free is not None and free <= min(max(FULL_SHARE * (total or 0), least), enough)


class Vitals:
    """`readers`: name in Telemetry -> its reader. `warn(about, text)`: a short fact for people. `then` gets each
    reading."""

    def __init__(
        self,
        readers: Mapping[str, Callable[[], Any]],
        warn: Callable[[str, str], None],
        period_s: float,
        monotonic: Callable[[], float] = time.monotonic,
        then: Callable[[Telemetry], None] = lambda telemetry: None,
    ) -> None:
        self._readers, self._warn, self._then = dict(readers), warn, then
        self._period_s, self._monotonic = max(PERIOD_MIN_S, period_s), monotonic
        self._failing: Set[str] = set()
        self._last = ""
        self._read_at = 0.0
        self._shm_warned = False

    def step(self) -> float:
        """Read everything; seconds until the next time."""
        telemetry = self.read()
        self._last, self._read_at = encode(telemetry), self._monotonic()
        self._then(telemetry)
        return self._period_s

    def fresh(self) -> str:
        """The last reading, as a beat carries it; "" when it is too old. Never blocks."""
        old = self._monotonic() - self._read_at > OLD_PERIODS * self._period_s
        return "" if old else self._last

    def read(self) -> Telemetry:
        figures: Dict[str, Any] = {}
        for name, reader in self._readers.items():
            try:
                figures.update(_named(name, reader()))
            except Exception as error:  # noqa: BLE001 - an error of one reader must not affect the others
                if name not in self._failing:
                    _log.warning("%s cannot be read: %s: %s", name, type(error).__name__, error)
                self._failing.add(name)
            else:
                self._failing.discard(name)
        self._warn_of_small_shm(figures.get("shm_bytes"))
        return compact(Telemetry(**figures))

    def _warn_of_small_shm(self, size_bytes: Optional[float]) -> None:
        if size_bytes is None or size_bytes >= SHM_LEAST_BYTES or self._shm_warned:
            return
        self._shm_warned = True
        text = "%s has only %d MiB: data loaders with workers may die of a bus error" % (SHM, size_bytes // 2**20)
        _log.warning("%s", text)
        self._warn("shm", text)


def readers_of(
    folder: MachineFolder,
    gpus: GpuReader,
    command: Callable[[], Optional[int]],
    cgroup: Optional[Callable[[], Any]] = None,
    tree: Optional[ProcessTree] = None,
) -> Dict[str, Callable[[], Any]]:
    """All readers. `command`: the pid of the command. `cgroup`: the reader of the control group; None = its figures
    alone. `tree`: of the command's processes; None = one of its own."""
    roles = {role + "_disk": path for role, path in folder.roles().items()}
    return {
        "gpus": gpus.read,
        "cgroup": cgroup or OwnCgroup().read,
        "disks": lambda: disks_by_role(roles),
        "tree": (tree or ProcessTree(command)).read,
        "uptime_s": _uptime_s,
        "log_bytes": lambda: float(os.stat(folder.output).st_size),
        "shm": lambda: _shm(read_disk(SHM)),
    }


def _named(name: str, value: Any) -> Mapping[str, Any]:
    """A reader of several parts returns them by name."""
    return value if isinstance(value, dict) else {name: value}


def _uptime_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _shm(disk: Optional[Disk]) -> Dict[str, Optional[float]]:
    if disk is None:
        return {}
    return {"shm_bytes": disk.total_bytes, "shm_free_bytes": disk.free_bytes}
