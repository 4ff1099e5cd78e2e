"""The agent's part of the evidence: `instances/<n>.evidence.json`, written on a stall and at the end of every attempt.

It answers why an attempt ended, and holds what disappears with the machine. Nothing here may delay or fail the end:
what cannot be read is left out, and the wait for the store has a limit. Every text passes the masker. A part larger
than MAX_BYTES is cut in this order: the processes with the least memory, the stacks to their beginnings, the oldest
lines of the log; `trimmed` names what was cut.

A stall: no step and no checkpoint for `stall_dump_s` in phase training, or for `first_dump_s` before the first step, if
the job gives one because the run has reported steps before. The supervisor judges stalls later than that, so the dump
is in the store before it gives up the machine.

Stacks show where every thread of a stalled training stands. A Python process that has imported `spot_progress` writes
its own into `work/threads/<pid>.<signal>` when that signal comes (faulthandler). The signal is sent only to a process
that holds that very file open and still catches the signal: it would kill any other process. For all others /proc shows
the state, wait channel and system call of each thread, and the kernel's stack where we may read it.
"""

from __future__ import annotations

import json
import logging
import os
import re
import signal
import threading
import time
from contextlib import suppress
from typing import Any, Callable, Dict, Iterable, List, Optional, Tuple

from supervisor.agent.machine import vitals
from supervisor.agent.machine.command import Training
from supervisor.agent.machine.folder import Job, MachineFolder, names_in, read_fields, read_text, size_of
from supervisor.agent.machine.masking import Masker
from supervisor.agent.machine.processes import boot_id, command_of, process_rows
from supervisor.agent.store.access import GaveUp, Retrier
from supervisor.agent.watch import ends
from supervisor.agent.watch.beat_state import BeatState
from supervisor.agent.watch.ends import EndReasons
from supervisor.contract import runfiles
from supervisor.contract.heartbeat import TRAINING, Exit
from supervisor.contract.stores.promise import ObjectStore, StoreUnavailable

VERSION = 1
MAX_BYTES = 240_000  # the supervisor's part is put around it, up to 256 KB in all
LOG_LINES, LINE_CHARS = 200, 1000
FEW_PROCESSES, DUMP_CHARS, COMMAND_CHARS = 10, 3000, 300  # of processes and stacks in a part that was cut
STORE_S, CHECK_S = 5.0, 0.05  # how long the end waits for the store, if as much time is left
STALL_CHECK_S = 1.0
PROCESSES, THREADS, FILES = 32, 64, 200  # at most: processes, threads of each, source files that are read
REST_S, WAIT_S = 0.1, 2.0
SOURCE_BYTES = 2 << 20
_FRAME = re.compile(r'  File "(?P<path>.+)", line (?P<line>\d+) in ')
_LIBRARY = re.compile(r"/lib/python3|<frozen ")  # frames of libraries: the user's lines show which lock it is
_log = logging.getLogger("agent")


