"""The state of the machine for the beat: control group, disks, GPUs, processes, each from its own reader.

All readers run in one thread at the pace of the beats. A reader that fails costs its own figures and nothing else; a
reader that hangs (a driver, a dead network disk) costs the thread. So a beat carries only recent figures: old ones
would look like present ones.

The agent's own control group shows memory, CPU and pressure, by version 2 or version 1. Both may be mounted at once: a
controller that version 1 holds is read there. A parent group may have a limit too, so the smallest on the way up
counts. Inside a container the path in /proc/self/cgroup may exist on the host only; then the mount point itself is our
group. Disks: free bytes and free inodes for an ordinary user.
"""

from __future__ import annotations

import logging
import os
import re
import time
from contextlib import suppress
from typing import Any, Callable, Dict, List, Mapping, Optional, Set, Tuple

from supervisor.agent.machine.folder import MachineFolder, read_text
from supervisor.agent.machine.gpus import GpuReader
from supervisor.agent.machine.processes import ProcessTree
from supervisor.contract.beat_telemetry import Cgroup, Disk, Telemetry, compact, encode

PERIOD_MIN_S = 1.0
OLD_PERIODS = 3  # a reading that is older than so many periods is not shown any more
# A disk is full when at most this share is free, but never while this much is free: one percent of a large disk is much
# space. There is a lower limit too, because on a small disk a failed write may have released the last pages again.
FULL_SHARE = 0.01
ENOUGH_BYTES, ENOUGH_INODES = 64 << 20, 100
LEAST_BYTES, LEAST_INODES = 1 << 20, 1
SHM, SHM_LEAST_BYTES = "/dev/shm", 128 << 20  # noqa: S108 - it is measured, nothing is written there
NO_LIMIT = 1e15  # version 1 writes "no limit" as a number next to 2**63
_OCTAL = re.compile(r"\\([0-7]{3})")
_log = logging.getLogger("agent")

Mount = Tuple[str, str]  # (root inside the hierarchy, mount point)


class OwnCgroup:
    """`proc`: the folder of `cgroup` and `mountinfo`; `root` is put before every mount point. Both for tests."""

    def __init__(self, proc: str = "/proc/self", root: str = "") -> None:
        mounts = _mounts(read_text(os.path.join(proc, "mountinfo")))
        paths = _paths(read_text(os.path.join(proc, "cgroup")))
        self._groups = {name: _visible_groups(name, paths, mounts, root) for name in ("", "memory", "cpu")}

    def read(self) -> Cgroup:
        return Cgroup(
            memory_bytes=self._memory(),
            memory_max_bytes=self._memory_max(),
            oom_kills=self.oom_kills(),
            cpu_quota=self.cpu_quota(),
            throttled_s=self._throttled_s(),
            cpu_pressure_pct=self._pressure("cpu"),
            memory_pressure_pct=self._pressure("memory"),
            io_pressure_pct=self._pressure("io"),
        )

    def oom_kills(self) -> Optional[int]:
        """How many processes of our group the kernel has killed for memory so far; None = unknown."""
        v1 = self._groups["memory"]
        text = _own_text(v1, "memory.oom_control") if v1 else _own_text(self._groups[""], "memory.events")
        kills = _entries(text).get("oom_kill")
        return None if kills is None else int(kills)

    def cpu_quota(self) -> Optional[float]:
        """In cores; None = no limit."""
        v1 = self._groups["cpu"]
        return _smallest(v1, _quota_v1) if v1 else _smallest(self._groups[""], _quota_v2)

    def _memory(self) -> Optional[float]:
        v1 = self._groups["memory"]
        groups = v1 or self._groups[""]
        used = _number(_own_text(groups, "memory.usage_in_bytes" if v1 else "memory.current"))
        if used is None:
            return None
        stat = _entries(_own_text(groups, "memory.stat"))
        return max(0.0, used - stat.get("total_inactive_file" if v1 else "inactive_file", 0.0))

    def _memory_max(self) -> Optional[float]:
        v1 = self._groups["memory"]
        name = "memory.limit_in_bytes" if v1 else "memory.max"
        return _smallest(v1 or self._groups[""], lambda group: _limit(_number(read_text(os.path.join(group, name)))))

    def _throttled_s(self) -> Optional[float]:
        entries = _entries(_own_text(self._groups["cpu"] or self._groups[""], "cpu.stat"))
        if "throttled_time" in entries:
            return entries["throttled_time"] / 1e9
        return entries["throttled_usec"] / 1e6 if "throttled_usec" in entries else None

    def _pressure(self, what: str) -> Optional[float]:
        for word in _own_text(self._groups[""], what + ".pressure").partition("\n")[0].split():
            if word.startswith("avg10="):
                return _number(word[len("avg10=") :])
        return None


