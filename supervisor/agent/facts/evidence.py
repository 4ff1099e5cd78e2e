"""The agent's part of the evidence: `instances/<n>.evidence.json`, written on a stall and at the end of every life.

What a person needs who asks why an attempt ended, and what is gone with the machine. Nothing in here may hold up or
fail the end of a life: what cannot be read is left out, a store that does not answer is waited for only so long. Every
text passes the masker. Larger than MAX_BYTES, the part is trimmed in this order: the processes with the least memory,
the stacks to their beginnings, the oldest lines of the log; `trimmed` names what was.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from contextlib import suppress
from typing import Any, Callable, Dict, Iterable, List, Optional

from supervisor.agent.facts import threaddump
from supervisor.agent.facts.processes import tree
from supervisor.agent.machine import disks
from supervisor.agent.machine.job import Job
from supervisor.agent.machine.machinefolder import MachineFolder
from supervisor.agent.machine.masking import Masker
from supervisor.agent.machine.training import Training
from supervisor.agent.store.patience import GaveUp, Patience
from supervisor.agent.store.reach import Store
from supervisor.agent.watch import exits
from supervisor.agent.watch.attention import Attention
from supervisor.agent.watch.situation import Situation
from supervisor.contract import runfiles
from supervisor.contract.heartbeat import Exit
from supervisor.contract.stores.errors import StoreUnavailable

VERSION = 1
MAX_BYTES = 240_000  # the supervisor's part goes around it, up to 256 KB in all
LOG_LINES, LINE_CHARS = 200, 1000
# What is left of processes and stacks where room is short.
FEW_PROCESSES, DUMP_CHARS, COMMAND_CHARS = 10, 3000, 300
STORE_S, LOOK_S = 5.0, 0.05  # so long the end of a life waits for the store, if that much is left
_log = logging.getLogger("agent")


class Evidence:
    """One attempt's part. `observe_start` and `observe_end` are called around the command, by the main thread."""

    def __init__(
        self,
        job: Job,
        folder: MachineFolder,
        store: Store,
        masker: Masker,
        situation: Situation,
        training: Training,
        attention: Attention,
        oom_kills: Callable[[], Optional[int]],
    ) -> None:
        self._job, self._folder = job, folder
        self._store, self._masker = store, masker
        self._situation, self._training, self._attention = situation, training, attention
        self._oom_kills = oom_kills
        self._oom_before: Optional[int] = None
        self._processes: List[Dict[str, Any]] = []
        self._stall: Optional[Dict[str, Any]] = None
        self._lock = threading.Lock()  # a dump that is still being stored must not come after the end
        self._ended = False
        self.kept = False  # the part of the end is in the store

    def observe_start(self) -> None:
        """Immediately before the command begins."""
        self._oom_before = self._oom_kills()

    def observe_end(self) -> None:
        """Before what the command left behind is ended."""
        self._processes = self._tree()

    def oom_kills(self) -> Optional[int]:
        """How many processes the kernel has killed for memory since the start; None = not countable here."""
        now = self._oom_kills()
        return None if now is None or self._oom_before is None else max(0, now - self._oom_before)

    def stalled(self, without_progress_s: float) -> None:
        """Take a dump of the threads and store it at once: the machine may be given up soon. A store that is away is
        waited for, as long as we may write."""
        processes = self._tree()
        dump = threaddump.take(self._folder.threads, (process["pid"] for process in processes))
        step = self._situation.now.step
        self._stall = {"step": step, "without_progress_s": round(without_progress_s, 1), "threads": dump}
        _log.warning(
            "no progress for %.0f s: the threads of %d processes are kept", without_progress_s, len(dump)
        )
        part = self._part("stall", None, None, processes)

        def put() -> None:
            with self._lock:
                if not self._ended:
                    self._put(part)

        with suppress(GaveUp):
            Patience(self._attention.writing_over).insist("keeping where the threads stand", put)

    def keep(self, end: Optional[Exit], left: Optional[str]) -> None:
        """Store the part of the end, as far as the time allows that is left; `kept` tells whether that was enough.

        A notice or a stop that comes meanwhile ends the waiting: the time is needed for what is worth more. Main thread
        only.
        """
        before, until = self._attention.ending, time.monotonic() + STORE_S
        if self._attention.writing_over():
            return
        worker = threading.Thread(target=self._keep_quietly, args=(end, left), name="evidence", daemon=True)
        worker.start()
        while worker.is_alive() and time.monotonic() < until and not self._attention.writing_over():
            if self._attention.look() is not before:
                return
            worker.join(LOOK_S)

    def insist(self, end: Optional[Exit], left: Optional[str]) -> None:
        """Store the part of the end. StoreUnavailable."""
        part = self._part("end", end, left, self._processes)
        with self._lock:
            self._ended = True
            self._put(part)
        self.kept = True

    def _keep_quietly(self, end: Optional[Exit], left: Optional[str]) -> None:
        try:
            self.insist(end, left)
        except StoreUnavailable as error:
            _log.warning("the evidence waits: %s", error)
        except Exception:  # noqa: BLE001 - any error: the last beat must go out all the same
            _log.exception("the evidence could not be kept")

    def _put(self, part: Dict[str, Any]) -> None:
        key = runfiles.agent_evidence(self._job.run_id, self._job.attempt)
        self._store.put(key, fitted(self._masker.json(part, keys=False)))

    def _tree(self) -> List[Dict[str, Any]]:
        return tree(self._training.pid, self._folder.marker, self._masker.text)

    def _part(
        self, when: str, end: Optional[Exit], left: Optional[str], processes: List[Dict[str, Any]]
    ) -> Dict[str, Any]:
        beat, job = self._situation.now, self._job
        telemetry = json.loads(beat.telemetry) if beat.telemetry else None
        return {
            "version": VERSION,
            "when": when,
            "written_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "run_id": job.run_id,
            "attempt": job.attempt,
            "launch_id": job.launch_id,
            "machine_id": beat.machine_id,
            "exit": None if end is None else dict(vars(end)),
            "left": left,
            "signals_sent": sorted(self._training.sent),
            "oom_kills": self.oom_kills(),
            "boot": {"at_start": beat.boot_id, "now": boot_id()},
            "disks": {role: dict(vars(disk)) for role, disk in disks.by_role(self._folder.roles()).items()},
            "telemetry": telemetry,
            "stall": self._stall,
            "processes": processes,
            "log_tail": log_tail(exits.masked_tail(self._folder.output, self._masker)),
            "trimmed": [],
        }


