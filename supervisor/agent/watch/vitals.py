"""How the machine is, for the beat: every reader in its turn, in a thread of its own, at the pace of the beats.

A reader that fails costs its own figures and nothing else; one that hangs (a driver, a dead network disk) costs the
thread. So a beat carries only what was read lately: figures of long ago would look like those of now.
"""

from __future__ import annotations

import logging
import os
import time
from typing import Any, Callable, Dict, Mapping, Optional, Set

from supervisor.agent.machine import disks
from supervisor.agent.machine.cgroup import OwnCgroup
from supervisor.agent.machine.gpus import GpuReader
from supervisor.agent.machine.machinefolder import MachineFolder
from supervisor.agent.machine.proctree import ProcessTree
from supervisor.contract.beat_telemetry import Disk, Telemetry, compact, encode

PACE_MIN_S = 1.0
OLD_PACES = 3  # a reading older than so many paces is not told any more
SHM, SHM_LEAST_BYTES = "/dev/shm", 128 << 20  # noqa: S108 - it is measured, nothing is written there
_log = logging.getLogger("agent")


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
        found: Dict[str, Any] = {}
        for name, reader in self._readers.items():
            try:
                found.update(_named(name, reader()))
            except Exception as error:  # noqa: BLE001 - any error of one reader is its own
                if name not in self._failing:
                    _log.warning("%s cannot be read: %s: %s", name, type(error).__name__, error)
                self._failing.add(name)
            else:
                self._failing.discard(name)
        self._look_at_shm(found.get("shm_bytes"))
        return compact(Telemetry(**found))

    def _look_at_shm(self, size_bytes: Optional[float]) -> None:
        if size_bytes is None or size_bytes >= SHM_LEAST_BYTES or self._small_shm_told:
            return
        self._small_shm_told = True
        text = "%s has only %d MiB: data loaders with workers may die of a bus error" % (
            SHM,
            size_bytes // 2**20,
        )
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
        "disks": lambda: disks.by_role(roles),
        "tree": ProcessTree(command).read,
        "uptime_s": _uptime_s,
        "log_bytes": lambda: float(os.stat(folder.output).st_size),
        "shm": lambda: _shm(disks.read(SHM)),
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
