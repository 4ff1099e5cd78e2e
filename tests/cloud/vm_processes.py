"""Everything that runs in one sandboxed machine: found, and ended for good.

Each process of a machine carries VM_FOLDER in its environment. One that cleaned its environment is still a descendant:
the stub docker takes orphans in. All are stopped before the first is killed, so none is born unseen in between.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

MARKER = "VM_FOLDER"
POLL_S = 0.01


def alive(folder: Path) -> set[int]:
    """Pids of the machine in this folder; this process is never one of them."""
    needle = b"%s=%s" % (MARKER.encode(), os.fsencode(folder))
    children: dict[int, list[int]] = {}
    found: set[int] = set()
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            state, parent = read(f"/proc/{name}/stat").rpartition(b")")[2].split(None, 2)[:2]
            if state in b"ZX":
                continue
            variables = read(f"/proc/{name}/environ").split(b"\0")
        except OSError:
            continue  # gone, or of another user
        children.setdefault(int(parent), []).append(int(name))
        if needle in variables:
            found.add(int(name))
    todo = list(found)
    while todo:
        fresh = [pid for pid in children.get(todo.pop(), ()) if pid not in found]
        found.update(fresh)
        todo += fresh
    return found - {os.getpid()}


def naming(needle: bytes) -> list[int]:
    """Pids of processes with this text in their arguments or environment; never this process."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit() and int(name) != os.getpid():
            with suppress(OSError):  # gone, or of another user
                if needle in read(f"/proc/{name}/cmdline") + b"\0" + read(f"/proc/{name}/environ"):
                    found.append(int(name))
    return found


def read(path: str) -> bytes:
    """A file of /proc. Without pathlib and buffers: each search reads several hundred of them. OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        content = b""
        while piece := os.read(descriptor, 1 << 16):
            content += piece
        return content
    finally:
        os.close(descriptor)


def end(folder: Path, wait_s: float = 10.0) -> list[int]:
    """KILL all of them; those that are still there after `wait_s` are returned."""
    until = time.monotonic() + wait_s
    while left := freeze(folder):
        _signal(left, signal.SIGKILL)
        if time.monotonic() >= until:
            return sorted(left)
        time.sleep(POLL_S)
    return []


def freeze(folder: Path) -> set[int]:
    """STOP all of them, with those that they start meanwhile. Returns them."""
    stopped: set[int] = set()
    while fresh := (left := alive(folder)) - stopped:
        _signal(fresh, signal.SIGSTOP)
        stopped |= fresh
    return left


def _signal(pids: set[int], number: int) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)
