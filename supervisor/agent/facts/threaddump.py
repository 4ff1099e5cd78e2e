"""Where every thread of the command stands, for a training that moves no more.

A Python process that has imported `spot_progress` writes its own stacks into `work/threads/<pid>.<signal>` when that
signal comes (faulthandler). It is sent only to a process that holds that very file open and still catches the signal:
to any other it would be death. Of all others /proc tells what it can: state, wait channel and system call of each
thread, and the kernel's stack where we may read it.
"""

from __future__ import annotations

import os
import re
import signal
import time
from contextlib import suppress
from typing import Any, Callable, Dict, Iterable, List, Optional

from supervisor.agent.machine.plainfile import open_plain

PROCESSES, THREADS, FILES = 32, 64, 200  # told at most: processes, threads of each, source files looked into
REST_S, WAIT_S = 0.1, 2.0
TEXT_BYTES = 65536  # of one process
SOURCE_BYTES = 2 << 20
_FRAME = re.compile(r'  File "(?P<path>.+)", line (?P<line>\d+) in ')
_LIBRARY = re.compile(r"/lib/python3|<frozen ")  # frames of others: the user's lines tell which lock it is


def take(folder: str, pids: Iterable[int]) -> List[Dict[str, Any]]:
    """One entry for each process: pid, command, how (faulthandler | proc), text. `folder`: where files of registered
    processes lie. Takes WAIT_S at most for each process that does not answer."""
    found = []
    for pid in sorted(pids)[:PROCESSES]:
        text = _ask(folder, pid)
        how = "faulthandler" if text else "proc"
        if not text:
            text = _from_proc(pid)
        if text:
            found.append({"pid": pid, "command": command_of(pid), "how": how, "text": text})
    return found


def command_of(pid: int) -> str:
    """Its command line; "" when it is gone or not ours to read."""
    return _read("/proc/%d/cmdline" % pid).replace("\0", " ").strip()


def _ask(folder: str, pid: int) -> str:
    """The stacks as the process itself writes them; "" when it did not register or does not answer."""
    for name in _names(folder):
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
    for name in _names("/proc/%d/fd" % pid):
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
        found = files.get(path, [])
        if 0 < number <= len(found):
            lines.append("    " + found[number - 1].strip())
    return "\n".join(lines)


def _source(path: str, pid: int) -> List[str]:
    if not os.path.isabs(path):
        path = os.path.join("/proc/%d/cwd" % pid, path)
    return _read(path, limit=SOURCE_BYTES).splitlines() if os.path.isfile(path) else []


def _from_proc(pid: int) -> str:
    lines = []
    for thread in sorted(int(name) for name in _names("/proc/%d/task" % pid) if name.isdigit())[:THREADS]:
        folder = "/proc/%d/task/%d/" % (pid, thread)
        status = dict(line.partition(":")[::2] for line in _read(folder + "status").splitlines())
        if not status:
            continue  # it has ended
        told = [status.get("Name", "").strip(), status.get("State", "").strip()]
        told += [word + " " + _read(folder + word).strip() for word in ("wchan", "syscall")]
        lines.append("thread %d: %s" % (thread, ", ".join(told)))
        lines += ["    " + line for line in _read(folder + "stack").splitlines()]
    return "\n".join(lines)


def _names(folder: str) -> List[str]:
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
