"""Who this agent is: a process id alone comes back; together with its start and its boot it never does.

`start_ticks` is field 22 of /proc/<pid>/stat, counted by the kernel since boot, so no change of the wall clock moves
it. The provider computes the same machine id from the same three numbers (RULES section 6). A rented machine is what
its platform calls it: `identity.json`, laid down beside the job, names it.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, replace
from typing import List


@dataclass(frozen=True)
class Identity:
    boot_id: str
    pid: int
    start_ticks: int
    platform_id: str = ""  # "" = nobody but us has a name for it

    @property
    def machine_id(self) -> str:
        return self.platform_id or "local:%s:%d:%d" % (self.boot_id[:8], self.pid, self.start_ticks)


def own_identity() -> Identity:
    """OSError where there is no /proc."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as source:
        boot_id = source.read().strip()
    pid = os.getpid()
    return Identity(boot_id, pid, int(stat_fields(pid)[19]))


def named(identity: Identity, path: str) -> Identity:
    """With the id that the file at `path` names, if there is one. ValueError for one that cannot be read."""
    try:
        with open(path, encoding="utf-8") as source:
            machine_id = json.load(source)["machine_id"]
    except FileNotFoundError:
        return identity
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError("%s names no machine: %s %s" % (path, type(error).__name__, error)) from None
    if not isinstance(machine_id, str) or not 0 < len(machine_id) <= 100 or not machine_id.isprintable():
        raise ValueError("%s names no machine" % path)
    return replace(identity, platform_id=machine_id)


def stat_fields(pid: int) -> List[str]:
    """Fields 3 and on of /proc/<pid>/stat. The name before them may hold spaces and brackets of its own. OSError."""
    with open("/proc/%d/stat" % pid, "rb") as source:
        return source.read().rpartition(b")")[2].decode("ascii", "replace").split()
