"""How much a training run adds to the database in a day: a sample each minute, its history, and what retention leaves.

Three days of twenty runs, minute by minute, on a clock of the benchmark's own, through the store; retention is asked
each hour, as the loop does. Nothing is vacuumed. The first day is the dearest: after it, points are thinned out and
their room is used again.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

from supervisor.contract.beat_telemetry import encode
from supervisor.domain.attempt import Pulse
from supervisor.domain.causes import Cause
from supervisor.domain.events import Event, EventKind
from supervisor.domain.run import Run
from supervisor.ports.store import Change, Lease, Sample
from supervisor.storage.store import SqlStore
from tests.benchmarks import scene
from tests.benchmarks.machine_told import full
from tests.benchmarks.row import Bench, Figure, Row, Size

RUNS, DAYS = 20, 3
DAY_S, HOUR_S, MINUTE_S = 86_400, 3_600, 60
EVENTS_A_DAY = 40  # five preemptions, each told in eight lines
TOLD = full(1)


def growth(size: Size) -> Mapping[str, Figure]:
    days, minute_s = (DAYS, MINUTE_S) if size.times > 2 else (1, 20 * MINUTE_S)
    with scene.folder() as folder:
        settings = scene.settings_for(folder)
        with scene.opened(settings) as store:
            now = time.time()
            cell = scene.cell_of(settings)
            runs = [scene.running(f"run-{n:03d}", cell, "ours", "local-a", now) for n in range(RUNS)]
            runs = scene.insert(store, runs, [{"team": "t1"}] * RUNS)
            lease = store.take_lease(cell, "bench", 1e9, time.monotonic(), alone=True)
            assert lease is not None
            grown, at = [_kb(folder)], now
            for _ in range(days):
                for second in range(minute_s, DAY_S + 1, minute_s):
                    at += minute_s
                    runs = _minute(store, runs, second, at, lease)
                    if second % HOUR_S == 0:
                        store.prune(at, 100_000)
                grown.append(_kb(folder))
    per_day = [(after - before) / RUNS for before, after in pairwise(grown)]
    return {"db_per_run_day_kb": Figure(max(per_day), note={"days_kb": [round(kb) for kb in per_day]})}


def _minute(store: SqlStore, runs: list[Run], second: int, at: float, lease: Lease) -> list[Run]:
    runs = [replace(run, pulse=_pulse(run, second, at)) for run in runs]
    samples = [Sample(run.key, at, 1, run.pulse) for run in runs if run.pulse is not None]
    store.write_pulses(samples, lease)
    if second % (DAY_S // EVENTS_A_DAY // MINUTE_S * MINUTE_S) == 0:
        text = "The attempt ended: preempted after 4 h 12 min in local-a; its checkpoint of step 120 000 is kept."
        told = Event(EventKind.ATTEMPT_ENDED, text, data={"cause": Cause.PREEMPTED, "zone": "local-a", "step": second})
        hit = store.apply_all([Change(run, run, (told,)) for run in runs], at, lease)
        runs = [hit[run.key] for run in runs]
    return runs


def _pulse(run: Run, second: int, at: float) -> Pulse:
    assert run.pulse is not None
    metrics = {"loss": 0.731 + second / 1e6, "accuracy": 0.9312, "gpu_util": 97.5, "gpu_mem": 0.8125}
    return replace(
        run.pulse,
        sequence=run.pulse.sequence + 6,
        beat_at=at - 3.25,
        step=second * 3,
        metrics=metrics,
        telemetry=encode(TOLD._replace(uptime_s=float(second))),
        progress_at=at,
    )


def _kb(folder: Path) -> float:
    """The database file once its log, which does not grow with the runs, has been written back into it."""
    path = folder / "supervisor.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return path.stat().st_size / 1000


BENCHES = (Bench(growth, (Row("db_per_run_day_kb", "KB", target=300.0),)),)
