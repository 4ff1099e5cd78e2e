"""Who this agent is: a process id alone comes back; together with its start and its boot it never does.

`start_ticks` is field 22 of /proc/<pid>/stat, counted by the kernel since boot, so no change of the wall clock moves
it. The provider computes the same machine id from the same three numbers (RULES section 6).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import List


@dataclass(frozen=True)
class Identity:
    boot_id: str
    pid: int
    start_ticks: int

    @property
    def machine_id(self) -> str:
        return "local:%s:%d:%d" % (self.boot_id[:8], self.pid, self.start_ticks)


def own_identity() -> Identity:
    """OSError where there is no /proc."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as source:
        boot_id = source.read().strip()
    pid = os.getpid()
    return Identity(boot_id, pid, int(stat_fields(pid)[19]))


def stat_fields(pid: int) -> List[str]:
    """Fields 3 and on of /proc/<pid>/stat. The name before them may hold spaces and brackets of its own. OSError."""
    with open("/proc/%d/stat" % pid, "rb") as source:
        return source.read().rpartition(b")")[2].decode("ascii", "replace").split()
