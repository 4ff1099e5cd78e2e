"""The agent's own control group: memory, CPU and pressure, by version 2 or version 1, wherever they are mounted.

Both versions may be mounted at once: a controller that version 1 holds is read there. A limit may be set on any group
above ours, so the smallest on the way up counts. Inside a container the path in /proc/self/cgroup may be one that only
the host has; then the mount point itself is our group.
"""

from __future__ import annotations

import os
import re
from typing import Callable, Dict, List, Optional, Tuple

from supervisor.contract.beat_telemetry import Cgroup

NO_LIMIT = 1e15  # version 1 says "no limit" with a number next to 2**63
_READ_BYTES = 65536
_OCTAL = re.compile(r"\\([0-7]{3})")

Mount = Tuple[str, str]  # (root inside the hierarchy, mount point)


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
        told = self._first(way, "memory.oom_control") if way else self._first(self._ways[""], "memory.events")
        found = _entries(told).get("oom_kill")
        return None if found is None else int(found)

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
        return _smallest(
            way or self._ways[""], lambda group: _limit(_number(_text(os.path.join(group, name))))
        )

    def _throttled_s(self) -> Optional[float]:
        way = self._ways["cpu"]
        found = _entries(self._first(way or self._ways[""], "cpu.stat"))
        if "throttled_time" in found:
            return found["throttled_time"] / 1e9
        return found["throttled_usec"] / 1e6 if "throttled_usec" in found else None

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
    found: Dict[str, Mount] = {}
    for line in text.splitlines():
        left, _, right = line.partition(" - ")
        before, after = left.split(), right.split()
        if len(before) < 5 or len(after) < 3 or after[0] not in ("cgroup", "cgroup2"):
            continue
        place = (_plain(before[3]), _plain(before[4]))
        for name in [""] if after[0] == "cgroup2" else after[2].split(","):
            found.setdefault(name, place)
    return found


def _paths(text: str) -> Dict[str, str]:
    """Controller -> our group's path in its hierarchy; "" is version 2."""
    found: Dict[str, str] = {}
    for line in text.splitlines():
        parts = line.split(":", 2)
        if len(parts) == 3:
            for name in parts[1].split(","):
                found[name] = parts[2]
    return found


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
    found = [one for one in map(limit, way) if one is not None]
    return min(found) if found else None


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
    found = {}
    for line in text.splitlines():
        name, _, rest = line.partition(" ")
        number = _number(rest)
        if number is not None:
            found[name] = number
    return found


def _number(text: str) -> Optional[float]:
    try:
        return float(text)
    except ValueError:
        return None


def _plain(path: str) -> str:
    """mountinfo writes blanks and backslashes as octal numbers."""
    return _OCTAL.sub(lambda found: chr(int(found.group(1), 8)), path)


def _text(path: str) -> str:
    """'' for what is not there or cannot be read: pressure is refused where the kernel does not count it."""
    try:
        with open(path, encoding="utf-8", errors="replace") as source:
            return source.read(_READ_BYTES)
    except OSError:
        return ""
