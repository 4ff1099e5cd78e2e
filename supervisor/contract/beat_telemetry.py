"""The part of a beat about the machine: GPUs, the cgroup's memory and CPU, disks with their inodes, the process tree.

Shared with the agent: Python 3.8, standard library only. Every figure is optional: absent is not zero. Figures of
several GPUs stand in columns, so that each name is sent once and eight cards fit into MAX_BYTES. It is untrusted input,
like the beat that carries it: `parse` keeps the known figures that are in bounds and silently drops the rest. One tick
parses ten thousand of them, so `parse` does nothing twice.
"""

from __future__ import annotations

import json
from typing import Any, Dict, Iterator, NamedTuple, Optional, Tuple

MAX_BYTES = 2048
MAX_GPUS = 16
# Errors of the card or its link, by NVIDIA's catalog. The program causes 13, 31, 43, 45 and 68; others prove nothing.
HARDWARE_XIDS = (48, 64, 74, 79, 94, 95, 119, 120)
Column = Tuple[Optional[float], ...]


class Gpus(NamedTuple):
    """One value per card, in the order of their indexes on this machine. () = no card has this figure."""

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
    last_xid: Column = ()  # None = no error since the agent started
    lost: Column = ()  # 1 = the driver says that this card is lost; None = it does not


class Cgroup(NamedTuple):
    """The agent's own control group, version 1 or 2. A limit that is not set is absent; a limit of a parent group
    counts."""

    memory_bytes: Optional[float] = None  # without the file cache that the kernel can drop at once
    memory_max_bytes: Optional[float] = None
    oom_kills: Optional[float] = None  # since the group was created
    cpu_quota: Optional[float] = None  # in cores
    throttled_s: Optional[float] = None  # since the group was created
    cpu_pressure_pct: Optional[float] = None  # share of the last 10 s in which some task waited
    memory_pressure_pct: Optional[float] = None
    io_pressure_pct: Optional[float] = None


class Disk(NamedTuple):
    """The file system that holds a folder. Inodes run out before bytes; some file systems do not count them."""

    free_bytes: Optional[float] = None
    total_bytes: Optional[float] = None
    free_inodes: Optional[float] = None
    total_inodes: Optional[float] = None


class Tree(NamedTuple):
    """The command, its descendants and other processes of the agent's session. Pages that processes share are counted
    in each of them. States as in /proc: running, sleeping, waiting for the disk, stopped, zombie."""

    processes: Optional[float] = None
    threads: Optional[float] = None
    rss_bytes: Optional[float] = None
    running: Optional[float] = None
    disk_wait: Optional[float] = None
    stopped: Optional[float] = None
    zombies: Optional[float] = None


class Telemetry(NamedTuple):
    """Disks by role: checkpoints, results, scratch. A file system that several roles share appears once."""

    gpus: Optional[Gpus] = None
    cgroup: Optional[Cgroup] = None
    checkpoints_disk: Optional[Disk] = None
    results_disk: Optional[Disk] = None
    scratch_disk: Optional[Disk] = None
    tree: Optional[Tree] = None
    uptime_s: Optional[float] = None  # of the machine, since its boot
    log_bytes: Optional[float] = None
    shm_bytes: Optional[float] = None  # size of /dev/shm, through which data loaders pass their batches
    shm_free_bytes: Optional[float] = None


_PARTS = {
    "gpus": Gpus,
    "cgroup": Cgroup,
    "checkpoints_disk": Disk,
    "results_disk": Disk,
    "scratch_disk": Disk,
    "tree": Tree,
}
_NUMBERS = (int, float)
_dumps = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode

# What a beat that would be too large leaves out, in this order: figures that never change, then less important figures.
_LEFT_OUT: Tuple[Tuple[str, str], ...] = (
    ("gpus", "sm_clock_max_mhz"),
    ("gpus", "power_limit_w"),
    ("gpus", "sm_clock_mhz"),
    ("gpus", "power_w"),
    ("scratch_disk", ""),
    ("results_disk", ""),
    ("gpus", "temperature_c"),
    ("gpus", "clock_reasons"),
    ("gpus", "memory_total_mib"),
    ("tree", ""),
    ("gpus", "ecc_uncorrected"),
    ("gpus", "memory_used_mib"),
    ("gpus", "util_pct"),
    ("gpus", ""),
)