def _own_text(groups: List[str], name: str) -> str:
    """The file of our own group; pressure files are missing where the kernel does not count it."""
    return read_text(os.path.join(groups[0], name)) if groups else ""


def _mounts(text: str) -> Dict[str, Mount]:
    """Controller -> its mount; "" is version 2."""
    mounts: Dict[str, Mount] = {}
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        before, after = left.split(), right.split()
        if len(before) < 5 or len(after) < 3 or after[0] not in ("cgroup", "cgroup2"):
            continue
        mount = (_plain(before[3]), _plain(before[4]))
        for name in [""] if after[0] == "cgroup2" else after[2].split(","):
            mounts.setdefault(name, mount)
    return mounts


def _paths(text: str) -> Dict[str, str]:
    """Controller -> our group's path in its hierarchy; "" is version 2."""
    paths: Dict[str, str] = {}
    for line in text.splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            for name in parts[1].split(","):
                paths[name] = parts[2]
    return paths


def _visible_groups(name: str, paths: Dict[str, str], mounts: Dict[str, Mount], root: str) -> List[str]:
    """Our group's folder and its visible parents, ours first; empty where there is none."""
    if name not in paths or name not in mounts:
        return []
    inside, point = mounts[name]
    path = paths[name]
    if inside != "/":
        path = path[len(inside) :] if (path + "/").startswith(inside + "/") else "/"
    top = root + point
    group = os.path.normpath(top + "/" + path.strip("/"))
    if ".." in path.split("/") or not os.path.isdir(group):
        group = os.path.normpath(top)
    groups = [group]
    while len(group) > len(os.path.normpath(top)):
        group = os.path.dirname(group)
        groups.append(group)
    return groups


def _smallest(groups: List[str], limit: Callable[[str], Optional[float]]) -> Optional[float]:
    limits = [figure for figure in map(limit, groups) if figure is not None]
    return min(limits) if limits else None


def _quota_v2(group: str) -> Optional[float]:
    words = read_text(os.path.join(group, "cpu.max")).split()
    if len(words) != 2:
        return None
    return _cores(_number(words[0]), _number(words[1]))


def _quota_v1(group: str) -> Optional[float]:
    quota = _number(read_text(os.path.join(group, "cpu.cfs_quota_us")))
    return _cores(quota, _number(read_text(os.path.join(group, "cpu.cfs_period_us"))))


def _cores(quota: Optional[float], period: Optional[float]) -> Optional[float]:
    """-1 and "max" mean no limit."""
    return quota / period if quota and period and quota > 0 and period > 0 else None


def _limit(value: Optional[float]) -> Optional[float]:
    return value if value is not None and value < NO_LIMIT else None


def _entries(text: str) -> Dict[str, float]:
    """Lines of a name and a number."""
    numbers = {}
    for line in text.splitlines():
        name, _, rest = line.partition(" ")
        number = _number(rest)
        if number is not None:
            numbers[name] = number
    return numbers


def _number(text: str) -> Optional[float]:
    try:
        return float(text)
    except ValueError:
        return None


def _plain(path: str) -> str:
    """mountinfo writes blanks and backslashes as octal numbers."""
    return _OCTAL.sub(lambda match: chr(int(match.group(1), 8)), path)


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
    """`readers`: name in Telemetry -> its reader. `warn(about, text)`: a short fact for people."""

    def __init__(
        self,
        readers: Mapping[str, Callable[[], Any]],
        warn: Callable[[str, str], None],
        period_s: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._readers, self._warn = dict(readers), warn
        self._period_s, self._monotonic = max(PERIOD_MIN_S, period_s), monotonic
        self._failing: Set[str] = set()
        self._last = ""
        self._read_at = 0.0
        self._shm_warned = False

    def step(self) -> float:
        """Read everything; seconds until the next time."""
        self._last, self._read_at = encode(self.read()), self._monotonic()
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
    folder: MachineFolder, gpus: GpuReader, command: Callable[[], Optional[int]]
) -> Dict[str, Callable[[], Any]]:
    """All readers. `command`: the pid of the command."""
    roles = {role + "_disk": path for role, path in folder.roles().items()}
    return {
        "gpus": gpus.read,
        "cgroup": OwnCgroup().read,
        "disks": lambda: disks_by_role(roles),
        "tree": ProcessTree(command).read,
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
