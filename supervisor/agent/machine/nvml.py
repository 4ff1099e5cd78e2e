"""The figures of NVIDIA cards: from the management library (NVML) through ctypes, or from the program nvidia-smi.

If this driver lacks a function, or reports NOT_SUPPORTED, that figure is absent; the others are not affected.
Structures and constants are those of nvml.h. Handles are kept until the agent's end.

nvidia-smi gives the same figures where the library cannot be loaded (because of another libc, for example). One call
takes a good part of a second, so it runs at most once a minute. For a figure that a card does not have, it prints a
word in brackets.
"""

from __future__ import annotations

import ctypes
import logging
import re
import shutil
import subprocess
import time
from ctypes import byref, c_char_p, c_int, c_uint, c_ulonglong, c_void_p
from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

from supervisor.agent.machine.folder import read_text
from supervisor.contract.beat_telemetry import HARDWARE_XIDS

SUCCESS, GPU_IS_LOST = 0, 15
PROCESSES = 128  # of a card, at most: with more of them none is read
DRIVER = "/proc/driver/nvidia"
PROGRAM = "nvidia-smi"
SMI_PERIOD_S, SMI_TIMEOUT_S = 60.0, 20.0
LIMITS_S = 60.0
_ERRORS = {
    3: "not supported",
    4: "no permission",
    6: "not found",
    9: "the driver is not loaded",
    12: "a library is missing",
    GPU_IS_LOST: "the GPU is lost",
    18: "driver and library do not match",
    999: "unknown error",
}
_CLOCK_SM, _SENSOR_GPU, _UNCORRECTED, _VOLATILE, _XID_EVENTS = 1, 0, 1, 0, 8
_MIB = 1 << 20
_EVENTS_AT_ONCE = 64
MAX_XIDS, SAME_S = 32, 1.0
_SMI_FIELDS: Tuple[Tuple[str, str], ...] = (
    ("util_pct", "utilization.gpu"),
    ("memory_used_mib", "memory.used"),
    ("memory_total_mib", "memory.total"),
    ("sm_clock_mhz", "clocks.sm"),
    ("sm_clock_max_mhz", "clocks.max.sm"),
    ("power_w", "power.draw"),
    ("power_limit_w", "power.limit"),
    ("temperature_c", "temperature.gpu"),
    ("ecc_uncorrected", "ecc.errors.uncorrected.volatile.total"),
)
# The newer name, the older one, and neither: a driver that does not know a field refuses the whole query.
_SMI_REASONS = ("clocks_event_reasons.active", "clocks_throttle_reasons.active", "")
_DRIVER_VERSION = re.compile(r"Kernel Module(?: for \S+)?\s+(\d+(?:\.\d+)+)")
_log = logging.getLogger("agent")

Row = Dict[str, Optional[float]]


class NvmlFailed(Exception):
    """The text says which call failed and why. `code`: NVML's."""

    def __init__(self, name: str, code: int) -> None:
        super().__init__("%s: %s" % (name, _ERRORS.get(code, "error %d" % code)))
        self.code = code


class _Utilization(ctypes.Structure):
    _fields_ = [("gpu", c_uint), ("memory", c_uint)]