def log_tail(tail: bytes) -> List[str]:
    """The last LOG_LINES lines, each cut to LINE_CHARS."""
    return [line[:LINE_CHARS] for line in tail.decode("utf-8", "replace").splitlines()[-LOG_LINES:]]


def boot_id() -> str:
    """Of the boot that goes on now; "" where it cannot be read."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as source:
            return source.read().strip()
    except OSError:
        return ""


def fitted(part: Dict[str, Any]) -> bytes:
    """`part` as JSON of at most MAX_BYTES. Takes it over."""
    trims: Iterable[Callable[[Dict[str, Any]], str]] = (_fewer_processes, _shorter_stacks)
    for trim in trims:
        if len(_encoded(part)) <= MAX_BYTES:
            break
        part["trimmed"].append(trim(part))
    if len(_encoded(part)) > MAX_BYTES:
        part["trimmed"].append("log_tail")
    while len(_encoded(part)) > MAX_BYTES and part["log_tail"]:
        part["log_tail"] = part["log_tail"][1 + len(part["log_tail"]) // 8 :]
    return _encoded(part)


def _fewer_processes(part: Dict[str, Any]) -> str:
    largest = sorted(part["processes"], key=lambda process: -(process.get("rss_bytes") or 0))
    part["processes"] = largest[:FEW_PROCESSES]
    return "processes"


def _shorter_stacks(part: Dict[str, Any]) -> str:
    dumps = (part["stall"] or {}).get("threads", [])
    dumps.sort(key=lambda dump: dump["how"] != "faulthandler")
    del dumps[FEW_PROCESSES:]
    for dump in dumps:
        dump["text"], dump["command"] = dump["text"][:DUMP_CHARS], dump["command"][:COMMAND_CHARS]
    return "threads"


def _encoded(part: Dict[str, Any]) -> bytes:
    return json.dumps(part, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
