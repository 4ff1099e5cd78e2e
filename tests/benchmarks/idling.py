"""What runs cost to which nothing happens: CPU for five hundred that wait for capacity, memory for those that train."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from supervisor.domain.status import Status
from tests.benchmarks import beat_writer, house, scene
from tests.benchmarks.row import Bench, Figure, Row, Size

WAITING = 500
SETTLED_S = 3.0


def waiting(size: Size) -> Mapping[str, Figure]:
    """Two supervisors side by side, one of them with five hundred runs whose zones are cooling."""
    with scene.folder() as empty, scene.folder() as full:
        _wait_for_capacity(full)
        with house.plain(empty) as idle, house.plain(full, scene.FULL_UP) as busy:
            time.sleep(SETTLED_S)
            before = [house.cpu_s(one.pid) for one in (idle, busy)]
            began = time.monotonic()
            time.sleep(2 * size.idle_s)
            share = [
                (house.cpu_s(one.pid) - cpu) / (time.monotonic() - began) * 100
                for one, cpu in zip((idle, busy), before, strict=True)
            ]
            counts = busy.call("GET", "/v1/runs?page_size=1")["summary"]["counts"]
            assert counts == {"waiting": WAITING}, f"the runs did not stay as they were: {counts}"
    return {"waiting_500_cpu_percent": Figure(share[1] - share[0], share[0])}


def _wait_for_capacity(folder: Path) -> None:
    now, settings = time.time(), scene.settings_for(folder, **scene.FULL_UP)
    with scene.opened(settings) as store:
        cell = scene.cell_of(settings)
        runs = [
            scene.pending(
                f"run-{n:03d}", cell, now, status=Status.WAITING, waiting_since=now, next_at=now + 900,
                cause="no_capacity", detail="no machine",
            )
            for n in range(WAITING)
        ]  # fmt: skip
        scene.insert(store, runs, [{}] * WAITING)


def memory(size: Size) -> Mapping[str, Figure]:
    """After some ticks in which every beat was new, against the same supervisor with no run at all."""
    with scene.folder() as folder, house.plain(folder) as daemon:
        time.sleep(SETTLED_S)
        idle_kib = house.rss_kib(daemon.pid)
    with scene.folder() as folder:
        scene.crowd(scene.settings_for(folder, **scene.FULL_UP), size.runs)
        quick = {**scene.FULL_UP, "SPOT_POLL_INTERVAL_S": "1"}
        with (
            beat_writer.writer(folder / "objects", size.runs) as writer,
            house.crowded(folder, quick) as daemon,
        ):
            for number in range(2, 2 + size.times):
                writer.write(number)
            daemon.wait_ticks(2)
            busy_kib = house.rss_kib(daemon.pid)
    note = {"rss_mb": round(busy_kib / 1024, 1), "runs": size.runs}
    return {"rss_per_run_kb": Figure((busy_kib - idle_kib) * 1.024 / size.runs, note=note)}


BENCHES = (
    Bench(waiting, (Row("waiting_500_cpu_percent", "% of a core", target=0.3),)),
    Bench(memory, (Row("rss_per_run_kb", "KB", target=8.0),)),
)
