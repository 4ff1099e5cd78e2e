"""The agent's part of the evidence: `instances/<n>.evidence.json`, written on a stall and at the end of every attempt.

It answers why an attempt ended, and holds what disappears with the machine. Nothing here may delay or fail the end:
what cannot be read is left out, and the wait for the store has a limit. Every text passes the masker. A part larger
than MAX_BYTES is cut in this order: threads in the process tree, the processes with the least memory, the stacks to
their beginnings (without the first of two dumps), the lines around hits of the log, the oldest lines of the log;
`trimmed` names what was cut.

What is kept of a stall comes from the watch over hangs (watch/hang.py). The supervisor judges stalls later than it, so
the dump is in the store before it gives up the machine.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from contextlib import suppress
from typing import Any, Callable, Dict, List, Optional, Tuple

from supervisor.agent.facts.dumps import thread_dumps
from supervisor.agent.facts.looks import Surroundings
from supervisor.agent.machine import vitals
from supervisor.agent.machine.command import Training
from supervisor.agent.machine.folder import MachineFolder
from supervisor.agent.machine.job import Job
from supervisor.agent.machine.masking import Masker
from supervisor.agent.machine.processes import boot_id, process_rows
from supervisor.agent.store.access import GaveUp, Retrier
from supervisor.agent.watch import ends
from supervisor.agent.watch.beat_state import BeatState
from supervisor.agent.watch.ends import EndReasons
from supervisor.contract import runfiles
from supervisor.contract.beat_telemetry import figure
from supervisor.contract.heartbeat import Exit
from supervisor.contract.stores.promise import ObjectMissing, ObjectStore, StoreUnavailable

VERSION = 2  # 1 had no oom, xids, cards_before, start, tree, files, signs and hits of the log
MAX_BYTES = 240_000  # the supervisor's part is put around it, up to 256 KB in all
LOG_LINES, LINE_CHARS = 200, 1000
FEW_PROCESSES, DUMP_CHARS, COMMAND_CHARS = 10, 3000, 300  # of processes and stacks in a part that was cut
STORE_S, CHECK_S = 5.0, 0.05  # how long the end, or the watch, waits for the store
_log = logging.getLogger("agent")


class Evidence:
    """One attempt's part. The main thread calls `observe_start` and `observe_end` around the command."""

    stored = False  # the part of the end is in the store
    words: Callable[[], Dict[str, Any]] = staticmethod(dict)  # of the watch over the log
    usual_s: Callable[[], Optional[float]] = staticmethod(lambda: None)  # of the watch over hangs: a usual step
    windows: Callable[[], Dict[str, Any]] = staticmethod(dict)  # of the watch over slow runs
    repair: Optional[Dict[str, Any]] = None  # after a full disk
    _ended = False

    def __init__(
        self,
        job: Job,
        folder: MachineFolder,
        *,
        store: ObjectStore,
        masker: Masker,
        beat_state: BeatState,
        training: Training,
        end_reasons: EndReasons,
        surroundings: Surroundings,
    ) -> None:
        self._job, self._folder = job, folder
        self._store, self._masker = store, masker
        self._beat_state, self._training, self._end_reasons = beat_state, training, end_reasons
        self._surroundings = surroundings
        self._processes: List[Dict[str, Any]] = []
        self._stall: Optional[Dict[str, Any]] = None
        self._lock = threading.Lock()  # a dump that is still being stored must not replace the part of the end

    def observe_end(self, failed: bool) -> None:
        """Before the leftovers of the command are killed. `failed`: it ended by itself, with an error."""
        self._processes = self._tree()
        self._surroundings.at_end(failed)

    def dumps(self) -> List[Dict[str, Any]]:
        """Where the threads of every process of the command stand."""
        return thread_dumps(self._folder.threads, (process["pid"] for process in self._tree()))

    def usual_before_s(self) -> Optional[float]:
        """How long a step of the attempt before usually took, as its agent kept it; None where that is not known."""
        key = runfiles.agent_evidence(self._job.run_id, self._job.attempt - 1)
        try:
            return figure(json.loads(self._store.get(key)[0])["rhythm"]["usual_s"])
        except (StoreUnavailable, ObjectMissing, ValueError, KeyError, TypeError):
            return None

    def stalled(self, stall: Dict[str, Any]) -> None:
        """Store what the watch over hangs has seen at once: the supervisor may give up the machine soon. While the
        store is unavailable a thread retries, as long as we may write: the watch must see what moves again."""
        self._surroundings.at_stall()
        self._stall = stall
        without_s, dumps = stall["without_progress_s"], len(stall["threads"])
        _log.warning("no progress for %.0f s: the threads of %d processes are kept", without_s, dumps)
        part = self._part("stall", None, None, self._tree())

        def put() -> None:
            with self._lock:
                if not self._ended and self._stall is stall:
                    self._put(part)

        def keep() -> None:
            with suppress(GaveUp):
                Retrier(self._end_reasons.uploads_over).call("keeping where the threads stand", put)

        keeper = threading.Thread(target=keep, name="stall evidence", daemon=True)
        keeper.start()
        keeper.join(STORE_S)

    def try_to_store(self, end: Optional[Exit], left: Optional[str]) -> None:
        """Store the part of the end, as far as the remaining time allows; `stored` shows whether that was enough.

        A notice or a stop that comes meanwhile ends the wait: more important actions need the time. Main thread only.
        """
        before, until = self._end_reasons.ending, time.monotonic() + STORE_S
        if self._end_reasons.uploads_over():
            return
        worker = threading.Thread(target=self._store_quietly, args=(end, left), name="evidence", daemon=True)
        worker.start()
        while worker.is_alive() and time.monotonic() < until and not self._end_reasons.uploads_over():
            if self._end_reasons.check() is not before:
                return
            worker.join(CHECK_S)

    def store_end(self, end: Optional[Exit], left: Optional[str]) -> None:
        """Store the part of the end. StoreUnavailable."""
        part = self._part("end", end, left, self._processes)
        with self._lock:
            self._ended = True
            self._put(part)
        self.stored = True

    def _store_quietly(self, end: Optional[Exit], left: Optional[str]) -> None:
        try:
            self.store_end(end, left)
        except StoreUnavailable as error:
            _log.warning("the evidence is not stored yet: %s", error)
        except Exception:  # noqa: BLE001 - after any error the last beat must still be sent
            _log.exception("the evidence could not be kept")

    def _put(self, part: Dict[str, Any]) -> None:
        key = runfiles.agent_evidence(self._job.run_id, self._job.attempt)
        self._store.put(key, fitted(self._masker.json(part, keys=False)))

    def _tree(self) -> List[Dict[str, Any]]:
        return process_rows(self._training.pid, self._folder.marker, self._masker.text)

    def _part(
        self, when: str, end: Optional[Exit], left: Optional[str], processes: List[Dict[str, Any]]
    ) -> Dict[str, Any]:
        beat, job = self._beat_state.now, self._job
        return {
            "version": VERSION,
            "when": when,
            "written_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "run_id": job.run_id,
            "attempt": job.attempt,
            "launch_id": job.launch_id,
            "machine_id": beat.machine_id,
            "exit": None if end is None else end._asdict(),
            "left": left,
            "signals_sent": sorted(self._training.sent),
            "oom_kills": self._surroundings.oom.kills(),
            **self._surroundings.part(wait=self._end_reasons.ending is None),
            "boot": {"at_start": beat.boot_id, "now": boot_id()},
            "disks": {role: disk._asdict() for role, disk in vitals.disks_by_role(self._folder.roles()).items()},
            "telemetry": json.loads(beat.telemetry) if beat.telemetry else None,
            "repair": self.repair,
            "stall": self._stall,
            "rhythm": {"usual_s": self.usual_s()},
            "windows": self.windows(),
            "processes": processes,
            "signs": json.loads(beat.signs) if beat.signs else None,
            **self.words(),
            "log_tail": log_tail(ends.masked_tail(self._folder.output, self._masker)),
            "trimmed": [],
        }