class Evidence:
    """One attempt's part. The main thread calls `observe_start` and `observe_end` around the command."""

    stored = False  # the part of the end is in the store
    _ended = False
    _oom_before: Optional[int] = None

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
        oom_kills: Callable[[], Optional[int]],
    ) -> None:
        self._job, self._folder = job, folder
        self._store, self._masker = store, masker
        self._beat_state, self._training, self._end_reasons = beat_state, training, end_reasons
        self._oom_kills = oom_kills
        self._processes: List[Dict[str, Any]] = []
        self._stall: Optional[Dict[str, Any]] = None
        self._lock = threading.Lock()  # a dump that is still being stored must not replace the part of the end

    def observe_start(self) -> None:
        """Immediately before the command starts."""
        self._oom_before = self._oom_kills()

    def observe_end(self) -> None:
        """Before the leftovers of the command are killed."""
        self._processes = self._tree()

    def oom_kills(self) -> Optional[int]:
        """How many processes the kernel has killed for memory since the start; None = cannot be counted here."""
        now = self._oom_kills()
        return None if now is None or self._oom_before is None else max(0, now - self._oom_before)

    def stalled(self, without_progress_s: float) -> None:
        """Take a dump of the threads and store it at once: the supervisor may give up the machine soon. Retries while
        the store is unavailable, as long as we may write."""
        processes = self._tree()
        dump = thread_dumps(self._folder.threads, (process["pid"] for process in processes))
        step = self._beat_state.now.step
        self._stall = {"step": step, "without_progress_s": round(without_progress_s, 1), "threads": dump}
        _log.warning("no progress for %.0f s: the threads of %d processes are kept", without_progress_s, len(dump))
        part = self._part("stall", None, None, processes)

        def put() -> None:
            with self._lock:
                if not self._ended:
                    self._put(part)

        with suppress(GaveUp):
            Retrier(self._end_reasons.uploads_over).call("keeping where the threads stand", put)

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
            "exit": None if end is None else dict(vars(end)),
            "left": left,
            "signals_sent": sorted(self._training.sent),
            "oom_kills": self.oom_kills(),
            "boot": {"at_start": beat.boot_id, "now": boot_id()},
            "disks": {role: dict(vars(disk)) for role, disk in vitals.disks_by_role(self._folder.roles()).items()},
            "telemetry": json.loads(beat.telemetry) if beat.telemetry else None,
            "stall": self._stall,
            "processes": processes,
            "log_tail": log_tail(ends.masked_tail(self._folder.output, self._masker)),
            "trimmed": [],
        }


class StallWatch:
    """A loop's step; `dump` gets the seconds without progress, once per stall."""

    def __init__(
        self, job: Job, beat_state: BeatState, dump: Callable[[float], None], monotonic: Callable[[], float]
    ) -> None:
        self._job, self._beat_state, self._dump, self._monotonic = job, beat_state, dump, monotonic
        self._progress: Tuple[Optional[int], Optional[int], str] = (None, None, "")
        self._since = monotonic()
        self._dumped = False

    def step(self) -> Optional[float]:
        """Seconds until the next check; None = never."""
        limits = [limit for limit in (self._job.stall_dump_s, self._job.first_dump_s) if limit is not None]
        if not limits:
            return None
        beat, now = self._beat_state.now, self._monotonic()
        progress = (beat.step, beat.checkpoint_step, beat.phase)
        if progress != self._progress:
            self._progress, self._since, self._dumped = progress, now, False
        limit_s = self._job.first_dump_s if beat.step is None else self._job.stall_dump_s
        is_due = limit_s is not None and beat.phase == TRAINING and now - self._since >= limit_s
        if is_due and not self._dumped:
            self._dumped = True
            self._dump(now - self._since)
        return min(STALL_CHECK_S, min(limits) / 4)


def log_tail(tail: bytes) -> List[str]:
    """The last LOG_LINES lines, each cut to LINE_CHARS."""
    return [line[:LINE_CHARS] for line in tail.decode("utf-8", "replace").splitlines()[-LOG_LINES:]]


