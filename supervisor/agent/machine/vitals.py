"""How the machine is, for the beat: control group, disks, GPUs, processes, each by a reader in its turn.

All readers run in one thread at the pace of the beats. A reader that fails costs its own figures and nothing else; one
that hangs (a driver, a dead network disk) costs the thread. So a beat carries only what was read lately: figures of
long ago would look like those of now.

The agent's own control group shows memory, CPU and pressure, by version 2 or version 1. Both may be mounted at once: a
controller that version 1 holds is read there. A limit may be set on any group above ours, so the smallest on the way up
counts. Inside a container the path in /proc/self/cgroup may be one that only the host has; then the mount point itself
is our group. Disks: free bytes and free inodes, as an ordinary user may take them.
"""

from __future__ import annotations

import logging
import os
import re
import time
from typing import Any, Callable, Dict, List, Mapping, Optional, Set, Tuple

from supervisor.agent.machine.folder import MachineFolder
from supervisor.agent.machine.gpus import GpuReader
from supervisor.agent.machine.processes import ProcessTree
from supervisor.contract.beat_telemetry import Cgroup, Disk, Telemetry, compact, encode

NO_LIMIT = 1e15  # version 1 says "no limit" with a number next to 2**63
_READ_BYTES = 65536
_OCTAL = re.compile(r"\\([0-7]{3})")

Mount = Tuple[str, str]  # (root inside the hierarchy, mount point)
# A disk is full when no more than this share is free, and never while this much is: a hundredth of a large disk is a
# lot of room, and of a small one a failed write may have given the last pages back.
SHARE = 0.01
ROOM_BYTES, ROOM_INODES = 64 << 20, 100
LEAST_BYTES, LEAST_INODES = 1 << 20, 1
PACE_MIN_S = 1.0
OLD_PACES = 3  # a reading older than so many paces is not told any more
SHM, SHM_LEAST_BYTES = "/dev/shm", 128 << 20  # noqa: S108 - it is measured, nothing is written there
_log = logging.getLogger("agent")


class OwnCgroup:
    """`proc`: where `cgroup` and `mountinfo` are; `root` goes before every mount point. Both for tests."""

    def __init__(self, proc: str = "/proc/self", root: str = "") -> None:
        mounts = _mounts(_text(os.path.join(proc, "mountinfo")))
        paths = _paths(_text(os.path.join(proc, "cgroup")))
        self._ways = {name: _way(name, paths, mounts, root) for name in ("", "memory", "cpu")}

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
        """How many processes of our group the kernel has killed for memory so far; None = it does not say."""
        way = self._ways["memory"]
        text = self._first(way, "memory.oom_control") if way else self._first(self._ways[""], "memory.events")
        kills = _entries(text).get("oom_kill")
        return None if kills is None else int(kills)

    def cpu_quota(self) -> Optional[float]:
        """In cores; None = there is no limit."""
        way = self._ways["cpu"]
        return _smallest(way, _quota_v1) if way else _smallest(self._ways[""], _quota_v2)

    def _memory(self) -> Optional[float]:
        way = self._ways["memory"]
        v1 = bool(way)
        way = way or self._ways[""]
        used = _number(self._first(way, "memory.usage_in_bytes" if v1 else "memory.current"))
        if used is None:
            return None
        stat = _entries(self._first(way, "memory.stat"))
        return max(0.0, used - stat.get("total_inactive_file" if v1 else "inactive_file", 0.0))

    def _memory_max(self) -> Optional[float]:
        way = self._ways["memory"]
        name = "memory.limit_in_bytes" if way else "memory.max"
        return _smallest(way or self._ways[""], lambda group: _limit(_number(_text(os.path.join(group, name)))))

    def _throttled_s(self) -> Optional[float]:
        way = self._ways["cpu"]
        entries = _entries(self._first(way or self._ways[""], "cpu.stat"))
        if "throttled_time" in entries:
            return entries["throttled_time"] / 1e9
        return entries["throttled_usec"] / 1e6 if "throttled_usec" in entries else None

    def _pressure(self, what: str) -> Optional[float]:
        for word in self._first(self._ways[""], what + ".pressure").partition("\n")[0].split():
            if word.startswith("avg10="):
                return _number(word[len("avg10=") :])
        return None

    @staticmethod
    def _first(way: List[str], name: str) -> str:
        return _text(os.path.join(way[0], name)) if way else ""


def _mounts(text: str) -> Dict[str, Mount]:
    """Controller -> where it is mounted; "" is version 2."""
    mounts: Dict[str, Mount] = {}
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        before, after = left.split(), right.split()
        if len(before) < 5 or len(after) < 3 or after[0] not in ("cgroup", "cgroup2"):
            continue
        place = (_plain(before[3]), _plain(before[4]))
        for name in [""] if after[0] == "cgroup2" else after[2].split(","):
            mounts.setdefault(name, place)
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


