"""What an agent takes from the training beside it, with all figures and beats every 10 s, and how large a beat's are.

A real agent of its own process, for a command that reports a step each second and otherwise sleeps; eight cards are
told by a library that has none (fake_nvml.c). Only what the agent itself uses counts, from its first steps on until
the time is over; starting it is not what it costs a training of hours. The matcher reads a log of a training's lines,
one of which in a thousand is an error.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from supervisor.contract.beat_telemetry import MAX_BYTES, compact, decode, encode
from supervisor.contract.logs.matcher import scan
from supervisor.machinefolder.agent_archive import write_agent
from tests.agent.machine_rig import Rig
from tests.agent.nvml_library import build
from tests.benchmarks import house, scene
from tests.benchmarks.machine_told import CARDS, full
from tests.benchmarks.row import AT_LEAST, Bench, Figure, Row, Size
from tests.waiting import wait_for

QUIET_S = 40.0
PACES = {"beat_push_s": 10.0, "beat_store_s": 60.0, "log_chunk_s": 300.0, "rest_s": 10.0}
WATCHES = {"stall_dump_s": 180.0, "first_dump_s": 600.0, "hang": True}  # as the job of a run that reports steps
TRAINING = """
import json, os, time
for step in range(10**6):
    with open(os.environ["SPOT_PROGRESS_FILE"], "a") as out:
        out.write(json.dumps({"step": step, "total": 10**6, "metrics": {"loss": 1 / (step + 1)}}) + "\\n")
    print("step", step)
    time.sleep(1)
"""


def cost(size: Size) -> Mapping[str, Figure]:
    with scene.folder() as folder, _agent(folder) as rig:
        beat = rig.beat_with("figures of its cards", lambda b: b.telemetry != "" and b.step is not None)
        told = decode(beat.telemetry)
        assert told is not None
        assert told.gpus is not None
        assert len(told.gpus.util_pct) == CARDS, "the cards of the library were not read"
        pid, seconds = rig.agent.pid, 2 * size.idle_s
        time.sleep(
            min(QUIET_S, seconds)
        )  # what goes on after the start is over: facts are taken, quick looks have become slow ones
        before, began = house.cpu_s(pid), time.monotonic()
        time.sleep(seconds)
        used_s, took_s = house.cpu_s(pid) - before, time.monotonic() - began
        rss_mb = house.rss_kib(pid) * 1.024 / 1000
    note = {"seconds": round(took_s), "gpus": CARDS}
    return {"agent_cpu_pct": Figure(used_s / took_s * 100, note=note), "agent_rss_mb": Figure(rss_mb, note=note)}


@contextmanager
def _agent(folder: Path) -> Iterator[Rig]:
    """An agent in its training."""
    build(folder)
    kept = {name: os.environ.get(name) for name in ("LD_LIBRARY_PATH", "FAKE_NVML_CARDS")}
    os.environ.update(LD_LIBRARY_PATH=str(folder), FAKE_NVML_CARDS=str(CARDS))
    rig = Rig(folder, write_agent(folder / "agent.pyz"))
    rig.server.answer = {"next_s": PACES["beat_push_s"], "stop": False, "follow_logs": False}
    try:
        script = folder / "train.py"
        script.write_text(TRAINING)
        rig.start(sys.executable, str(script), gpus=CARDS, **PACES, **WATCHES)
        wait_for(lambda: rig.server.beats, 30, "a beat")
        yield rig
    finally:
        rig.close()
        for name, value in kept.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


def telemetry(size: Size) -> Mapping[str, Figure]:
    told = full()
    assert compact(told) == told, "parts of it were given up"
    return {"telemetry_bytes": Figure(float(len(encode(told))), note={"gpus": CARDS})}


LOG_MB = 20


def matching(size: Size) -> Mapping[str, Figure]:
    """A second of one core; the best of several times, because the matcher is one function of its input."""
    line = (
        b"2026-11-26 12:00:00 INFO trainer: epoch %d step %d loss=%.4f lr=0.0003 grad_norm=%.3f tokens/s=%d mem=12.3GiB"
    )
    oom = b"RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB"
    count = LOG_MB * 1_000_000 // len(line)
    lines = (oom if n % 1000 == 0 else line % (n // 9, n, 1 / (n + 1), n / 7, n) for n in range(count))
    log = b"\n".join(lines) + b"\n"
    took_s = []
    for _ in range(size.times):
        began = time.thread_time()
        (seen,) = scan(log).seen()
        took_s.append(time.thread_time() - began)
        assert seen.count == len(range(0, count, 1000))
    return {"log_matcher_mb_s": Figure(len(log) / 1e6 / min(took_s), note={"bytes": len(log), "errors": seen.count})}


BENCHES = (
    Bench(matching, (Row("log_matcher_mb_s", "MB/s", better=AT_LEAST, target=20.0),)),
    Bench(cost, (Row("agent_cpu_pct", "% of a core", target=0.5), Row("agent_rss_mb", "MB", target=30.0))),
    Bench(telemetry, (Row("telemetry_bytes", "bytes", target=float(MAX_BYTES)),)),
)
