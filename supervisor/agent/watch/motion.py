"""Whether anything of the command moves, by six signals: GPU, CPU, IO, network, files, output.

`Motion` compares readings (`Counters`) some seconds apart. A signal that cannot be read is unread, which is not still.
Nothing can be said unless the CPU and one more of the first four are read.

- gpu: the memory in use changes, or a card computes: more than 5 % busy, at more than 40 % of its power limit. A card
  that waits inside a collective is 100 % busy at low power. Where the power is unread, busy counts as moving.
- cpu: the processes used more than 2 % of a core. Unread where one of them is a client (CLIENTS): what it started works
  in processes that are not the command's.
- io: they read or wrote more than 64 KB of a disk, or passed more than 1 MB through read and write.
- net: more than 16 KB passed through their TCP sockets, by the kernel's count (sock_diag). The reports of a tracker are
  less.
- files: the newest change below the folders of checkpoints and results; output: the size of the log.

The readers look at /proc of the given processes and at few entries of each folder: they run only while a step is late.
A look has limits (PROCESSES, DESCRIPTORS, DIAG_S). What lies beyond them is unread, so a command with more processes or
sockets than that is never called still.
"""

from __future__ import annotations

import os
import socket
import struct
import time
from contextlib import suppress
from itertools import islice
from typing import Dict, Iterable, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

from supervisor.agent.machine.folder import read_fields, read_text
from supervisor.agent.machine.processes import stat_fields
from supervisor.contract.beat_telemetry import Gpus

GPU, CPU, IO, NET, FILES, OUTPUT = "gpu", "cpu", "io", "net", "files", "output"
SIGNALS = (GPU, CPU, IO, NET)
CPU_SHARE = 0.02  # of one core
CPU_LEAST_S = 0.025  # Linux counts user and system time in ticks of 10 ms: one process may show two for almost nothing
DISK_BYTES, PASSED_BYTES, NET_BYTES = 64 << 10, 1 << 20, 16 << 10
BUSY_PCT, POWER_SHARE, MEMORY_MIB = 5.0, 0.4, 1.0
ENTRIES = 2000  # of all folders together
CLIENTS = ("docker", "podman", "nerdctl", "kubectl", "ssh", "srun")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PROCESSES, DESCRIPTORS = 1000, 20_000  # descriptors: of all processes together
DIAG_S = 2.0
# Of linux/netlink.h, linux/sock_diag.h and linux/inet_diag.h.
_SOCK_DIAG, _BY_FAMILY, _DUMP_REQUEST, _ERROR, _DONE, _TCP_INFO = 4, 20, 0x301, 2, 3, 2


class Counters(NamedTuple):
    """One reading. None = unread. By process: CPU seconds, bytes of disks, bytes through read and write."""

    cpu_s: Optional[Mapping[int, float]] = None
    disk_bytes: Optional[Mapping[int, float]] = None
    passed_bytes: Optional[Mapping[int, float]] = None
    net_bytes: Optional[Mapping[int, float]] = None  # by socket
    gpus: Optional[Gpus] = None
    files: Optional[Tuple[float, ...]] = None
    output_bytes: Optional[float] = None
    cut: bool = False  # the command is larger than a look


class Motion:
    """Readings of one stall."""

    def __init__(self) -> None:
        self._last: Optional[Tuple[float, Counters]] = None
        self._read: Dict[str, float] = {}  # signal -> when it was last read twice
        self._moved: Dict[str, float] = {}  # signal -> when it last moved

    def add(self, now: float, counters: Counters) -> None:
        before, self._last = self._last, (now, counters)
        if before is None:
            return
        for signal, moved in _compared(before[1], counters, now - before[0]).items():
            self._read[signal] = now
            if moved:
                self._moved[signal] = now

    def moving(self, since: float, signals: Sequence[str]) -> Optional[Tuple[str, ...]]:
        """Those of `signals` that moved after `since`; None where too little was read."""
        fresh = [signal for signal in SIGNALS if self._read.get(signal, since) > since]
        if CPU not in fresh or len(fresh) < 2:
            return None
        moved = tuple(signal for signal in signals if self._moved.get(signal, since) > since)
        is_cut = self._last is not None and self._last[1].cut
        return None if is_cut and not moved else moved

    def moved_at(self, signals: Sequence[str]) -> Optional[float]:
        """When a reading last showed that one of `signals` moved; None = none did."""
        times = [at for signal, at in self._moved.items() if signal in signals]
        return max(times) if times else None

    def reads(self, signal: str) -> bool:
        return signal in self._read


