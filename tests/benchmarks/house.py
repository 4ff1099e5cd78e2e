"""Supervisors as processes, and what the kernel says of them: CPU time and memory."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.acceptance.daemon import Daemon
from tests.waiting import wait_for

PLAIN: Mapping[str, str] = {}  # every setting as it comes
# One token sends all requests of a bench: its rate is checked as ever, and never reached.
FLOODED = {"SPOT_RATE_PER_S": "100000", "SPOT_RATE_BURST": "1000000"}


class TimedDaemon(Daemon):
    sources = Path(__file__).parents[2]  # its own interpreter: a fork would have imported everything already
    ready_after_s = 0.0  # from the start of the process to the first 200 of /readyz

    def start(self) -> None:
        began = time.perf_counter()
        super().start()
        self.ready_after_s = time.perf_counter() - began


class CrowdedDaemon(Daemon):
    """Lists the machines of crowd.json too; ticks.log says when it ticked."""

    module = "tests.benchmarks.crowded"
    sources = Path(__file__).parents[2]  # its own interpreter, as above

    def ticks(self) -> list[tuple[float, float, float]]:
        """(began, ended, hold_ms) as crowded.py tells them."""
        lines = (self.data_dir / "ticks.log").read_text().splitlines()
        return [(float(began), float(ended), float(hold_ms)) for began, ended, hold_ms in map(str.split, lines)]

    def wait_ticks(self, more: int) -> None:
        """Until so many ticks have begun and ended from now on."""
        now = time.monotonic()
        wait_for(lambda: sum(began > now for began, _, _ in self.ticks()) >= more, 120, "ticks")


@contextmanager
def crowded(data_dir: Path, environ: Mapping[str, str]) -> Iterator[CrowdedDaemon]:
    one = CrowdedDaemon(data_dir, {**FLOODED, **environ})
    try:
        one.start()
        yield one
    finally:
        one.close()


@contextmanager
def plain(
    data_dir: Path, environ: Mapping[str, str] = PLAIN, started_with: tuple[str, ...] = ()
) -> Iterator[TimedDaemon]:
    """`started_with`: more options of `serve`."""
    one = TimedDaemon(data_dir, environ)
    one.started_with = started_with
    try:
        one.start()
        yield one
    finally:
        one.close()


def cpu_s(pid: int) -> float:
    """CPU time of all its threads so far, to the microsecond: the process's own clock, as clock_getcpuclockid names
    it (Linux)."""
    return time.clock_gettime(~pid << 3 | 2)


def tree_cpu_s(pid: int) -> float:
    """The same with that of its children that have ended, to a hundredth of a second."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return cpu_s(pid) + sum(map(int, fields[13:15])) / os.sysconf("SC_CLK_TCK")


def rss_kib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1024