def compact(telemetry: Telemetry) -> Telemetry:
    """As a beat carries it: rounded to a useful precision, in bounds, and at most MAX_BYTES as JSON."""
    small = parse(_rounded(to_json(telemetry))) or Telemetry()
    for part, column in _LEFT_OUT:
        if len(encode(small)) <= MAX_BYTES:
            break
        small = _without(small, part, column)
    return small


def encode(telemetry: Telemetry) -> str:
    """As text. Beats and pulses hold this form, because nearly all of it is replaced before anyone reads it."""
    return _dumps(to_json(telemetry))


def decode(text: str) -> Optional[Telemetry]:
    """The telemetry in such a text; None for "" and for an unreadable text."""
    try:
        return parse(json.loads(text)) if text else None
    except (ValueError, RecursionError):
        return None


def parts_of(text: str) -> Dict[str, Dict[str, Any]]:
    """The parts of such a text that are objects, unchecked, for a caller that needs few figures of many machines. Read
    each figure with `figure` or `column`."""
    try:
        data = json.loads(text) if text else {}
    except (ValueError, RecursionError):
        return {}
    return {name: data[name] for name in _PARTS if isinstance(data.get(name), dict)} if isinstance(data, dict) else {}


def as_received(data: object) -> str:
    """The text of this part of a beat that came from outside, unread; "" when it is invalid or too large. Agents of an
    older build send the object itself: it becomes text, if it is JSON that can be written again."""
    if isinstance(data, str):
        return data if len(data) <= MAX_BYTES and data.isascii() and "\x00" not in data else ""
    if not isinstance(data, dict):
        return ""
    try:
        text = _dumps(data)
    except (ValueError, RecursionError):
        return ""
    return text if len(text) <= MAX_BYTES else ""


def shorter(text: str) -> Iterator[str]:
    """Shorter and shorter forms of such a text, "" at last, for a beat that has no space for all of it."""
    small = decode(text) or Telemetry()
    for part, column in _LEFT_OUT:
        less = _without(small, part, column)
        if less != small:
            small = less
            yield encode(small)
    if text:
        yield ""


def _without(telemetry: Telemetry, name: str, column: str) -> Telemetry:
    part = getattr(telemetry, name)
    return telemetry._replace(**{name: part._replace(**{column: ()}) if column and part else None})


def _rounded(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _rounded(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_rounded(part) for part in value]
    return round(value, 2 if value < 1000 else 0) if isinstance(value, float) else value


def to_json(telemetry: Telemetry) -> Dict[str, Any]:
    """JSON values; absent figures are left out."""
    parts: Dict[str, Any] = {}
    for name in Telemetry._fields:
        part = getattr(telemetry, name)
        if part is None:
            continue
        if name not in _PARTS:
            parts[name] = _plain(part)
            continue
        figures = {key: getattr(part, key) for key in part._fields}
        kept = {key: _plain(figure) for key, figure in figures.items() if figure not in (None, ())}
        if kept:
            parts[name] = kept
    return parts


def parse(data: object) -> Optional[Telemetry]:
    """None for anything but an object; unknown names and absurd figures are dropped."""
    if not isinstance(data, dict):
        return None
    parts: Dict[str, Any] = {}
    for name in Telemetry._fields:
        value = data.get(name)
        if value is not None:
            parts[name] = _part(_PARTS[name], value) if name in _PARTS else figure(value)
    return Telemetry(**parts)


def _part(kind: Any, data: object) -> Any:
    if not isinstance(data, dict):
        return None
    read, nothing = (column, ()) if kind is Gpus else (figure, None)
    values = {name: read(data[name]) for name in kind._fields if name in data}
    return kind(**values) if any(value != nothing for value in values.values()) else None


def column(value: object) -> Column:
    if not isinstance(value, list):
        return ()
    # `figure` of each, written out: a card has twelve of them, a minute ten thousand machines.
    return tuple([number if type(number) in _NUMBERS and 0 <= number < 1e18 else None for number in value[:MAX_GPUS]])


def figure(value: object) -> Optional[float]:
    """A number from 0 to 1e18, else None. NaN and infinity are not below 1e18; True is not a number."""
    fits = type(value) in _NUMBERS and 0 <= value < 1e18  # type: ignore[operator]
    return value if fits else None  # type: ignore[return-value]


def _plain(value: Any) -> Any:
    """Whole numbers without a decimal point, so that the beat stays small."""
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
