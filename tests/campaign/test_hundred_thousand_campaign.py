"""A hundred thousand runs in one supervisor for ten minutes, read all the time through its API (`make campaign`).

No request is refused, the memory stays, and no run gets an event, a try or an end that it does not deserve. Beside it
another supervisor is killed again and again while its runs train. At the end the large one is killed too.
"""

from __future__ import annotations

import json
import sqlite3
import statistics
import sys
import threading
from pathlib import Path
from typing import Any

from tests.acceptance.chaos import Campaign, judge
from tests.acceptance.daemon import running
from tests.benchmarks.house import CrowdedDaemon
from tests.benchmarks.reading import STORE_S, Seen, leading, read_for
from tests.benchmarks.row import percentile

COUNT, SECONDS, POLL_S = 100_000, 600.0, 30.0
GROWTH = 1.02  # noise of the allocator between two medians of minutes


def test_a_hundred_thousand_runs_for_ten_minutes(tmp_path: Path) -> None:
    kills = _Kills(tmp_path / "beside")
    with leading(tmp_path / "crowd", COUNT, POLL_S) as daemon:
        before = _rows(daemon)
        assert before == {"runs": COUNT, "tries": COUNT, "submitted": COUNT}
        kills.start()
        seen = read_for(daemon, SECONDS, COUNT)
        figures = _figures(seen)
        sys.stdout.write(json.dumps(figures) + "\n")
        assert set(seen.lists.statuses) == set(seen.runs.statuses) == set(seen.beats.statuses) == {"200"}
        assert figures["longest_tick_s"] < POLL_S
        assert figures["ticks"] >= SECONDS / POLL_S - 2
        assert figures["mib_last_minute"] < GROWTH * figures["mib_after_all_beats"]
        assert _rows(daemon) == before
        assert _counts(daemon) == {"running": COUNT}
        daemon.kill()
        daemon.start()
        daemon.wait_ticks(1)
        assert _rows(daemon) == before
        assert _counts(daemon) == {"running": COUNT}
    kills.join()
    judge(kills.figures)


class _Kills(threading.Thread):
    """The kill campaign of a supervisor with few runs, small."""

    def __init__(self, folder: Path) -> None:
        super().__init__(name="kills")
        self._folder = folder
        self.figures: dict[str, object] = {}

    def run(self) -> None:
        self._folder.mkdir()
        with running(self._folder / "data") as daemon:
            self.figures = Campaign(self._folder, runs=6, kills=12, seed=16, pause_s=1.0).carry_out(daemon)


def _figures(seen: Seen) -> dict[str, Any]:
    """`mib_after_all_beats`: median of the minute after each run has stored a new beat; those that push have, too."""
    began = seen.kib[0][0]

    def mib(start_s: float, end_s: float) -> float:
        return round(statistics.median(kib for at, kib in seen.kib if start_s <= at - began < end_s) / 1024, 1)

    spans = [took for _, took in seen.lists.spans + seen.runs.spans]
    return {
        "requests": len(spans) + len(seen.beats.spans),
        "p95_ms": round(percentile(spans, 0.95) * 1000, 1),
        "slowest_ms": round(max(spans) * 1000),
        "ticks": len(seen.ticks),
        "longest_tick_s": round(max(end - begin for begin, end in seen.ticks), 1),
        "mib_after_all_beats": mib(STORE_S + POLL_S, STORE_S + POLL_S + 60),
        "mib_last_minute": mib(SECONDS - 60, SECONDS + 60),
        "cores": round(seen.cores, 2),
    }


def _counts(daemon: CrowdedDaemon) -> dict[str, int]:
    """Runs by status, without statuses that no run has."""
    counts = daemon.call("GET", "/v1/runs?page_size=1")["summary"]["counts"]
    return {status: count for status, count in counts.items() if count}


def _rows(daemon: CrowdedDaemon) -> dict[str, int]:
    """Of all runs: their number, their tries, and their events by kind."""
    database = sqlite3.connect(daemon.data_dir / "supervisor.db")
    try:
        events = dict(database.execute("SELECT kind, count(*) FROM events WHERE run IS NOT NULL GROUP BY kind"))
        counts = {table: database.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in ("runs", "tries")}  # noqa: S608 - names of our own
    finally:
        database.close()
    return {**counts, **events}
