"""The GPUs of this machine: their figures for the beat, whether the promised cards can be opened, whether CUDA starts.

A driver that hangs must not block anything else: figures are read in a thread of their own (vitals.py), and the count
before the command has a time limit. A card is called bad only where its own driver says so of this card: it is lost, it
cannot be started, or the hardware is to blame for its Xid. A card that could not be read is not bad.

A card that is listed and can be opened may still be unable to compute. So cuInit runs in a process of its own: it may
hang or crash, and the agent must not hold a card open. 802 means that the machine is still starting (NVLink fabric), so
the agent waits; any other error is final. Without libcuda nothing is known and nothing is refused: the cards were
counted by other means.
"""

from __future__ import annotations

import errno
import json
import logging
import os
import subprocess
import sys
import threading
import time
from ctypes import c_void_p
from typing import Any, Callable, Container, Dict, List, Mapping, Optional, Sequence, Tuple

from supervisor.agent.machine import nvml
from supervisor.agent.machine.job import Job
from supervisor.agent.machine.nvml import GPU_IS_LOST, NvidiaSmi, Nvml, NvmlFailed
from supervisor.agent.store.access import CHECK_S, GaveUp, Retrier
from supervisor.contract.beat_telemetry import HARDWARE_XIDS, MAX_GPUS, Gpus

COUNT_LIMIT_S = 120.0  # the first call starts the driver, which takes seconds for each card
LOAD_RETRY_S = 60.0
READY_LIMIT_S = 1200.0  # as gpu_timeout_s, which limits the boot
PROBE_LIMIT_S = 120.0
REAP_S = 5.0  # for a killed probe: inside the driver a process may be in an uninterruptible sleep
CUDA_RETRY_S = 5.0
FIRST_PIDS = "pid:[4026531836]"  # PROC_PID_INIT_INO of linux/proc_ns.h
LOST = "its driver says that it is lost"
NOT_READY = 802
_CUDA_ERRORS = {
    100: "no card is visible",
    101: "a card is not valid",
    NOT_READY: "the machine's GPUs are not ready yet",
    803: "driver and CUDA library do not fit",
    804: "the CUDA library is too new for this card",
    999: "unknown error",
}
_PROBE = """
import ctypes, json, sys
try:
    library = ctypes.CDLL("libcuda.so.1")
except OSError:
    sys.exit(0)
version = ctypes.c_int(0)
library.cuDriverGetVersion(ctypes.byref(version))
sys.stdout.write(json.dumps([library.cuInit(0), version.value]))
"""
_log = logging.getLogger("agent")


def gpu_names(job: Job) -> Optional[Sequence[str]]:
    """The cards of this machine: its own ones, else those that CUDA would show to the command; None = all."""
    if job.gpu_ids is not None:
        return job.gpu_ids
    shown = {**os.environ, **job.env}.get("CUDA_VISIBLE_DEVICES")
    return None if shown is None else [name.strip() for name in shown.split(",") if name.strip()]