def log_tail(tail: bytes) -> List[str]:
    """The last LOG_LINES lines, each cut to LINE_CHARS."""
    return [line[:LINE_CHARS] for line in tail.decode("utf-8", "replace").splitlines()[-LOG_LINES:]]


def fitted(part: Dict[str, Any]) -> bytes:
    """`part` as JSON of at most MAX_BYTES. Changes `part`."""
    for name, cut in _CUTS:
        size = len(_encoded(part))
        if size > MAX_BYTES:
            cut(part)
            part["trimmed"] += [name] if len(_encoded(part)) < size else []
    return _encoded(part)


def _cut_tree(part: Dict[str, Any]) -> None:
    part["tree"] = [{**row, "threads": []} for row in part.get("tree") or []][:FEW_PROCESSES]


def _cut_processes(part: Dict[str, Any]) -> None:
    largest = sorted(part["processes"], key=lambda process: -(process.get("rss_bytes") or 0))
    part["processes"] = largest[:FEW_PROCESSES]


def _cut_threads(part: Dict[str, Any]) -> None:
    stall = part["stall"] or {}
    stall.pop("threads_before", None)
    dumps = stall.get("threads", [])
    dumps.sort(key=lambda dump: dump["how"] != "faulthandler")
    del dumps[FEW_PROCESSES:]
    for dump in dumps:
        dump["text"], dump["command"] = dump["text"][:DUMP_CHARS], dump["command"][:COMMAND_CHARS]


def _cut_hits(part: Dict[str, Any]) -> None:
    for row in part.get("log_hits") or []:
        for place in (row["first"], row["last"]):
            place.update(before=[], after=[], line=place["line"][:COMMAND_CHARS])


def _cut_log(part: Dict[str, Any]) -> None:
    while len(_encoded(part)) > MAX_BYTES and part["log_tail"]:
        part["log_tail"] = part["log_tail"][1 + len(part["log_tail"]) // 8 :]


# In this order, each only if the part is still too large.
_CUTS: Tuple[Tuple[str, Callable[[Dict[str, Any]], None]], ...] = (
    ("tree", _cut_tree), ("processes", _cut_processes), ("threads", _cut_threads), ("log_hits", _cut_hits),
    ("log_tail", _cut_log),
)  # fmt: skip


def _encoded(part: Dict[str, Any]) -> bytes:
    return json.dumps(part, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
