"""What a supervisor of machines on Google Cloud takes while nothing happens, with Google's clients loaded."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping

from supervisor.contract import runfiles
from tests.benchmarks import house, scene
from tests.benchmarks.boot import IDLE_AFTER_S
from tests.benchmarks.cloud_bed import far_cloud
from tests.benchmarks.row import Bench, Figure, Row, Size
from tests.cloud.cloud import BUCKET
from tests.waiting import wait_for

BOOTS = 3
ANEW = ("--start-over",)  # each on a new data folder, beside the same bucket


def idling(size: Size) -> Mapping[str, Figure]:
    ready = []
    with far_cloud() as cloud:
        for _ in range(min(size.times, BOOTS)):
            with scene.folder() as folder, house.plain(folder / "data", cloud.environment, ANEW) as daemon:
                ready.append(daemon.ready_after_s)
        # Once it has put the agent into the bucket, everything is loaded.
        with scene.folder() as folder, house.plain(folder / "data", cloud.environment, ANEW) as daemon:
            wait_for(lambda: cloud.call("storage.names", BUCKET, runfiles.AGENTS), 60, "the agent's upload")
            time.sleep(min(IDLE_AFTER_S, size.seconds))
            memory = house.rss_kib(daemon.pid) * 1024 / 1e6
    return {"cloud_rss_mb": Figure(memory), "cloud_boot_to_readyz_s": Figure(statistics.median(ready))}


BENCHES = (Bench(idling, (Row("cloud_rss_mb", "MB", target=150.0), Row("cloud_boot_to_readyz_s", "s", target=1.2))),)