def _way(name: str, paths: Dict[str, str], mounts: Dict[str, Mount], root: str) -> List[str]:
    """Our group's folder and those above it that can be seen, ours first; empty where there is none."""
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
    way = [group]
    while len(group) > len(os.path.normpath(top)):
        group = os.path.dirname(group)
        way.append(group)
    return way


def _smallest(way: List[str], limit: Callable[[str], Optional[float]]) -> Optional[float]:
    limits = [figure for figure in map(limit, way) if figure is not None]
    return min(limits) if limits else None


def _quota_v2(group: str) -> Optional[float]:
    words = _text(os.path.join(group, "cpu.max")).split()
    if len(words) != 2:
        return None
    return _cores(_number(words[0]), _number(words[1]))


def _quota_v1(group: str) -> Optional[float]:
    quota = _number(_text(os.path.join(group, "cpu.cfs_quota_us")))
    return _cores(quota, _number(_text(os.path.join(group, "cpu.cfs_period_us"))))


def _cores(quota: Optional[float], period: Optional[float]) -> Optional[float]:
    """-1 and "max" are no limit."""
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


def _text(path: str) -> str:
    """'' for what is not there or cannot be read: pressure is refused where the kernel does not count it."""
    try:
        with open(path, encoding="utf-8", errors="replace") as source:
            return source.read(_READ_BYTES)
    except OSError:
        return ""


def read_disk(folder: str) -> Optional[Disk]:
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


def disks_by_role(folders: Mapping[str, str]) -> Dict[str, Disk]:
    """Role -> its file system; one that several roles share is told for the first of them. A quota of its own makes a
    folder a disk of its own."""
    disks: Dict[str, Disk] = {}
    places = set()
    for role, folder in folders.items():
        disk = read_disk(folder)
        place = _place(folder, disk)
        if disk is not None and place not in places:
            places.add(place)
            disks[role] = disk
    return disks


def full_disks(folders: Mapping[str, str]) -> str:
    """The first of `folders` (role -> path) whose file system has no bytes or no inodes left, with its figures; '' when
    there is room in all of them."""
    for role, disk in disks_by_role(folders).items():
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


class Vitals:
    """`readers`: name in Telemetry -> what reads it. `warn(about, text)`: a short fact for people."""

    def __init__(
        self,
        readers: Mapping[str, Callable[[], Any]],
        warn: Callable[[str, str], None],
        pace_s: float,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._readers, self._warn = dict(readers), warn
        self._pace_s, self._monotonic = max(PACE_MIN_S, pace_s), monotonic
        self._failing: Set[str] = set()
        self._last = ""
        self._read_at = 0.0
        self._small_shm_told = False

    def step(self) -> float:
        """Read everything; seconds until the next time."""
        self._last, self._read_at = encode(self.read()), self._monotonic()
        return self._pace_s

    def fresh(self) -> str:
        """What was read last, as a beat carries it; "" when that is too long ago. Never blocks."""
        old = self._monotonic() - self._read_at > OLD_PACES * self._pace_s
        return "" if old else self._last

    def read(self) -> Telemetry:
        figures: Dict[str, Any] = {}
        for name, reader in self._readers.items():
            try:
                figures.update(_named(name, reader()))
            except Exception as error:  # noqa: BLE001 - any error of one reader is its own
                if name not in self._failing:
                    _log.warning("%s cannot be read: %s: %s", name, type(error).__name__, error)
                self._failing.add(name)
            else:
                self._failing.discard(name)
        self._look_at_shm(figures.get("shm_bytes"))
        return compact(Telemetry(**figures))

    def _look_at_shm(self, size_bytes: Optional[float]) -> None:
        if size_bytes is None or size_bytes >= SHM_LEAST_BYTES or self._small_shm_told:
            return
        self._small_shm_told = True
        text = "%s has only %d MiB: data loaders with workers may die of a bus error" % (SHM, size_bytes // 2**20)
        _log.warning("%s", text)
        self._warn("shm", text)


def readers_of(
    folder: MachineFolder, gpus: GpuReader, command: Callable[[], Optional[int]]
) -> Dict[str, Callable[[], Any]]:
    """All there are. `command`: the pid of the command."""
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
    """A reader of several parts gives them by name."""
    return value if isinstance(value, dict) else {name: value}


def _uptime_s() -> float:
    with open("/proc/uptime", encoding="ascii") as source:
        return float(source.read().split()[0])


def _shm(disk: Optional[Disk]) -> Dict[str, Optional[float]]:
    if disk is None:
        return {}
    return {"shm_bytes": disk.total_bytes, "shm_free_bytes": disk.free_bytes}