def _compared(before: Counters, after: Counters, seconds: float) -> Dict[str, bool]:
    """Signal -> whether it moved; without the unread ones."""
    moved: Dict[str, Optional[bool]] = {
        GPU: None if before.gpus is None or after.gpus is None else _gpus_move(before.gpus, after.gpus),
        CPU: _rose(before.cpu_s, after.cpu_s, max(CPU_LEAST_S, CPU_SHARE * seconds)),
        IO: _either(
            _rose(before.disk_bytes, after.disk_bytes, DISK_BYTES),
            _rose(before.passed_bytes, after.passed_bytes, PASSED_BYTES),
        ),
        NET: _rose(before.net_bytes, after.net_bytes, NET_BYTES),
        FILES: None if before.files is None or after.files is None else before.files != after.files,
        OUTPUT: None if before.output_bytes is None or after.output_bytes is None
        else before.output_bytes != after.output_bytes,
    }  # fmt: skip
    return {signal: value for signal, value in moved.items() if value is not None}


def _rose(before: Optional[Mapping[int, float]], after: Optional[Mapping[int, float]], by: float) -> Optional[bool]:
    """Over all processes (or sockets); one that is new counts from 0."""
    if before is None or after is None:
        return None
    return sum(max(0.0, value - before.get(pid, 0.0)) for pid, value in after.items()) > by


def _either(first: Optional[bool], second: Optional[bool]) -> Optional[bool]:
    if first is None or second is None:
        return second if first is None else first
    return first or second


def _gpus_move(before: Gpus, after: Gpus) -> Optional[bool]:
    """None: no card shows how busy it is, as a part of a card (MIG) does not."""
    if any(
        abs((new or 0) - (old or 0)) >= MEMORY_MIB for old, new in zip(before.memory_used_mib, after.memory_used_mib)
    ):
        return True
    if all(busy is None for busy in after.util_pct):
        return None
    return any(_computes(after, card) for card in range(len(after.util_pct)))


def _computes(gpus: Gpus, card: int) -> bool:
    busy, power, limit = (_at(column, card) for column in (gpus.util_pct, gpus.power_w, gpus.power_limit_w))
    if busy is None or busy <= BUSY_PCT:
        return False
    return power is None or not limit or power > POWER_SHARE * limit


def _at(column: Sequence[Optional[float]], card: int) -> Optional[float]:
    return column[card] if card < len(column) else None


def read_counters(pids: Iterable[int], folders: Sequence[str], output: str, gpus: Optional[Gpus] = None) -> Counters:
    """Of these processes. `folders`: where the command writes; `output`: its log; `gpus`: as vitals read them."""
    pids = list(pids)
    if len(pids) > PROCESSES:
        return Counters(gpus=gpus, files=_newest(folders), output_bytes=_size(output), cut=True)
    cpu_s: Dict[int, float] = {}
    disk: Dict[int, float] = {}
    passed: Dict[int, float] = {}
    has_client = False
    for pid in pids:
        has_client |= read_text("/proc/%d/comm" % pid).strip() in CLIENTS
        with suppress(OSError, ValueError, IndexError):
            cpu_s[pid] = sum(int(ticks) for ticks in stat_fields(pid)[11:13]) / _TICKS_PER_S
        io = read_fields("/proc/%d/io" % pid)
        with suppress(KeyError, ValueError):
            disk[pid] = float(int(io["read_bytes"]) + int(io["write_bytes"]))
            passed[pid] = float(int(io["rchar"]) + int(io["wchar"]))
    sockets = _sockets(cpu_s)
    return Counters(
        cpu_s=None if has_client else cpu_s or None,
        disk_bytes=disk or None,
        passed_bytes=passed or None,
        net_bytes=None if sockets is None else _tcp_bytes(sockets),
        gpus=gpus,
        files=_newest(folders),
        output_bytes=_size(output),
        cut=sockets is None,
    )