class GpuReader:
    """`names`: indexes or UUIDs of this machine's cards; None = all cards. `bad` gets every card that its driver calls
    bad, with the reason, and again when there are more; after an OSError from it, again at the next reading. Safe to
    use from every thread."""

    def __init__(
        self,
        names: Optional[Sequence[str]],
        load: Callable[[], Any] = nvml.load,
        smi: Optional[NvidiaSmi] = None,
        *,
        devices: str = "/dev",
        monotonic: Callable[[], float] = time.monotonic,
        bad: Callable[[Mapping[str, str]], None] = lambda cards: None,
    ) -> None:
        self._names = names
        self._write_bad = bad
        self._bad: Dict[str, str] = {}
        self._bad_written = 0
        self._load, self._smi, self._devices = load, smi or NvidiaSmi(), devices
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._nvml: Optional[Nvml] = None
        self._opened: List[str] = []
        self._cards: List[Optional[c_void_p]] = []
        self._faults: List[str] = []
        self._tried_at: Optional[float] = None
        self._latest: Tuple[float, Optional[Gpus]] = (0.0, None)

    def read(self) -> Optional[Gpus]:
        """None where there is no card to read."""
        with self._lock:
            self._open()
            if self._nvml is None:
                rows = self._smi.read(self._names)
            else:
                rows = self._nvml.read(self._cards)
                for name, row in zip(self._opened, rows):
                    self._judge(name, row)
                self._report()
        figures = _columns(rows[:MAX_GPUS])
        self._latest = (self._monotonic(), figures)
        return figures

    def latest(self, max_age_s: float) -> Optional[Gpus]:
        """The last reading; None where it is older, as when the driver hangs. Never blocks."""
        read_at, figures = self._latest
        return figures if self._monotonic() - read_at <= max_age_s else None

    def others_bytes(self, ours: Container[int]) -> Optional[float]:
        """The most that processes other than `ours` (pids) use of one card; None where that cannot be read. The driver
        counts in the first namespace of pids: in a container ours would look like strangers."""
        with self._lock:
            if self._nvml is None or not _sees_all_pids():
                return None
            used = [self._nvml.processes(card) for card in self._cards if card is not None]
        sums = [sum(size for pid, size in rows.items() if pid not in ours) for rows in used if rows is not None]
        return float(max(sums)) if sums else None

    def xids(self) -> Tuple[Tuple[int, int, float], ...]:
        """(card, code, when by `monotonic`) of the errors that the driver has reported since the agent's start, the
        newest last. `card`: as in the columns of `read`. Never blocks."""
        library, cards = self._nvml, [card.value if card is not None else None for card in self._cards]
        events = () if library is None else tuple(library.xid_events)
        return tuple((cards.index(handle), code, at) for handle, code, at in events if handle in cards)

    def count(self) -> Tuple[int, str]:
        """(how many of this machine's cards can be opened, what is wrong with the others)."""
        with self._lock:
            self._open()
            if self._nvml is not None:
                words = [self._fault(name, card) for name, card in zip(self._opened, self._cards)]
                self._report()
                faults = self._faults + [fault for fault in words if fault]
                return words.count(""), "; ".join(faults)
            rows = self._smi.read(self._names)
        return sum(1 for row in rows if row), "; ".join(self._faults)

    def _open(self) -> None:
        """Load the library and find the cards, once; if it is missing, again a minute later."""
        now = self._monotonic()
        if self._nvml is not None or (self._tried_at is not None and now - self._tried_at < LOAD_RETRY_S):
            return
        self._tried_at, self._faults = now, []
        try:
            library = Nvml(self._load(), self._monotonic)
            names = library.every_card() if self._names is None else self._names
        except (OSError, NvmlFailed) as error:
            self._faults.append(str(error))
            return
        self._opened = list(names)
        self._cards = [self._card(library, name) for name in names]
        self._nvml = library

    def _judge(self, name: str, row: Mapping[str, Optional[float]]) -> None:
        xid = row.get("last_xid")
        if row.get("lost"):
            self._bad.setdefault(name, LOST)
        elif xid in HARDWARE_XIDS:
            self._bad.setdefault(name, "it had Xid %d, which is an error of the hardware" % xid)

    def _report(self) -> None:
        if len(self._bad) == self._bad_written:
            return
        try:
            self._write_bad(self._bad)
        except OSError as error:
            _log.warning("a bad GPU could not be written down: %s", error)
        else:
            self._bad_written = len(self._bad)

    def _card(self, library: Nvml, name: str) -> Optional[c_void_p]:
        try:
            card = library.card(name)
        except NvmlFailed as error:
            self._faults.append("GPU %s: %s" % (name, error))
            if error.code == GPU_IS_LOST:
                self._bad.setdefault(name, LOST)
            return None
        library.watch(card)
        return card

    def _fault(self, name: str, card: Optional[c_void_p]) -> Optional[str]:
        """'' for a card that can be opened; None for a card whose fault is in the list already."""
        if card is None or self._nvml is None:
            return None
        minor = self._nvml.minor(card)
        if minor is None:
            return ""
        path = os.path.join(self._devices, "nvidia%d" % minor)
        try:
            os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC))
        except OSError as error:
            if error.errno == errno.EIO:
                self._bad.setdefault(name, "its driver cannot bring it up (%s: %s)" % (path, error.strerror))
            return "%s: %s" % (path, error.strerror)
        return ""


