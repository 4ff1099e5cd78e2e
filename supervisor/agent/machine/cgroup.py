"""The control group of the agent: memory, CPU and pressure, and when the kernel killed a process of it for memory.

The agent's own control group shows memory, CPU and pressure, by version 2 or version 1. Both may be mounted at once: a
controller that version 1 holds is read there. A parent group may have a limit too, so the smallest on the way up
counts. Inside a container the path in /proc/self/cgroup may exist on the host only; then the mount point itself is our
group.
"""

from __future__ import annotations

import os
import re
from typing import Any, Callable, Dict, List, Optional, Set, Tuple

from supervisor.agent.machine.folder import read_text
from supervisor.contract.beat_telemetry import Cgroup

NO_LIMIT = 1e15  # version 1 writes "no limit" as a number next to 2**63
GROUPS = 64  # below our own whose processes are listed
_PROCS = "cgroup.procs"
_OCTAL = re.compile(r"\\([0-7]{3})")

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

    def periods(self) -> Optional[Tuple[float, float]]:
        """(periods of the CPU's quota so far, those of them in which it was used up); None where no quota counts. Of
        the nearest group on the way up that has one."""
        for group in self._groups["cpu"] or self._groups[""]:
            entries = _entries(read_text(os.path.join(group, "cpu.stat")))
            if entries.get("nr_periods"):
                return entries["nr_periods"], entries.get("nr_throttled", 0.0)
        return None

    @property
    def memory_group(self) -> Optional[str]:
        """The folder of our group where its memory is counted; None = nowhere."""
        groups = self._groups["memory"] or self._groups[""]
        return groups[0] if groups else None

    def pids(self) -> Optional[List[int]]:
        """All processes whose kills `oom_kills` counts; 0 = one of another process namespace. None = unknown."""
        top = self.memory_group
        if top is None or not os.path.exists(os.path.join(top, _PROCS)):
            return None
        below = [] if self._groups["memory"] else _groups_below(top)  # version 1 counts those of one group alone
        texts = (read_text(os.path.join(group, _PROCS)) for group in (top, *below))
        return [int(word) for text in texts for word in text.split() if word.isdigit()]

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
        return _some(_own_text(self._groups[""], what + ".pressure"))


class OomWatch:
    """When the kernel last killed for memory since the command began. `shared`: a process of others was seen in the
    group since then, so the killed one may have been theirs; None = unknown. `is_ours(pid)`: it belongs to this
    machine, or has ended. `up_s`: seconds since the agent's start. Safe to use from every thread."""

    def __init__(self, group: OwnCgroup, up_s: Callable[[], float], is_ours: Callable[[int], bool]) -> None:
        self._group, self._up_s, self._is_ours = group, up_s, is_ours
        self._ours: Set[int] = set()
        self._before: Optional[int] = None
        self._after: Optional[int] = None
        self.rose_up_s: Optional[float] = None
        self.shared: Optional[bool] = None

    def begin(self) -> None:
        """Immediately before the command starts."""
        self._before = self._after = self._group.oom_kills()
        self.rose_up_s = None
        self._look_for_others()

    def kills(self) -> Optional[int]:
        """How many since the start, counted now; None = cannot be counted here."""
        now, last = self._group.oom_kills(), self._after
        if now is not None:
            if last is not None and now > last:
                self.rose_up_s = self._up_s()
            self._after = now
        return None if now is None or self._before is None else max(0, now - self._before)

    def read(self) -> Cgroup:
        """The group's figures, at the pace of the beats; the counter and the group's processes are looked at too."""
        self.kills()
        self._look_for_others()
        return self._group.read()

    def facts(self) -> Dict[str, Any]:
        """`group`: its folder."""
        figures = {"before": self._before, "after": self._after, "rose_up_s": self.rose_up_s}
        return {**figures, "group": self._group.memory_group, "shared": self.shared}

    def _look_for_others(self) -> None:
        pids = None if self.shared else self._group.pids()
        if pids is None:
            return
        self._ours &= set(pids)  # the number of an ended process may belong to another one later
        self.shared = False
        for pid in pids:
            if pid not in self._ours and not self._is_ours(pid):
                self.shared = True  # for good: the others are not looked at
                return
            self._ours.add(pid)


def host_io_pressure(path: str = "/proc/pressure/io") -> Optional[float]:
    """Of the whole computer: the share of the last 10 s, in percent, in which some task waited for a disk."""
    return _some(read_text(path))


def _some(text: str) -> Optional[float]:
    for word in text.partition("\n")[0].split():
        if word.startswith("avg10="):
            return _number(word[len("avg10=") :])
    return None


def _own_text(groups: List[str], name: str) -> str:
    """The file of our own group; pressure files are missing where the kernel does not count it."""
    return read_text(os.path.join(groups[0], name)) if groups else ""


def _groups_below(top: str) -> List[str]:
    groups: List[str] = []
    for folder, names, _ in os.walk(top):
        groups += [os.path.join(folder, name) for name in names]
        if len(groups) >= GROUPS:
            break
    return groups[:GROUPS]


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
