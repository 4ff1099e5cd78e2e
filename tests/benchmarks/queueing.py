"""How long a queue on a full computer takes, beside a bare loop that keeps as many commands going in the same run."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping

from tests.benchmarks import house, scene
from tests.benchmarks.row import FULL, Bench, Figure, Row, Size
from tests.waiting import wait_for

SLOTS = 12
RUNS, RUN_S = 300, 10.0
QUICK_RUNS, QUICK_S = 24, 4.0
DEADLINE_S = 1800.0


def queue(size: Size) -> Mapping[str, Figure]:
    """300 short runs on 12 places, submitted at once: from the first submit to the last `completed`. Agent, object
    store, results and teardown of each run are in it; the pause between two looks is that of the settings."""
    count, each_s = (RUNS, RUN_S) if size == FULL else (QUICK_RUNS, QUICK_S)
    bare_s = _bare(count, each_s)
    with scene.folder() as folder:
        environ = {**house.FLOODED, "SPOT_LOCAL_MACHINES": str(SLOTS)}
        with house.plain(folder / "data", environ) as daemon:
            began = time.monotonic()
            for number in range(count):
                daemon.submit(f"short-{number:03}", command=["sleep", str(each_s)])

            def done() -> bool:
                counts = daemon.call("GET", "/v1/runs?page_size=1")["summary"]["counts"]
                return bool(counts.get("completed", 0) == count)

            wait_for(done, DEADLINE_S, "every run to be completed")
            took_s = time.monotonic() - began
    note = {"runs": count, "run_s": each_s, "took_s": round(took_s, 1)}
    return {"queue_300_on_12_ratio": Figure(took_s / bare_s, bare_s, note=note)}


def _bare(count: int, each_s: float) -> float:
    began = time.monotonic()
    going: list[subprocess.Popen[bytes]] = []
    left = count
    while left or going:
        going = [child for child in going if child.poll() is None]
        while left and len(going) < SLOTS:
            going.append(subprocess.Popen(["sleep", str(each_s)]))
            left -= 1
        time.sleep(0.01)
    return time.monotonic() - began


BENCHES = (Bench(queue, (Row("queue_300_on_12_ratio", "x", target=1.3),)),)
