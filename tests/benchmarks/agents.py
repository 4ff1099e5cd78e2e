"""Beats pushed over HTTP by the agents of ten thousand runs, on eight connections, each with its launch's nonce.

The nonces are in the database: each run's first beat makes the server look its own up, the later ones are compared in
memory. A server that only says that it lives shows what HTTP itself takes.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.benchmarks import house, scene
from tests.benchmarks.client import clients
from tests.benchmarks.row import AT_LEAST, Bench, Figure, Row, Size


def pushed(size: Size) -> Mapping[str, Figure]:
    with scene.folder() as folder:
        scene.crowd(scene.settings_for(folder, **scene.FULL_UP), size.runs)
        with house.crowded(folder, scene.FULL_UP) as daemon:
            bare = clients("get", daemon.url, size.seconds / 5, path="/livez").only("200")
            learning = clients("beat", daemon.url, size.runs / 1000, runs=size.runs).only("200")
            cpu = house.cpu_s(daemon.pid)
            seen = clients("beat", daemon.url, size.seconds, runs=size.runs).only("200")
            cpu = house.cpu_s(daemon.pid) - cpu
    note = {
        "p95_ms": round(seen.p95_ms(), 1),
        "server_cores": round(cpu / size.seconds, 2),
        "first_beats_per_s": round(learning.per_s()),
    }
    return {"beats_per_s": Figure(seen.per_s(), bare.per_s(), note=note)}


BENCHES = (Bench(pushed, (Row("beats_per_s", "beats/s", AT_LEAST, 3500.0),)),)
