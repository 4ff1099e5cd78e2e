"""From the end of a command to its evidence: the agent's part, and the document that is composed of it.

The command leaves 2,000 long lines and fails; the supervisor has its ordinary paces. What it waits for until it looks
is not measured: a beat of the end wakes it at once, so `in_store_s` shows it all the same.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Mapping
from pathlib import Path

from supervisor.contract import runfiles
from supervisor.domain.attempt import Attempt
from supervisor.domain.causes import Cause
from supervisor.domain.machines import Placement
from supervisor.domain.policies import Policy
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.objectstores.filesystem import FilesystemStore
from supervisor.reconciler.acting import records
from tests.benchmarks import house, scene
from tests.benchmarks.row import Bench, Figure, Row, Size
from tests.diagnosis.cases import load
from tests.diagnosis.measuring import measure
from tests.waiting import wait_for

FAILS = """
import os, sys, time
for number in range(2000):
    print(number, "x" * 500)
sys.stdout.flush()
open(sys.argv[1], "w").write(repr(time.time()))
os._exit(3)
"""


def kept(size: Size) -> Mapping[str, Figure]:
    agents, wholes, composed = [], [], []
    with scene.folder() as folder, house.plain(folder / "data") as daemon:
        for number in range(size.times):
            run_id, ended = f"ends-{number}", folder / f"ended-{number}"
            daemon.submit(run_id, command=[sys.executable, "-S", "-c", FAILS, str(ended)])
            objects = daemon.data_dir / "objects"
            part, whole = objects / runfiles.agent_evidence(run_id, 1), objects / runfiles.evidence(run_id, 1)
            wait_for(lambda: whole.exists() and part.exists(), 60, "the evidence")  # noqa: B023 - called at once
            at = float(ended.read_text())
            agents.append(part.stat().st_mtime - at)
            wholes.append(whole.stat().st_mtime - at)
            composed.append(_compose_s(objects, run_id))
    note = {
        "agent_s": round(statistics.median(agents), 3),
        "composed_s": round(statistics.median(composed), 4),
        "in_store_s": round(statistics.median(wholes), 3),
    }
    return {"evidence_s": Figure(max(agents) + max(composed), note=note)}


def _compose_s(objects: Path, run_id: str) -> float:
    """Once more, from nothing but what lies in the store."""
    (objects / runfiles.evidence(run_id, 1)).unlink()
    store = FilesystemStore(objects)
    place = Placement("local", "local", "local-a", "cpu", True)
    now = time.time()
    attempt = Attempt(1, 1, "1.1.1", "m", "m", place, now, now, ended_at=now, gone_at=now, cause=Cause.USER_ERROR)
    run = Run(1, run_id, "local", "c", "local", 1, Status.FAILED, Policy(), now, now, now, attempt=attempt)
    began = time.perf_counter()
    records.keep_evidence(store, run, attempt, time.monotonic, ("listing: ended",))
    return time.perf_counter() - began


def judged(size: Size) -> Mapping[str, Figure]:
    """One verdict after another on the labeled corpus, the findings included."""
    figures = measure(load())
    return {"diagnose_p99_ms": Figure(figures.milliseconds(), note={"cases": len(figures.judged)})}


BENCHES = (
    Bench(kept, (Row("evidence_s", "s", target=1.0),)),
    Bench(judged, (Row("diagnose_p99_ms", "ms", target=5.0),)),
)
