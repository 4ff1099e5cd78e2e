"""Where the threads of a training stand, of every process of it.

A Python process that has imported `spot_progress` writes its own stacks into `work/threads/<pid>.<signal>` when that
signal comes (faulthandler). The signal is sent only to a process that holds that very file open and still catches the
signal: it would kill any other process. For all others /proc shows the state, wait channel and system call of each
thread, and the kernel's stack where we may read it. Stacks say nothing of the kernel: `state` beside them is its view
of the main thread, and of threads that wait for a disk.
"""

from __future__ import annotations

import os
import re
import signal
import time
from contextlib import suppress
from typing import Any, Callable, Dict, Iterable, List, Optional

from supervisor.agent.machine.folder import names_in, read_fields, read_text, size_of
from supervisor.agent.machine.processes import command_of

PROCESSES, THREADS, FILES = 32, 64, 200  # at most: processes, threads of each, source files that are read
REST_S, WAIT_S = 0.1, 2.0
SOURCE_BYTES = 2 << 20
_FRAME = re.compile(r'  File "(?P<path>.+)", line (?P<line>\d+) in ')
_LIBRARY = re.compile(r"/lib/python3|<frozen ")  # frames of libraries: the user's lines show which lock it is


def thread_dumps(folder: str, pids: Iterable[int]) -> List[Dict[str, Any]]:
    """One entry for each process: pid, command, how (faulthandler | proc), text, state. `folder`: of the files of
    registered processes. Takes at most WAIT_S for each process that does not respond."""
    dumps = []
    for pid in sorted(pids)[:PROCESSES]:
        dump = {"pid": pid, "command": command_of(pid)}
        text = "" if _is_stopped(pid) else _dump_by_signal(folder, pid)
        if text:
            dumps.append({**dump, "how": "faulthandler", "text": text, "state": _states(pid)})
            continue
        text = _dump_from_proc(pid)
        if text:
            dumps.append({**dump, "how": "proc", "text": text})
    return dumps


def _is_stopped(pid: int) -> bool:
    """It would not respond before it goes on."""
    return read_fields("/proc/%d/status" % pid).get("State", "").startswith(("T", "t"))


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
    for thread in _threads(pid):
        folder = "/proc/%d/task/%d/" % (pid, thread)
        line = _state(thread, folder)
        if line:  # else it has ended
            lines.append(line)
            lines += ["    " + row for row in read_text(folder + "stack").splitlines()]
    return "\n".join(lines)


def _states(pid: int) -> str:
    lines = ((thread, _state(thread, "/proc/%d/task/%d/" % (pid, thread))) for thread in _threads(pid))
    return "\n".join(line for thread, line in lines if thread == pid or ", D (" in line)


def _threads(pid: int) -> List[int]:
    return sorted(int(name) for name in names_in("/proc/%d/task" % pid) if name.isdigit())[:THREADS]


def _state(thread: int, folder: str) -> str:
    status = read_fields(folder + "status")
    words = [status.get("Name", ""), status.get("State", "")]
    words += [word + " " + read_text(folder + word).strip() for word in ("wchan", "syscall")]
    return "thread %d: %s" % (thread, ", ".join(words)) if status else ""
