"""Agents' stored beats, written by a process of its own: 10,000 agents would write them from elsewhere.

    python -m tests.benchmarks.beat_writer OBJECTS_DIR FIRST COUNT

Each line `N` on standard input writes beat number N of all runs and answers `done`; `N S` spreads them over S seconds.
The folder store writes them as always, but nothing waits for the disk: the agents' disks are not measured here.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from supervisor.contract import heartbeat, runfiles
from supervisor.contract.stores.folder import FolderStore
from tests.benchmarks import scene


def write_round(store: FolderStore, names: list[str], number: int, over_s: float) -> None:
    began = time.monotonic()
    for done, name in enumerate(names):
        raw = heartbeat.encode(scene.beat(name, number))
        store.put(runfiles.beat(name), raw, metadata={"beat": raw.decode()})
        ahead_s = over_s * done / len(names) - (time.monotonic() - began)
        if ahead_s > 0.01:
            time.sleep(ahead_s)


class Writer:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def write(self, number: int) -> None:
        self.begin(number, 0.0)
        self.wait()

    def begin(self, number: int, over_s: float) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{number} {over_s}\n")
        self._process.stdin.flush()

    def wait(self) -> None:
        assert self._process.stdout is not None
        answer = self._process.stdout.readline()
        assert answer == "done\n", f"the writer of beats answered {answer!r}"


@contextmanager
def writer(objects: Path, count: int) -> Iterator[Writer]:
    command = [sys.executable, "-m", "tests.benchmarks.beat_writer", str(objects), str(count)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Writer(process)
        finally:
            process.kill()


def _serve(objects: str, count: str) -> None:
    os.fsync = lambda _descriptor: None
    store = FolderStore(objects)
    names = scene.names(int(count))
    for line in sys.stdin:
        number, over_s = line.split()
        write_round(store, names, int(number), float(over_s))
        print("done", flush=True)


if __name__ == "__main__":
    _serve(*sys.argv[1:])
