"""How long until it answers, how much memory it takes while idle, and how fast the command line greets."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from tests.benchmarks import house, scene
from tests.benchmarks.row import Bench, Figure, Row, Size

SPOT = Path(sys.executable).with_name("spot")
IDLE_AFTER_S = 5.0  # a few looks and deliveries have been made by then


def boot(size: Size) -> Mapping[str, Figure]:
    """From the start of the process to the first 200 of /readyz: a new data folder each time, and one of before."""
    new, again = [], []
    for _ in range(size.times):
        with scene.folder() as folder:
            for times in (new, again):
                with house.plain(folder / "data") as daemon:
                    times.append(daemon.ready_after_s)
    known = {"again_s": round(statistics.median(again), 3)}
    return {"boot_to_readyz_s": Figure(statistics.median(new), _wall(["-c", "pass"], size), note=known)}


def idle_memory(size: Size) -> Mapping[str, Figure]:
    with scene.folder() as folder, house.plain(folder / "data") as daemon:
        time.sleep(min(IDLE_AFTER_S, size.seconds))
        return {"idle_rss_mb": Figure(house.rss_kib(daemon.pid) * 1024 / 1e6)}


def spot_help(size: Size) -> Mapping[str, Figure]:
    median_s = _median([[str(SPOT), "--help"] for _ in range(4 * size.times)])
    return {"spot_help_ms": Figure(median_s * 1000, _wall(["-c", "pass"], size) * 1000)}


def provider_show(size: Size) -> Mapping[str, Figure]:
    """The command with the longest answer of a supervisor that has nothing to do: a profile with its sources."""
    with scene.folder() as folder, house.plain(folder / "data") as daemon:
        words = [str(SPOT), "provider", "show", "local", "--url", daemon.url, "--data-dir", str(folder / "data")]
        median_s = _median([words for _ in range(4 * size.times)])
    return {"provider_show_ms": Figure(median_s * 1000, _wall(["-c", "pass"], size) * 1000)}


def _wall(arguments: list[str], size: Size) -> float:
    return _median([[sys.executable, *arguments] for _ in range(2 * size.times)])


def _median(commands: list[list[str]]) -> float:
    """Of their wall times, one after the other."""
    times = []
    for command in commands:
        began = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        times.append(time.perf_counter() - began)
    return statistics.median(times)


BENCHES = (
    Bench(boot, (Row("boot_to_readyz_s", "s", target=1.0),)),
    Bench(idle_memory, (Row("idle_rss_mb", "MB", target=70.0),)),
    Bench(spot_help, (Row("spot_help_ms", "ms", target=150.0),)),
    Bench(provider_show, (Row("provider_show_ms", "ms", target=300.0),)),
)