class _Memory(ctypes.Structure):
    _fields_ = [("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong)]


class _MemoryV2(ctypes.Structure):
    """`used` of version 2 does not include the driver's own reserve, as nvidia-smi shows it."""

    _fields_ = [
        ("version", c_uint),
        ("total", c_ulonglong),
        ("reserved", c_ulonglong),
        ("free", c_ulonglong),
        ("used", c_ulonglong),
    ]


class _Process(ctypes.Structure):
    _fields_ = [("pid", c_uint), ("used", c_ulonglong), ("gpu_instance", c_uint), ("compute_instance", c_uint)]


_UNKNOWN_BYTES = 2**64 - 1


class _Event(ctypes.Structure):
    _fields_ = [
        ("device", c_void_p),
        ("kind", c_ulonglong),
        ("data", c_ulonglong),
        ("gpu_instance", c_uint),
        ("compute_instance", c_uint),
    ]


_MEMORY_V2 = ctypes.sizeof(_MemoryV2) | 2 << 24


def load() -> Any:
    """The library. OSError where there is none."""
    return ctypes.CDLL("libnvidia-ml.so.1")


class Nvml:
    """`library`: the result of `load`, or any object with functions of these names. Used by one thread at a time."""

    def __init__(self, library: Any, monotonic: Callable[[], float] = time.monotonic) -> None:
        """Raises NvmlFailed."""
        self._library, self._monotonic = library, monotonic
        self._must("nvmlInit_v2")
        self._events: Optional[c_void_p] = None
        self._xids: Dict[int, int] = {}  # handle -> the last one
        self.xid_events: List[Tuple[int, int, float]] = []  # (handle, code, when it was read), the newest last
        self._limits: Dict[int, Row] = {}  # handle -> figures that rarely change
        self._limits_until = 0.0

    def every_card(self) -> List[str]:
        """Ids of all cards: their indexes. Raises NvmlFailed."""
        count = c_uint()
        self._must("nvmlDeviceGetCount_v2", byref(count))
        return [str(index) for index in range(count.value)]

    def card(self, name: str) -> c_void_p:
        """The handle of a card by index or UUID. Raises NvmlFailed."""
        handle = c_void_p()
        if name.isdigit():
            self._must("nvmlDeviceGetHandleByIndex_v2", c_uint(int(name)), byref(handle))
        else:
            self._must("nvmlDeviceGetHandleByUUID", c_char_p(name.encode("ascii", "replace")), byref(handle))
        return handle

    def minor(self, card: c_void_p) -> Optional[int]:
        """The number in /dev/nvidia<minor>; None where the card has no such file of its own."""
        return self._number("nvmlDeviceGetMinorNumber", card)

    def processes(self, card: c_void_p) -> Optional[Dict[int, int]]:
        """Bytes of the card's memory by pid of the driver's own namespace; None where the driver does not say."""
        rows, count = (_Process * PROCESSES)(), c_uint(PROCESSES)
        if self._call("nvmlDeviceGetComputeRunningProcesses_v3", card, byref(count), rows) != SUCCESS:
            return None
        used = {int(row.pid): int(row.used) for row in rows[: count.value]}
        return None if _UNKNOWN_BYTES in used.values() else used

    def watch(self, card: c_void_p) -> None:
        """Collect this card's Xid events from now on, if the driver reports them."""
        if self._events is None:
            events = c_void_p()
            if self._call("nvmlEventSetCreate", byref(events)) != SUCCESS:
                return
            self._events = events
        self._call("nvmlDeviceRegisterEvents", card, c_ulonglong(_XID_EVENTS), self._events)

    def read(self, cards: Sequence[Optional[c_void_p]]) -> List[Row]:
        """One row for each card, named as in beat_telemetry.Gpus; empty for None."""
        self._collect_xids()
        if self._monotonic() >= self._limits_until:
            self._limits, self._limits_until = {}, self._monotonic() + LIMITS_S
        return [{} if card is None else {**self._row(card), **self._limits_of(card)} for card in cards]

    def _row(self, card: c_void_p) -> Row:
        use, memory = _Utilization(), self._memory(card)
        code = self._call("nvmlDeviceGetUtilizationRates", card, byref(use))
        return {
            "util_pct": float(use.gpu) if code == SUCCESS else None,
            "memory_used_mib": None if memory is None else memory.used // _MIB,
            "memory_total_mib": None if memory is None else memory.total // _MIB,
            "sm_clock_mhz": self._number("nvmlDeviceGetClockInfo", card, _CLOCK_SM),
            "power_w": _watts(self._number("nvmlDeviceGetPowerUsage", card)),
            "temperature_c": self._number("nvmlDeviceGetTemperature", card, _SENSOR_GPU),
            "clock_reasons": self._reasons(card),
            "ecc_uncorrected": self._long("nvmlDeviceGetTotalEccErrors", card, _UNCORRECTED, _VOLATILE),
            "last_xid": self._xids.get(card.value or 0),
            "lost": 1.0 if code == GPU_IS_LOST else None,
        }

    def _limits_of(self, card: c_void_p) -> Row:
        key = card.value or 0
        if key not in self._limits:
            self._limits[key] = {
                "sm_clock_max_mhz": self._number("nvmlDeviceGetMaxClockInfo", card, _CLOCK_SM),
                "power_limit_w": _watts(self._number("nvmlDeviceGetEnforcedPowerLimit", card)),
            }
        return self._limits[key]

    def _memory(self, card: c_void_p) -> Any:
        newer = _MemoryV2(version=_MEMORY_V2)
        if self._call("nvmlDeviceGetMemoryInfo_v2", card, byref(newer)) == SUCCESS:
            return newer
        older = _Memory()
        return older if self._call("nvmlDeviceGetMemoryInfo", card, byref(older)) == SUCCESS else None

    def _reasons(self, card: c_void_p) -> Optional[int]:
        newer = self._long("nvmlDeviceGetCurrentClocksEventReasons", card)
        return self._long("nvmlDeviceGetCurrentClocksThrottleReasons", card) if newer is None else newer

    def _collect_xids(self) -> None:
        if self._events is None:
            return
        event = _Event()
        for _ in range(_EVENTS_AT_ONCE):
            if self._call("nvmlEventSetWait_v2", self._events, byref(event), c_uint(0)) != SUCCESS:
                return
            card = event.device or 0
            if self._xids.get(card) not in HARDWARE_XIDS or event.data in HARDWARE_XIDS:
                self._xids[card] = event.data  # errors of its programs follow the loss of a card
            self._keep_event((card, int(event.data), self._monotonic()))

    def _keep_event(self, event: Tuple[int, int, float]) -> None:
        """Without repetitions in one reading. A flood of errors of its programs replaces none of the hardware's."""
        if any(event[:2] == other[:2] and event[2] - other[2] < SAME_S for other in self.xid_events):
            return
        self.xid_events.append(event)
        if len(self.xid_events) > MAX_XIDS:
            weak = [number for number, (_, code, _) in enumerate(self.xid_events) if code not in HARDWARE_XIDS]
            del self.xid_events[weak[0] if weak else 0]

    def _number(self, name: str, card: c_void_p, *kind: int) -> Optional[int]:
        return self._read_into(c_uint(), name, card, *kind)

    def _long(self, name: str, card: c_void_p, *kind: int) -> Optional[int]:
        return self._read_into(c_ulonglong(), name, card, *kind)

    def _read_into(self, value: Any, name: str, card: c_void_p, *kind: int) -> Optional[int]:
        code = self._call(name, card, *(c_int(word) for word in kind), byref(value))
        return int(value.value) if code == SUCCESS else None

    def _call(self, name: str, *arguments: Any) -> int:
        function = getattr(self._library, name, None)  # None: this driver is older than the function
        return -1 if function is None else int(function(*arguments))

    def _must(self, name: str, *arguments: Any) -> None:
        code = self._call(name, *arguments)
        if code != SUCCESS:
            raise NvmlFailed(name, code)


def _watts(milliwatts: Optional[int]) -> Optional[float]:
    return None if milliwatts is None else milliwatts / 1000


class NvidiaSmi:
    """`read` returns the same rows for a minute. Used by one thread at a time."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic, timeout_s: float = SMI_TIMEOUT_S) -> None:
        self._monotonic, self._timeout_s = monotonic, timeout_s
        self._reasons: Tuple[str, ...] = _SMI_REASONS
        self._rows: Dict[str, Row] = {}  # by index and by UUID
        self._indexes: List[str] = []
        self._queried_at: Optional[float] = None

    def read(self, names: Optional[Sequence[str]]) -> List[Row]:
        """One row for each of `names`, None = all cards; empty for a card that is not in the output."""
        self._query()
        return [self._rows.get(name, {}) for name in (self._indexes if names is None else names)]

    def _query(self) -> None:
        now = self._monotonic()
        if self._queried_at is not None and now - self._queried_at < SMI_PERIOD_S:
            return
        self._queried_at, self._rows, self._indexes = now, {}, []
        if shutil.which(PROGRAM) is None:
            return
        for reasons in self._reasons:
            fields = ["index", "uuid", *(field for _, field in _SMI_FIELDS), *([reasons] if reasons else [])]
            try:
                lines = query(fields, self._timeout_s, ",nounits")
            except subprocess.CalledProcessError:
                continue  # it refused the query
            except (OSError, subprocess.TimeoutExpired) as error:
                _log.warning("nvidia-smi does not respond: %s", error)
                return
            if lines:
                self._reasons = (reasons,)
                self._read(lines)
                return

    def _read(self, lines: List[List[str]]) -> None:
        columns = [name for name, _ in _SMI_FIELDS] + ["clock_reasons"]
        for cells in lines:
            if len(cells) < 2 + len(_SMI_FIELDS):
                continue
            row = {name: _figure(cell) for name, cell in zip(columns, cells[2:])}
            self._indexes.append(cells[0])
            self._rows[cells[0]] = self._rows[cells[1]] = row


def query(fields: Sequence[str], timeout_s: float, format_options: str = "") -> List[List[str]]:
    """A line of cells for each card. Raises OSError, subprocess.SubprocessError."""
    done = subprocess.run(
        [PROGRAM, "--query-gpu=" + ",".join(fields), "--format=csv,noheader" + format_options],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        timeout=timeout_s,
        check=True,
    )
    lines = done.stdout.decode("utf-8", "replace").splitlines()
    return [[cell.strip() for cell in line.split(",")] for line in lines]


def _figure(cell: str) -> Optional[float]:
    try:
        return float(int(cell, 16)) if cell.startswith("0x") else float(cell)
    except ValueError:
        return None


def driver_version(path: str = DRIVER + "/version") -> str:
    """The version of the kernel module; "" where it cannot be read."""
    match = _DRIVER_VERSION.search(read_text(path))
    return match.group(1) if match else ""
