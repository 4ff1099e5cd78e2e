"""A supervisor that leads a hundred thousand running runs, and readers of its API beside its ticks.

The beats are those of real agents at that number: the supervisor receives at most a hundred a second (`BEATS_PER_S` of
the inbox), so each run stores its beats as objects, one in five minutes. The readers are closed loops, one over a list
of a hundred runs, one over a single run. `make campaign` does the same for ten minutes and looks at every promise.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from supervisor.domain.policies import Policy, StallLimits
from supervisor.services.runs.heartbeat import BEATS_PER_S
from tests.benchmarks import beat_writer, house, scene
from tests.benchmarks.client import Answers, clients
from tests.benchmarks.row import Bench, Figure, Row, Size, percentile

STORE_S = 300.0  # between two stored beats of a run
POLICY = Policy(stall=StallLimits(silence_s=3 * STORE_S, polls=60))
PATHS = ("/v1/runs?page_size=100", "/v1/runs/run-00042")
SAMPLE_S = 5.0
PUSHING = 20_000  # of the runs: each has pushed once before the memory is compared, and a pushed beat is kept


@dataclass(frozen=True, slots=True)
class Seen:
    """`lists`, `runs`: the readers' answers. `kib`: (monotonic time, resident memory) of the supervisor. `ticks`:
    (began, ended) on the same clock. `cores`: CPU of the supervisor for all of it."""

    lists: Answers
    runs: Answers
    beats: Answers
    kib: list[tuple[float, float]]
    ticks: list[tuple[float, float]]
    cores: float


@contextmanager
def leading(folder: Path, count: int, poll_s: float = 30.0) -> Iterator[house.CrowdedDaemon]:
    """A supervisor that has read all its runs and their first beats; new ones follow for as long as it is used."""
    settings = scene.settings_for(folder, **scene.FULL_UP)
    scene.crowd(settings, count, policy=POLICY)
    with beat_writer.writer(folder / "objects", count) as writer:
        writer.write(2)
        paces = {"POLL_INTERVAL": poll_s, "BEAT_STORE": STORE_S, "SILENCE": 3 * STORE_S}
        environ = {**scene.FULL_UP, **{f"SPOT_{name}_S": str(seconds) for name, seconds in paces.items()}}
        with house.crowded(folder, environ) as daemon:
            daemon.wait_ticks(1)
            for number in range(3, 9):  # more rounds than anybody waits for
                writer.begin(number, STORE_S)
            yield daemon


def read_for(daemon: house.CrowdedDaemon, seconds: float, count: int) -> Seen:
    """Both readers and the pushed beats for so many seconds."""
    began, cpu, kib = time.monotonic(), house.cpu_s(daemon.pid), list[tuple[float, float]]()
    with ThreadPoolExecutor(3) as threads:

        def start(kind: str, path: str, connections: int, per_s: float = 0.0) -> Future[Answers]:
            return threads.submit(
                clients, kind, daemon.url, seconds, 1, connections, runs=min(count, PUSHING), path=path,
                token=daemon.token, per_s=per_s,
            )  # fmt: skip

        lists, runs = (start("get", path, 1) for path in PATHS)
        beats = start("beat", "/", 4, BEATS_PER_S)
        while not (lists.done() and runs.done() and beats.done()):
            kib.append((time.monotonic(), house.rss_kib(daemon.pid)))
            time.sleep(SAMPLE_S)
    cores = (house.cpu_s(daemon.pid) - cpu) / (time.monotonic() - began)
    ticks = [(start_s, end_s) for start_s, end_s, _ in daemon.ticks() if end_s > began]
    return Seen(lists.result(), runs.result(), beats.result(), kib, ticks, cores)


def read_beside(size: Size) -> Mapping[str, Figure]:
    count = 10 * size.runs
    with scene.folder() as folder, leading(folder, count, size.idle_s) as daemon:
        seen = read_for(daemon, 3 * size.idle_s, count)
    spans = seen.lists.only("200").spans + seen.runs.only("200").spans
    seen.beats.only("200")
    beside = [took for at, took in spans if any(at < end and at + took > begin for begin, end in seen.ticks)]
    assert beside, "no tick ran while the API was read"
    note = {
        "all_p95_ms": round(percentile([took for _, took in spans], 0.95) * 1000, 1),
        "list_p95_ms": round(seen.lists.p95_ms(), 1),
        "run_p95_ms": round(seen.runs.p95_ms(), 1),
        "slowest_ms": round(max(took for _, took in spans) * 1000, 1),
        "requests": len(spans),
        "beats_per_s": round(seen.beats.per_s()),
        "ticks": len(seen.ticks),
        "longest_tick_s": round(max((end - begin for begin, end in seen.ticks), default=0.0), 1),
        "server_cores": round(seen.cores, 2),
        "runs": count,
    }
    return {"tick_100k_api_p95_ms": Figure(percentile(beside, 0.95) * 1000, note=note)}


BENCHES = (Bench(read_beside, (Row("tick_100k_api_p95_ms", "ms", target=80.0),)),)
