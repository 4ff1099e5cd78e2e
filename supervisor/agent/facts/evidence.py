"""The agent's part of the evidence: `instances/<n>.evidence.json`, written on a stall and at the end of every life.

What a person needs who asks why an attempt ended, and what is gone with the machine. Nothing in here may hold up or
fail the end of a life: what cannot be read is left out, a store that does not answer is waited for only so long. Every
text passes the masker. Larger than MAX_BYTES, the part is trimmed in this order: the processes with the least memory,
the stacks to their beginnings, the oldest lines of the log; `trimmed` names what was.

Stacks show where every thread stands in a training that moves no more. A Python process that has imported
`spot_progress` writes its own into `work/threads/<pid>.<signal>` when that signal comes (faulthandler). It is sent only
to a process that holds that very file open and still catches the signal: to any other it would be death. For all others
/proc shows the state, wait channel and system call of each thread, and the kernel's stack where we may read it.
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
from typing import Any, Callable, Dict, Iterable, List, Optional

from supervisor.agent.machine import vitals
from supervisor.agent.machine.command import Training
from supervisor.agent.machine.folder import Job, MachineFolder, open_plain
from supervisor.agent.machine.masking import Masker
from supervisor.agent.machine.processes import command_of, process_rows
from supervisor.agent.store.reach import GaveUp, Patience
from supervisor.agent.watch import ends
from supervisor.agent.watch.ends import Attention
from supervisor.agent.watch.situation import Situation
from supervisor.contract import runfiles
from supervisor.contract.heartbeat import Exit
from supervisor.contract.stores.promise import ObjectStore, StoreUnavailable

PROCESSES, THREADS, FILES = 32, 64, 200  # told at most: processes, threads of each, source files looked into
REST_S, WAIT_S = 0.1, 2.0
TEXT_BYTES = 65536  # of one process
SOURCE_BYTES = 2 << 20
_FRAME = re.compile(r'  File "(?P<path>.+)", line (?P<line>\d+) in ')
_LIBRARY = re.compile(r"/lib/python3|<frozen ")  # frames of others: the user's lines tell which lock it is
VERSION = 1
MAX_BYTES = 240_000  # the supervisor's part goes around it, up to 256 KB in all
LOG_LINES, LINE_CHARS = 200, 1000
# What is left of processes and stacks where room is short.
FEW_PROCESSES, DUMP_CHARS, COMMAND_CHARS = 10, 3000, 300
STORE_S, LOOK_S = 5.0, 0.05  # so long the end of a life waits for the store, if that much is left
_log = logging.getLogger("agent")


def thread_dumps(folder: str, pids: Iterable[int]) -> List[Dict[str, Any]]:
    """One entry for each process: pid, command, how (faulthandler | proc), text. `folder`: where files of registered
    processes lie. Takes WAIT_S at most for each process that does not answer."""
    dumps = []
    for pid in sorted(pids)[:PROCESSES]:
        text = _ask(folder, pid)
        how = "faulthandler" if text else "proc"
        if not text:
            text = _from_proc(pid)
        if text:
            dumps.append({"pid": pid, "command": command_of(pid), "how": how, "text": text})
    return dumps


def _ask(folder: str, pid: int) -> str:
    """The stacks as the process itself writes them; "" when it did not register or does not answer."""
    for name in _names_in(folder):
        owner, _, number = name.partition(".")
        if owner == str(pid) and number.isdigit():
            path = os.path.join(folder, name)
            before = _size(path)
            if _send(pid, int(number), path):
                _await_rest(path, before)
                return _with_sources(_read(path, before), pid)
    return ""


def _send(pid: int, number: int, path: str) -> bool:
    """True when the process got the signal. Checked while it is held: its pid cannot become another's meanwhile."""
    open_pidfd: Optional[Callable[[int], int]] = getattr(os, "pidfd_open", None)  # None: before Python 3.9
    try:
        held = None if open_pidfd is None else open_pidfd(pid)
    except OSError:
        return False
    try:
        if not (_holds(pid, path) and _catches(pid, number)):
            return False
        if held is None:
            os.kill(pid, number)
        else:
            getattr(signal, "pidfd_send_signal")(held, number)  # noqa: B009 - unknown to Python 3.8
    except OSError:
        return False
    finally:
        if held is not None:
            os.close(held)
    return True


