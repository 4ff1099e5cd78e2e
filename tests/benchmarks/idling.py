"""What runs cost to which nothing happens: CPU for five hundred that wait for capacity, memory for those that train."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from pathlib import Path

from supervisor.domain.causes import Cause
from supervisor.domain.machines import ZoneRecord
from supervisor.domain.policies import Knobs
from supervisor.domain.run import Waiting
from supervisor.domain.status import Status
from tests.benchmarks import beat_writer, house, scene
from tests.benchmarks.row import Bench, Figure, Row, Size

WAITING = 500
TARGET_PERCENT = 0.3
SETTLED_S = 3.0
FAR_S = 900.0


def waiting(size: Size) -> Mapping[str, Figure]:
    """Three supervisors side by side: without runs, with five hundred whose zones go on cooling, and with five hundred
    whose zones may be asked again meanwhile."""
    with contextlib.ExitStack() as opened:
        folders = [opened.enter_context(scene.folder()) for _ in range(3)]
        _wait_for_capacity(folders[1], FAR_S)
        _wait_for_capacity(folders[2], SETTLED_S + size.idle_s / 3)
        all_of = [opened.enter_context(house.plain(folder, scene.FULL_UP)) for folder in folders]
        time.sleep(SETTLED_S)
        before, began = [house.cpu_s(one.pid) for one in all_of], time.monotonic()
        time.sleep(2 * size.idle_s)
        took_s = time.monotonic() - began
        idle, quiet, asking = (house.cpu_s(one.pid) - cpu for one, cpu in zip(all_of, before, strict=True))
        for one in all_of[1:]:
            counts = one.call("GET", "/v1/runs?page_size=1")["summary"]["counts"]
            assert counts == {"waiting": WAITING}, f"the runs did not stay as they were: {counts}"
        tries = all_of[2].call("GET", "/v1/events?limit=1000&newest_first=true")["events"]
        calls = sum(event["kind"] == "try_failed" for event in tries)
        assert calls, "no zone was asked again"
    share = TARGET_PERCENT / 100 * Knobs("").cooldown_min_s
    return {
        "waiting_500_cpu_percent": Figure((quiet - idle) / took_s * 100, idle / took_s * 100),
        "waiting_500_asking_cpu_s": Figure(asking - quiet, idle, share, {"create_calls": calls}),
    }


def _wait_for_capacity(folder: Path, for_s: float) -> None:
    """Runs that wait, in a house whose zones have refused and cool for so long."""
    now, settings = time.time(), scene.settings_for(folder, **scene.FULL_UP)
    with scene.opened(settings) as store:
        cell = scene.cell_of(settings)
        runs = [
            scene.pending(
                f"run-{n:03d}", cell, now, status=Status.WAITING, waiting=Waiting(since=now), next_at=now + for_s,
                cause=Cause.NO_CAPACITY, detail="no machine",
            )
            for n in range(WAITING)
        ]  # fmt: skip
        scene.insert(store, runs, [{}] * WAITING)
        for zone in scene.ZONES:
            record = ZoneRecord(1, now + for_s, Cause.NO_CAPACITY, "no machine")
            store.put_zone(cell, ("local", zone, "cpu", True), record)


def memory(size: Size) -> Mapping[str, Figure]:
    """After some ticks in which every beat was new, against the same supervisor with no run at all."""
    with scene.folder() as folder, house.plain(folder) as daemon:
        time.sleep(SETTLED_S)
        idle_kib = house.rss_kib(daemon.pid)
    with scene.folder() as folder:
        scene.crowd(scene.settings_for(folder, **scene.FULL_UP), size.runs)
        quick = {**scene.FULL_UP, "SPOT_POLL_INTERVAL_S": "1"}
        with beat_writer.writer(folder / "objects", size.runs) as writer, house.crowded(folder, quick) as daemon:
            for number in range(2, 2 + size.times):
                writer.write(number)
            daemon.wait_ticks(2)
            busy_kib = house.rss_kib(daemon.pid)
    note = {"rss_mb": round(busy_kib / 1024, 1), "runs": size.runs}
    return {"rss_per_run_kb": Figure((busy_kib - idle_kib) * 1.024 / size.runs, note=note)}


BENCHES = (
    Bench(
        waiting,
        (
            Row("waiting_500_cpu_percent", "% of a core", target=TARGET_PERCENT),
            Row("waiting_500_asking_cpu_s", "s of CPU"),
        ),
    ),
    Bench(memory, (Row("rss_per_run_kb", "KB", target=6.0),)),
)
