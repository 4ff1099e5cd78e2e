"""How soon a changed file of 10,000 is on the machine, and what `spot sync --watch` takes meanwhile.

A real supervisor with its usual paces, a real agent, a training that sleeps, a real command. A file is changed every
few seconds; its time counts from the change to its content in the machine's folder. The command's share of a core is
that of the whole time, with its looks at the folder and what git takes.
"""

from __future__ import annotations

import os
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.benchmarks import house, scene
from tests.benchmarks.row import Bench, Figure, Row, Size
from tests.waiting import wait_for

FILES = 10_000
SPOT = Path(sys.executable).with_name("spot")
LINE = "x = %d  # a line of a module, as long as such lines are\n"
POLL_S = 1.0  # of the agent while a person syncs


def sync(size: Size) -> Mapping[str, Figure]:
    with scene.folder() as folder, house.plain(folder / "data") as daemon:
        mine = folder / "mine"
        _fill(mine, FILES if size.idle_s >= 10 else FILES // 10)
        here = ("--url", daemon.url, "--data-dir", str(folder / "data"))
        words = ["submit", "--run-id", "synced-1", "--code", str(mine), *here, "--", "sleep", "100000"]
        subprocess.run([str(SPOT), *words], check=True, capture_output=True)
        with _watching(mine, here, folder) as (pid, log):
            there = _there(folder, "package-7/module-7.py")
            wait_for(lambda: "watching" in log.read_text(), 60, "the command to watch")
            time.sleep(5.0)  # its first look at everything is the start, not what it takes
            begun, before_s = time.monotonic(), house.tree_cpu_s(pid)
            delays = []
            for number in range(2 + int(size.idle_s / 5)):
                (mine / "package-7/module-7.py").write_text(LINE % -number)
                changed_at = time.monotonic()
                while there.read_text() != LINE % -number:
                    if time.monotonic() - changed_at > 60:
                        raise AssertionError("the change did not arrive: " + log.read_text()[-500:])
                    time.sleep(0.01)
                delays.append(time.monotonic() - changed_at)
                time.sleep(5.0)
            share = (house.tree_cpu_s(pid) - before_s) / (time.monotonic() - begun)
    note = {"files": FILES, "changes": len(delays), "median_s": round(statistics.median(delays), 2)}
    return {"sync_delay_s": Figure(max(delays), note=note), "sync_watch_cpu_pct": Figure(share * 100, note=note)}


def _fill(folder: Path, files: int) -> None:
    for number in range(files):
        place = folder / f"package-{number % 100}"
        place.mkdir(parents=True, exist_ok=True)
        (place / f"module-{number}.py").write_text(LINE % number * 20)
    (folder / ".gitignore").write_text("*.pyc\nbuild/\n/data/\n")


def _there(folder: Path, name: str) -> Path:
    """The file on the machine, once it is there."""
    return wait_for(lambda: next(iter((folder / "data").glob(f"machines/*/work/code/{name}")), None), 60, "the code")


@contextmanager
def _watching(mine: Path, here: tuple[str, ...], folder: Path) -> Iterator[tuple[int, Path]]:
    """(process id, log) of the command."""
    log = folder / "sync.log"
    with log.open("wb") as target:
        process = subprocess.Popen(
            [str(SPOT), "sync", "synced-1", str(mine), "--watch", *here], stdout=target, stderr=target,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )  # fmt: skip
        try:
            yield process.pid, log
        finally:
            process.send_signal(signal.SIGINT)
            process.wait()


BENCHES = (
    Bench(sync, (Row("sync_delay_s", "s", target=2.0 + POLL_S), Row("sync_watch_cpu_pct", "% of a core", target=2.0))),
)