def _holds(pid: int, path: str) -> bool:
    """It has the file open: it is the program that registered, not what it became by exec, nor a later pid."""
    wanted = os.stat(path)
    for name in _names_in("/proc/%d/fd" % pid):
        with suppress(OSError):
            seen = os.stat("/proc/%d/fd/%s" % (pid, name))
            if (seen.st_dev, seen.st_ino) == (wanted.st_dev, wanted.st_ino):
                return True
    return False


def _catches(pid: int, number: int) -> bool:
    for line in _read("/proc/%d/status" % pid).splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def _await_rest(path: str, before: int) -> None:
    deadline, size, since = time.monotonic() + WAIT_S, before, time.monotonic()
    while time.monotonic() < deadline:
        now = _size(path)
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
            files[path] = _source(path, pid)
        source_lines = files.get(path, [])
        if 0 < number <= len(source_lines):
            lines.append("    " + source_lines[number - 1].strip())
    return "\n".join(lines)


def _source(path: str, pid: int) -> List[str]:
    if not os.path.isabs(path):
        path = os.path.join("/proc/%d/cwd" % pid, path)
    return _read(path, limit=SOURCE_BYTES).splitlines() if os.path.isfile(path) else []


def _from_proc(pid: int) -> str:
    lines = []
    for thread in sorted(int(name) for name in _names_in("/proc/%d/task" % pid) if name.isdigit())[:THREADS]:
        folder = "/proc/%d/task/%d/" % (pid, thread)
        status = dict(line.partition(":")[::2] for line in _read(folder + "status").splitlines())
        if not status:
            continue  # it has ended
        words = [status.get("Name", "").strip(), status.get("State", "").strip()]
        words += [word + " " + _read(folder + word).strip() for word in ("wchan", "syscall")]
        lines.append("thread %d: %s" % (thread, ", ".join(words)))
        lines += ["    " + line for line in _read(folder + "stack").splitlines()]
    return "\n".join(lines)


def _names_in(folder: str) -> List[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return 0


def _read(path: str, offset: int = 0, limit: int = TEXT_BYTES) -> str:
    """ "" for what is gone or may not be read."""
    try:
        source = open_plain(path)
        if source is None:
            return ""
        with source:
            if offset:
                source.seek(offset)
            return source.read(limit).decode("utf-8", "replace")
    except OSError:
        return ""


class Evidence:
    """One attempt's part. `observe_start` and `observe_end` are called around the command, by the main thread."""

    kept = False  # the part of the end is in the store
    _ended = False
    _oom_before: Optional[int] = None

    def __init__(
        self,
        job: Job,
        folder: MachineFolder,
        store: ObjectStore,
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
        self._processes: List[Dict[str, Any]] = []
        self._stall: Optional[Dict[str, Any]] = None
        self._lock = threading.Lock()  # a dump that is still being stored must not come after the end

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
        dump = thread_dumps(self._folder.threads, (process["pid"] for process in processes))
        step = self._situation.now.step
        self._stall = {"step": step, "without_progress_s": round(without_progress_s, 1), "threads": dump}
        _log.warning("no progress for %.0f s: the threads of %d processes are kept", without_progress_s, len(dump))
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
        return process_rows(self._training.pid, self._folder.marker, self._masker.text)

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
            "disks": {role: dict(vars(disk)) for role, disk in vitals.disks_by_role(self._folder.roles()).items()},
            "telemetry": telemetry,
            "stall": self._stall,
            "processes": processes,
            "log_tail": log_tail(ends.masked_tail(self._folder.output, self._masker)),
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
