"""What a beat tells of the machine: GPUs, the cgroup's memory and CPU, disks with their inodes, the process tree.

Shared with the agent: Python 3.8, standard library only. Every figure is optional: absent is not zero. Figures of
several GPUs stand in columns, so that each name is sent once and eight cards fit into MAX_BYTES. Untrusted input, like
the beat that carries it: `parse` keeps what it knows and what is in bounds, and drops the rest without a word.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, Dict, Mapping, Optional, Tuple

MAX_BYTES = 2048
MAX_GPUS = 16
Column = Tuple[Optional[float], ...]


@dataclass(frozen=True)
class Gpus:
    """One value for each card, in the order of their indexes on this machine. () = not known of any card."""

    util_pct: Column = ()
    memory_used_mib: Column = ()
    memory_total_mib: Column = ()
    sm_clock_mhz: Column = ()
    sm_clock_max_mhz: Column = ()
    power_w: Column = ()
    power_limit_w: Column = ()
    temperature_c: Column = ()
    clock_reasons: Column = ()  # NVML's bit mask of clock event reasons
    ecc_uncorrected: Column = ()  # since the driver was loaded
    last_xid: Column = ()  # None = none seen since the agent began


@dataclass(frozen=True)
class Cgroup:
    """The agent's own control group, version 1 or 2. A limit that is not set is absent."""

    memory_bytes: Optional[float] = None
    memory_max_bytes: Optional[float] = None
    oom_kills: Optional[float] = None  # since the group exists
    cpu_quota: Optional[float] = None  # in cores
    throttled_s: Optional[float] = None  # since the group exists
    cpu_pressure_pct: Optional[float] = None  # share of the last 10 s in which some task waited
    memory_pressure_pct: Optional[float] = None
    io_pressure_pct: Optional[float] = None


@dataclass(frozen=True)
class Disk:
    """The file system that holds a folder. Inodes run out before bytes; some file systems do not count them."""

    free_bytes: Optional[float] = None
    total_bytes: Optional[float] = None
    free_inodes: Optional[float] = None
    total_inodes: Optional[float] = None


@dataclass(frozen=True)
class Tree:
    """The command and its descendants. States as in /proc: running, sleeping, waiting for the disk, stopped, zombie."""

    processes: Optional[float] = None
    threads: Optional[float] = None
    rss_bytes: Optional[float] = None
    running: Optional[float] = None
    disk_wait: Optional[float] = None
    stopped: Optional[float] = None
    zombies: Optional[float] = None


@dataclass(frozen=True)
class Telemetry:
    """`disks` by role: checkpoints, results, scratch; roles that share a file system are told once."""

    gpus: Optional[Gpus] = None
    cgroup: Optional[Cgroup] = None
    checkpoints_disk: Optional[Disk] = None
    results_disk: Optional[Disk] = None
    scratch_disk: Optional[Disk] = None
    tree: Optional[Tree] = None
    uptime_s: Optional[float] = None
    log_bytes: Optional[float] = None


_PARTS = {
    "gpus": Gpus,
    "cgroup": Cgroup,
    "checkpoints_disk": Disk,
    "results_disk": Disk,
    "scratch_disk": Disk,
    "tree": Tree,
}


def to_json(telemetry: Telemetry) -> Dict[str, Any]:
    """JSON values; what is absent is left out."""
    found: Dict[str, Any] = {}
    for name, part in vars(telemetry).items():
        if name in _PARTS and part is not None:
            figures = {key: _plain(figure) for key, figure in vars(part).items() if figure not in (None, ())}
            if figures:
                found[name] = figures
        elif part is not None:
            found[name] = _plain(part)
    return found


def parse(data: object) -> Optional[Telemetry]:
    """None for anything that is not an object; unknown names and absurd figures are dropped."""
    if not isinstance(data, dict):
        return None
    found: Dict[str, Any] = {}
    for field in fields(Telemetry):
        value = data.get(field.name)
        found[field.name] = _part(_PARTS[field.name], value) if field.name in _PARTS else _figure(value)
    return Telemetry(**found)


def _part(kind: Any, data: object) -> Any:
    if not isinstance(data, Mapping):
        return None
    read = _column if kind is Gpus else _figure
    return kind(**{field.name: read(data.get(field.name)) for field in fields(kind)})


def _column(value: object) -> Column:
    return tuple(_figure(one) for one in value[:MAX_GPUS]) if isinstance(value, list) else ()


def _figure(value: object) -> Optional[float]:
    """A finite number from 0 to 1e18, else None."""
    if not isinstance(value, (int, float)) or isinstance(value, bool) or not 0 <= value < 1e18:
        return None
    return float(value) if math.isfinite(value) else None


def _plain(value: Any) -> Any:
    """Whole numbers without a point, others with four digits: a beat is small."""
    if isinstance(value, tuple):
        return [_plain(one) for one in value]
    if not isinstance(value, float):
        return value
    return int(value) if value == int(value) else float("%.4g" % value)
