"""One tick over ten thousand runs on Google Cloud: what it asks Google for, and what it costs this computer.

The real tick, provider and store over HTTP; the cloud is a child process that counts (cloud_child.py). A request is
one page: of machines, of beats, of one zone's operations, or the canary that is written before the beats are read.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.benchmarks import scene
from tests.benchmarks.cloud_bed import FarCloud, far_cloud
from tests.benchmarks.row import Bench, Figure, Row, Size
from tests.benchmarks.tick_house import POLL_S

LONGEST_S = 300.0
STOP_ROUND_S = 600.0  # each active run's .stop marker is looked at once in this time


def ticking(size: Size) -> Mapping[str, Figure]:
    with scene.folder() as folder, far_cloud() as cloud:
        told = _ticks(folder, size, cloud)
    ticks = told["ticks"]
    most = max(ticks, key=_over)
    stops = max(tick["stops"] for tick in ticks)
    cpu = [tick["cpu_s"] for tick in ticks]
    note = {
        "least_s": round(min(cpu), 3),
        "wall_s": round(statistics.median(tick["wall_s"] for tick in ticks), 3),
        "first_s": round(told["first"]["cpu_s"], 3),
        "runs": size.runs,
    }
    return {
        "cloud_tick_requests": Figure(_asked(most), target=_allowed(most), note=_scale(most)),
        "cloud_stop_reads": Figure(stops, target=math.ceil(size.runs * POLL_S / STOP_ROUND_S)),
        "cloud_tick_cpu_s": Figure(statistics.median(cpu), note=note),
    }


def _asked(tick: Mapping[str, Any]) -> int:
    return int(tick["compute"] + tick["storage"])


def _allowed(tick: Mapping[str, Any]) -> int:
    return math.ceil(tick["machines"] / 500) + math.ceil(tick["beats"] / 1000) + int(tick["zones"]) + 3


def _over(tick: Mapping[str, Any]) -> int:
    return _asked(tick) - _allowed(tick)


def _scale(tick: Mapping[str, Any]) -> dict[str, Any]:
    return {name: tick[name] for name in ("machines", "beats", "zones", "compute", "storage")}


def _ticks(folder: Path, size: Size, cloud: FarCloud) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.benchmarks.cloud_tick_house", str(folder)]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SPOT_")}
    done = subprocess.run(
        [*command, str(size.runs), str(size.times), cloud.control],
        check=True,
        stdout=subprocess.PIPE,
        timeout=LONGEST_S,
        env={**environ, **cloud.environment},
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


BENCHES = (
    Bench(
        ticking,
        (
            Row("cloud_tick_requests", "requests"),
            Row("cloud_stop_reads", "requests"),
            Row("cloud_tick_cpu_s", "s of CPU", target=1.0),
        ),
    ),
)
