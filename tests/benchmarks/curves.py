"""What every reported metric costs: the agent beside a training that reports a thousand steps a second, and a request
that compares twenty runs.

The agent's part runs on a simulated clock: the CPU of taking the reports and of the uploads that are due in an hour,
without the reading of the lines, which an agent did before. The comparison reads a folder store by HTTP in this
process; "cold" with nothing in memory, as after a start.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
import tracemalloc
from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import httpx

from supervisor.agent.store.access import Contact
from supervisor.agent.watch.ends import EndReasons
from supervisor.agent.watch.series import BYTES_PER_S, MetricSeries, SeriesDuty
from supervisor.api.server import create_app
from supervisor.api.wire.deps import Services
from supervisor.contract import metric_series, runfiles
from supervisor.objectstores.filesystem import FilesystemStore
from supervisor.services.reading.curves import Curves
from tests.agent.bench import RUN, ManualClock, job, store_in
from tests.benchmarks import scene
from tests.benchmarks.row import Bench, Figure, Row, Size, percentile
from tests.services.bed import make_bed
from tests.services.curves_bed import stored, train_on
from tests.services.fresh import open_fresh

PER_S, HOUR_S, LOOK_S = 1000, 3600, 5
RUNS = 20


class _Agent:
    """`sizes`: of its uploads, in bytes."""

    def __init__(self, folder: Path) -> None:
        self.clock, self.store = ManualClock(), store_in(folder)
        self.series = MetricSeries(lambda: self.clock.now)
        reasons = EndReasons(job(), Contact(self.clock), self.clock, lambda: None)
        self.duty = SeriesDuty(job(), self.store, self.series, reasons, self.clock)
        self.sizes: list[int] = []

    def train(self, seconds: int, values: list[dict[str, float]]) -> float:
        """CPU seconds."""
        used_s, key = 0.0, runfiles.metrics(RUN, 1)
        for second in range(0, seconds, LOOK_S):
            began, calls = time.thread_time(), len(self.store.calls)
            for step in range(second * PER_S, (second + LOOK_S) * PER_S):
                self.series.add(step, values[step % len(values)], None)
            self.duty.step()
            used_s += time.thread_time() - began
            if ("put", key) in self.store.calls[calls:]:
                self.sizes.append(self.store.inner.stat(key).size)
            self.clock.now += LOOK_S
        return used_s


def reporting(size: Size) -> Mapping[str, Figure]:
    chance = random.Random(1)
    values = [{"loss": 3.0 + chance.gauss(0, 1), "lr": 1e-4} for _ in range(9973)]
    seconds = min(HOUR_S, size.rows * HOUR_S // 100_000)
    with scene.folder() as folder:
        agent = _Agent(folder)
        agent.series.add(0, {"loss": -100.0, "lr": 1e-4}, None)
        used_s = agent.train(seconds, values)
        kept = metric_series.decode(agent.store.inner.get(runfiles.metrics(RUN, 1))[0])
        memory_mb = _memory_mb(folder / "other", values)
    assert kept is not None
    shown = {value for _, _, value in kept.curves["loss"].points}
    assert -100.0 in shown
    assert float("%.8g" % max(row["loss"] for row in values)) in shown, "an extreme of the loss is lost"
    note = {"simulated_s": seconds, "reports_per_s": PER_S, "metrics": 2, "uploads": len(agent.sizes)}
    return {
        "metrics_agent_cpu_pct": Figure(100 * used_s / seconds, note=note),
        "metrics_agent_mb": Figure(memory_mb, note={"peak": True}),
        "metrics_upload_kb_min": Figure(sum(agent.sizes) / 1024 / (seconds / 60), note=note),
    }


def _memory_mb(folder: Path, values: list[dict[str, float]]) -> float:
    """The peak of its first minute, in which everything fills up."""
    tracemalloc.start()
    try:
        _Agent(folder).train(60, values)
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()


def _asked(
    services: Services, times_s: Mapping[str, list[float]], cpu_s: Mapping[str, list[float]]
) -> list[tuple[str, bytes]]:
    async def ask() -> list[tuple[str, bytes]]:
        transport = httpx.ASGITransport(create_app(services))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1:8787") as client:
            answers = []
            for kind, seconds in times_s.items():
                began = time.monotonic(), time.process_time()
                answer = await client.get("/v1/compare?group=digits&metric=loss")
                seconds.append(time.monotonic() - began[0])
                cpu_s[kind].append(time.process_time() - began[1])
                assert answer.status_code == 200, answer.text
                answers.append((kind, answer.content))
            return answers

    return asyncio.run(ask())


def comparing(size: Size) -> Mapping[str, Figure]:
    chance, steps = random.Random(1), size.rows
    with scene.folder() as folder, closing(open_fresh(Path(folder) / "supervisor.db", ())) as store:
        bed = make_bed(store, Path(folder))
        objects = FilesystemStore.create(Path(folder) / "objects")
        bed.parts = replace(bed.parts, objects=objects)
        for number in range(RUNS):
            run_id = f"digits-{number}"
            bed.submit(run_id, {"command": ["true"], "labels": {"lr": str(number)}, "group": "digits"})
            train_on(bed, run_id, (None, None))
            points = [(step, 1 / (step + 1) + chance.random()) for step in range(steps)]
            objects.put(runfiles.metrics(run_id, 1), stored({"loss": points, "accuracy": points[::100]}))
        times_s, cpu_s = ({kind: list[float]() for kind in ("cold", "warm")} for _ in range(2))
        for _ in range(10 * size.times):
            services = replace(bed.services, parts=bed.parts, curves=Curves(bed.parts, bed.services.queries))
            for kind, content in _asked(services, times_s, cpu_s):
                assert all(run["metrics"][0]["steps"] for run in json.loads(content)["runs"]), kind
    note = {"runs": RUNS, "steps": steps, "bytes": len(content)}
    note |= {"warm_p95_ms": round(1000 * percentile(times_s["warm"], 0.95))}
    note |= {f"{kind}_cpu_ms": round(1000 * percentile(times, 0.5)) for kind, times in cpu_s.items()}
    return {"compare_p95_ms": Figure(1000 * percentile(times_s["cold"], 0.95), note=note)}


BENCHES = (
    Bench(
        reporting,
        (
            Row("metrics_agent_cpu_pct", "% of a core", target=0.5),
            Row("metrics_agent_mb", "MB", target=5.0),
            Row("metrics_upload_kb_min", "KiB/min", target=60 * BYTES_PER_S / 1024),
        ),
    ),
    Bench(comparing, (Row("compare_p95_ms", "ms", target=150.0),)),
)
