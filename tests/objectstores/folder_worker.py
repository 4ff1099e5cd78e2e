"""A process that works on a folder store, started by the tests: `python -m tests.objectstores.folder_worker NAME ROOT`.

It prints one JSON value on its standard output. Each job is a function below; those that fork do so here, in a process
without threads.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from supervisor.objectstores.filesystem import FilesystemStore
from supervisor.ports.objectstore import ABSENT, PreconditionFailed, StoreFull

KEY = "runs/a/baton.json"
SYSTEM_CALLS = ("open", "write", "utime", "fsync", "rename", "unlink", "mkdir", "rmdir", "fstat", "stat", "close")


def _wait_for_go() -> None:
    """All processes are there before one begins: else a slow start would keep them from meeting."""
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()


def content(n: int, size: int = 200_000) -> bytes:
    return b"%08d" % n * (size // 8)


def create(root: Path) -> bool:
    """Wait for the start signal, then create the one object: whether this process won."""
    store = FilesystemStore(root)
    _wait_for_go()
    try:
        store.put(KEY, str(os.getpid()).encode(), if_generation=ABSENT)
    except PreconditionFailed:
        return False
    return True


def count(root: Path) -> int:
    """Add 1 to the number in the object, 100 times, by compare-and-set; returns how often another was faster."""
    store, refused = FilesystemStore(root), 0
    _wait_for_go()
    for _ in range(100):
        while True:
            data, info = store.get("counter")
            try:
                store.put("counter", str(int(data) + 1).encode(), info.generation, {"by": str(os.getpid())})
                break
            except PreconditionFailed:
                refused += 1
    return refused


def rewrite(root: Path) -> None:
    """Rewrite one object for ever, each time with a new number in content and metadata."""
    store = FilesystemStore(root)
    first = int(store.get(KEY)[0][:8])
    for n in itertools.count(first + 1):
        store.put(KEY, content(n), metadata={"n": str(n)})


def die_at_each_step(root: Path) -> list[dict[str, Any]]:
    """Put, in a child that is killed before its k-th system call, for k = 1, 2, ... until a put outlives that."""
    store, outcomes = FilesystemStore(root), []
    for k in itertools.count(1):
        store.put(KEY, content(2 * k), metadata={"n": str(2 * k)})
        child = os.fork()
        if child == 0:
            _arm(k)
            store.put(KEY, content(2 * k + 1), metadata={"n": str(2 * k + 1)})
            os._exit(0)
        _, ended = os.waitpid(child, 0)
        data, info = FilesystemStore(root).get(KEY)
        found = int(data[:8]) - 2 * k
        whole = data == content(2 * k + found) and dict(info.metadata) == {"n": str(2 * k + found)}
        outcomes.append({"k": k, "killed": ended == signal.SIGKILL, "found": found, "whole": whole})
        if ended == 0:
            return outcomes
    raise AssertionError("unreachable")


def _arm(k: int) -> None:
    calls = itertools.count(1)

    def armed(real: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            if next(calls) == k:
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*args, **kwargs)

        return call

    for name in SYSTEM_CALLS:
        setattr(os, name, armed(getattr(os, name)))


def fill(root: Path, options: str) -> dict[str, Any]:
    """On a small tmpfs of its own (run by `unshare -Urm`): what a full disk does to a store."""
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "small", str(root)], check=True)
    store = FilesystemStore.create(root / "objects")
    old = store.put(KEY, content(1), metadata={"n": "1"})
    filled = 0
    try:
        for filled in range(1000):
            store.put(f"fill/{filled}", b"x" * 20_000)
    except StoreFull as error:
        message = str(error)
    refused = 0
    for bigger in (10**6, 10**7):
        try:
            store.put(KEY, b"x" * bigger, old.generation, {"n": "2"})
        except StoreFull:
            refused += 1
    found = {
        "filled": filled,
        "message": message,
        "refused": refused,
        "old_is_whole": store.get(KEY) == (content(1), old),
        "left_in_tmp": os.listdir(root / "objects" / ".tmp"),
        "listed": sum(len(page.objects) for page in store.pages("fill/")),
    }
    for n in range(filled):
        store.delete(f"fill/{n}")
    found["after_deleting"] = store.put(KEY, content(3), old.generation).size == len(content(3))
    return found


JOBS = {job.__name__: job for job in (create, count, rewrite, die_at_each_step, fill)}

if __name__ == "__main__":
    print(json.dumps(JOBS[sys.argv[1]](Path(sys.argv[2]), *sys.argv[3:])))  # noqa: T201 the result for the test