def _sees_all_pids() -> bool:
    try:
        return os.readlink("/proc/self/ns/pid") == FIRST_PIDS
    except OSError:
        return False


def missing_text(promised: int, reader: GpuReader, gives_up: Callable[[], bool]) -> str:
    """The message when fewer than `promised` cards can be opened; '' when all can. Raises GaveUp."""
    counts: List[Tuple[int, str]] = []
    thread = threading.Thread(target=lambda: counts.append(_counted(reader)), name="gpus", daemon=True)
    thread.start()
    until = time.monotonic() + COUNT_LIMIT_S
    while thread.is_alive() and time.monotonic() < until:
        if gives_up():
            raise GaveUp
        thread.join(CHECK_S)
    if not counts:
        return "%s; the driver did not answer within %.0f s" % (_promise(promised), COUNT_LIMIT_S)
    count, faults = counts[0]
    if count >= promised:
        return ""
    return "%s, %d can be opened%s" % (_promise(promised), count, ": " + faults if faults else "")


def _counted(reader: GpuReader) -> Tuple[int, str]:
    try:
        return reader.count()
    except Exception as error:  # noqa: BLE001 - after any error no card could be opened
        _log.exception("the GPUs could not be counted")
        return 0, "%s: %s" % (type(error).__name__, error)


def _promise(number: int) -> str:
    return "%d GPU%s promised" % (number, "" if number == 1 else "s")


def _columns(rows: Sequence[Mapping[str, Optional[float]]]) -> Optional[Gpus]:
    columns = {}
    for name in Gpus._fields:
        column = tuple(row.get(name) for row in rows)
        if any(figure is not None for figure in column):
            columns[name] = column
    return Gpus(**columns) if columns else None


def cuda_problem(gives_up: Callable[[], bool], report: Callable[[str], None], driver: Callable[[], str]) -> str:
    """Why CUDA does not start; "" where it does, or where that is unknown. `report` gets the reason for waiting.
    `driver`: its version. Raises GaveUp."""
    retrier = Retrier(gives_up)
    until = time.monotonic() + READY_LIMIT_S
    while True:
        result, text = _run_probe(retrier)
        if result is None:
            return text
        code, version = result
        if code == 0:
            report("")
            return ""
        cuda = "%d.%d" % (version // 1000, version % 1000 // 10) if version else "unknown"
        text = "CUDA does not start: cuInit says %d (%s); driver %s, CUDA %s" % (
            code, _CUDA_ERRORS.get(code, "see cuda.h"), driver() or "unknown", cuda,
        )  # fmt: skip
        if code != NOT_READY or time.monotonic() >= until:
            return text
        report(text)
        retrier.wait("waiting for the GPUs", CUDA_RETRY_S)


def _run_probe(retrier: Retrier) -> Tuple[Optional[Tuple[int, int]], str]:
    """((result of cuInit, CUDA's version), ""), or (None, what is wrong): "" where there is no library."""
    probe = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _PROBE],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    until = time.monotonic() + PROBE_LIMIT_S
    try:
        while probe.poll() is None and time.monotonic() < until:
            retrier.check("starting CUDA")
            time.sleep(CHECK_S)
        if probe.poll() is None:
            return None, "CUDA does not start: cuInit did not answer within %.0f s" % PROBE_LIMIT_S
    finally:
        probe.kill()
        output = _output(probe)
    if probe.returncode != 0:
        return None, "CUDA does not start: cuInit ended its process (%d)" % probe.returncode
    if not output:
        _log.info("there is no libcuda.so.1 here: whether CUDA starts is not known")
        return None, ""
    try:
        code, version = json.loads(output.splitlines()[-1])
    except ValueError:
        _log.warning("whether CUDA starts is not known: the probe wrote %r", output[-200:])
        return None, ""
    return (int(code), int(version)), ""


def _output(probe: subprocess.Popen[bytes]) -> bytes:
    try:
        return probe.communicate(timeout=REAP_S)[0]
    except subprocess.TimeoutExpired:
        if probe.stdout is not None:
            probe.stdout.close()
        return b""