def fitted(part: Dict[str, Any]) -> bytes:
    """`part` as JSON of at most MAX_BYTES. Changes `part`."""
    if len(_encoded(part)) > MAX_BYTES:
        part["trimmed"].append("processes")
        largest = sorted(part["processes"], key=lambda process: -(process.get("rss_bytes") or 0))
        part["processes"] = largest[:FEW_PROCESSES]
    if len(_encoded(part)) > MAX_BYTES:
        part["trimmed"].append("threads")
        dumps = (part["stall"] or {}).get("threads", [])
        dumps.sort(key=lambda dump: dump["how"] != "faulthandler")
        del dumps[FEW_PROCESSES:]
        for dump in dumps:
            dump["text"], dump["command"] = dump["text"][:DUMP_CHARS], dump["command"][:COMMAND_CHARS]
    if len(_encoded(part)) > MAX_BYTES:
        part["trimmed"].append("log_tail")
    while len(_encoded(part)) > MAX_BYTES and part["log_tail"]:
        part["log_tail"] = part["log_tail"][1 + len(part["log_tail"]) // 8 :]
    return _encoded(part)


def _encoded(part: Dict[str, Any]) -> bytes:
    return json.dumps(part, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


# --- stacks -------------------------------------------------------------------------------------------------------


def thread_dumps(folder: str, pids: Iterable[int]) -> List[Dict[str, Any]]:
    """One entry for each process: pid, command, how (faulthandler | proc), text. `folder`: of the files of registered
    processes. Takes at most WAIT_S for each process that does not respond."""
    dumps = []
    for pid in sorted(pids)[:PROCESSES]:
        text = _dump_by_signal(folder, pid)
        how = "faulthandler" if text else "proc"
        if not text:
            text = _dump_from_proc(pid)
        if text:
            dumps.append({"pid": pid, "command": command_of(pid), "how": how, "text": text})
    return dumps


def _dump_by_signal(folder: str, pid: int) -> str:
    """The stacks as the process itself writes them; "" when it did not register or does not respond."""
    for name in names_in(folder):
        owner, _, number = name.partition(".")
        if owner == str(pid) and number.isdigit():
            path = os.path.join(folder, name)
            before = size_of(path)
            if _send(pid, int(number), path):
                _await_rest(path, before)
                return _with_sources(read_text(path, before), pid)
    return ""


def _send(pid: int, number: int, path: str) -> bool:
    """True when the process got the signal. A pidfd is held during the check, so that the pid cannot be reused."""
    open_pidfd: Optional[Callable[[int], int]] = getattr(os, "pidfd_open", None)  # None: before Python 3.9
    try:
        pidfd = None if open_pidfd is None else open_pidfd(pid)
    except OSError:
        return False
    try:
        if not (_holds(pid, path) and _catches(pid, number)):
            return False
        if pidfd is None:
            os.kill(pid, number)
        else:
            getattr(signal, "pidfd_send_signal")(pidfd, number)  # noqa: B009 - unknown to Python 3.8
    except OSError:
        return False
    finally:
        if pidfd is not None:
            os.close(pidfd)
    return True


def _holds(pid: int, path: str) -> bool:
    """It has the file open: it is the program that registered, not another one after exec, nor a later process."""
    wanted = os.stat(path)
    folder = "/proc/%d/fd" % pid
    for name in names_in(folder):
        with suppress(OSError):
            status = os.stat(os.path.join(folder, name))
            if (status.st_dev, status.st_ino) == (wanted.st_dev, wanted.st_ino):
                return True
    return False


def _catches(pid: int, number: int) -> bool:
    return bool(int(read_fields("/proc/%d/status" % pid).get("SigCgt", "0"), 16) >> (number - 1) & 1)


def _await_rest(path: str, before: int) -> None:
    deadline, size, since = time.monotonic() + WAIT_S, before, time.monotonic()
    while time.monotonic() < deadline:
        now = size_of(path)
        if now != size:
            size, since = now, time.monotonic()
        if size > before and time.monotonic() - since >= REST_S:
            return
        time.sleep(0.02)


def _with_sources(text: str, pid: int) -> str:
    """The stacks with the source line below each frame of the user's own code."""
    files: Dict[str, List[str]] = {}
    lines = []
    for line in text.splitlines():
        lines.append(line)
        frame = _FRAME.match(line)
        if frame is None or _LIBRARY.search(frame.group("path")):
            continue
        path, number = frame.group("path"), int(frame.group("line"))
        if path not in files and len(files) < FILES:
            files[path] = read_text(os.path.join("/proc/%d/cwd" % pid, path), max_bytes=SOURCE_BYTES).splitlines()
        source_lines = files.get(path, [])
        if 0 < number <= len(source_lines):
            lines.append("    " + source_lines[number - 1].strip())
    return "\n".join(lines)


def _dump_from_proc(pid: int) -> str:
    lines = []
    for thread in sorted(int(name) for name in names_in("/proc/%d/task" % pid) if name.isdigit())[:THREADS]:
        folder = "/proc/%d/task/%d/" % (pid, thread)
        status = read_fields(folder + "status")
        if not status:
            continue  # it has ended
        words = [status.get("Name", ""), status.get("State", "")]
        words += [word + " " + read_text(folder + word).strip() for word in ("wchan", "syscall")]
        lines.append("thread %d: %s" % (thread, ", ".join(words)))
        lines += ["    " + line for line in read_text(folder + "stack").splitlines()]
    return "\n".join(lines)