def _sockets(pids: Iterable[int]) -> Optional[Set[int]]:
    """Inodes of the sockets that these processes have open; None where they have too many descriptors to look at."""
    inodes, left = set(), DESCRIPTORS
    for pid in pids:
        with suppress(OSError), os.scandir("/proc/%d/fd" % pid) as entries:
            for entry in entries:
                left -= 1
                if left < 0:
                    return None
                with suppress(OSError, ValueError):
                    kind, _, number = os.readlink(entry.path).partition(":")
                    if kind == "socket":
                        inodes.add(int(number.strip("[]")))
    return inodes


def _tcp_bytes(inodes: Set[int]) -> Optional[Dict[int, float]]:
    """Socket -> bytes sent and received so far; None where the kernel does not tell (linux/inet_diag.h), or not in
    time."""
    if not inodes:
        return {}
    totals: Dict[int, float] = {}
    until = time.monotonic() + DIAG_S
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
            kernel.settimeout(DIAG_S)
            for family in (socket.AF_INET, socket.AF_INET6):
                body = struct.pack("=BBBxI48x", family, socket.IPPROTO_TCP, 1 << (_TCP_INFO - 1), 0xFFFFFFFF)
                kernel.send(struct.pack("=IHHII", 16 + len(body), _BY_FAMILY, _DUMP_REQUEST, 0, 0) + body)
                while _add_answers(kernel.recv(1 << 18), inodes, totals):
                    if time.monotonic() > until:
                        return None
    except (OSError, struct.error):
        return None
    return totals


def _add_answers(data: bytes, inodes: Set[int], totals: Dict[int, float]) -> bool:
    """False after the last message of a dump. OSError where the kernel refuses."""
    offset = 0
    while offset + 16 <= len(data):
        length, kind = struct.unpack_from("=IH", data, offset)
        if kind == _ERROR or length < 16:
            raise OSError("sock_diag is refused")
        if kind == _DONE:
            return False
        (inode,) = struct.unpack_from("=I", data, offset + 84)
        if inode in inodes:
            totals[inode] = _bytes_in(data[offset + 88 : offset + length])
        offset += (length + 3) & ~3
    return True


def _bytes_in(attributes: bytes) -> float:
    """Bytes acknowledged and received, of the attribute tcp_info."""
    offset = 0
    while offset + 4 <= len(attributes):
        length, kind = struct.unpack_from("=HH", attributes, offset)
        if kind == _TCP_INFO and length >= 4 + 136:
            return float(sum(struct.unpack_from("=QQ", attributes, offset + 4 + 120)))
        offset += max(4, (length + 3) & ~3)
    return 0.0


def _newest(folders: Sequence[str]) -> Tuple[float, ...]:
    """The newest change and the bytes below each folder; links are not followed."""
    figures: List[float] = []
    left = ENTRIES
    for top in folders:
        newest = size = 0.0
        waiting = [top]
        while waiting and left > 0:
            folder, names = waiting.pop(), ["."]
            with suppress(OSError), os.scandir(folder) as entries:  # read no further: it may hold millions
                for entry in islice(entries, left):
                    (waiting if entry.is_dir(follow_symlinks=False) else names).append(entry.path)
            left -= len(names)
            for name in names:
                with suppress(OSError):
                    status = os.lstat(os.path.join(folder, name))
                    newest, size = max(newest, status.st_mtime), size + status.st_size
        figures += [newest, size]
    return tuple(figures)


def _size(path: str) -> Optional[float]:
    try:
        return float(os.stat(path).st_size)
    except OSError:
        return None
