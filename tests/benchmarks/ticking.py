"""One tick over ten thousand running runs that have all moved, and how long it keeps others from writing.

The real tick, SQLite store and folder store; only the machines are invented (tick_house.py). Half of the runs are due
for their sample of the minute in each tick, and one in twenty for a look at its .stop marker, as in every house.
"""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.benchmarks import disk, scene
from tests.benchmarks.row import Bench, Figure, Row, Size

LONGEST_S = 600.0
HOLD_MS = 20.0


def ticking(size: Size) -> Mapping[str, Figure]:
    with scene.folder() as folder:
        scene.crowd(scene.settings_for(folder, **scene.FULL_UP), size.runs)
        stored = _ticks(folder, size.runs, size.times, "stored")
        bare = disk.sqlite_commits(folder, size.seconds / 5)
    with scene.folder() as folder:
        scene.crowd(scene.settings_for(folder, **scene.FULL_UP), size.runs)
        pushed = _ticks(folder, size.runs, size.times, "pushed")
    holds = [tick["hold_ms"] for found in (stored, pushed) for tick in found["ticks"]]
    beats = size.runs + 1  # and the canary
    allowed = math.ceil(size.runs / 500) + math.ceil(beats / 1000) + len(scene.ZONES) + 3
    return {
        "tick_stored_s": _median(stored),
        "tick_pushed_s": _median(pushed),
        "tick_lock_hold_ms": Figure(max(holds), bare.longest_ms, HOLD_MS + bare.longest_ms),
        "tick_requests": Figure(stored["requests"], target=allowed),
    }


def hundred_thousand(size: Size) -> Mapping[str, Figure]:
    """Ten times as many, whose beats are pushed: the tick, and what each run adds to the memory of the supervisor."""
    count = 10 * size.runs
    with scene.folder() as folder:
        scene.crowd(scene.settings_for(folder, **scene.FULL_UP), count)
        found = _ticks(folder, count, 3, "received")
    middle = {name: statistics.median(tick[name] for tick in found["ticks"]) for name in found["ticks"][0]}
    note = {"all_cpu_s": round(middle["all_cpu_s"], 2), "wall_s": round(middle["wall_s"], 2), "runs": count}
    return {
        "tick_100k_cpu_s": Figure(middle["cpu_s"], note=note),
        "rss_100k_kb": Figure(found["kib"] * 1.024 / count, note={"runs": count}),
    }


def finished(size: Size) -> Mapping[str, Figure]:
    """The tick over a tenth of the runs, alone and beside ten times as many that have ended."""
    few = size.runs // 10
    with scene.folder() as folder:
        settings = scene.settings_for(folder, **scene.FULL_UP)
        scene.crowd(settings, few)
        alone = _ticks(folder, few, 4 * size.times, "still")
        scene.finish(settings, size.runs)
        beside = _ticks(folder, few, 4 * size.times, "still")
    bare_s = _median(alone).value
    return {"tick_beside_finished_s": Figure(_median(beside).value, bare_s, 1.1 * bare_s + 0.002)}


def _median(found: Mapping[str, Any]) -> Figure:
    """Of the ticks after the first, which reads every row. `all_cpu_s`: with the samples, written beside the tick."""
    walls = [tick["wall_s"] for tick in found["ticks"]]
    cpu = {name: round(statistics.median(tick[name] for tick in found["ticks"]), 3) for name in ("cpu_s", "all_cpu_s")}
    note = {**cpu, "longest_s": round(max(walls), 3), "first_s": round(found["first"]["wall_s"], 3)}
    return Figure(statistics.median(walls), note=note)


def _ticks(folder: Path, count: int, times: int, how: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.benchmarks.tick_house", str(folder), str(count), str(times), how]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, timeout=LONGEST_S)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


BENCHES = (
    Bench(
        ticking,
        (
            Row("tick_stored_s", "s", target=0.7),
            Row("tick_pushed_s", "s", target=0.5),
            Row("tick_lock_hold_ms", "ms"),
            Row("tick_requests", "requests"),
        ),
    ),
    Bench(hundred_thousand, (Row("tick_100k_cpu_s", "s of CPU", target=5.0), Row("rss_100k_kb", "KB", target=6.0))),
    Bench(finished, (Row("tick_beside_finished_s", "s"),)),
)
