"""Houses full of runs, made quickly: the real tables through the real store, and beats in the real folder.

The machines of these runs exist in a listing only (crowd.json, see crowded.py): a thousand of them would need a
thousand processes. Everything else of a run is as the loop itself would have written it.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from supervisor.contract.beat_telemetry import encode
from supervisor.contract.heartbeat import Beat
from supervisor.contract.identifiers import machine_name, nonce_hash
from supervisor.domain import machines as placement
from supervisor.domain.attempt import Attempt, Pulse, Try
from supervisor.domain.events import Event, EventKind
from supervisor.domain.machines import Placement
from supervisor.domain.policies import Policy
from supervisor.domain.run import Counters, Run
from supervisor.domain.status import TERMINAL, Status
from supervisor.objectstores.filesystem import FilesystemStore
from supervisor.providers.local.provider import LocalProvider
from supervisor.reconciler.system_clock import SystemClock
from supervisor.settings.loading import Settings
from supervisor.storage.store import SqlStore, open_store
from supervisor.wiring import settings as wired
from tests.benchmarks.machine_told import full

ZONES = ("local-a", "local-b", "local-c")
LAUNCH = "1.1.1"
NONCE = "5f1c0e2d9a8b47c6a3e1f0d2c4b6a897"
SPEC: dict[str, Any] = {"command": ["python", "train.py", "--lr", "0.1"], "env": {"SEED": "7"}}
PAGE = 1000
# No zone has room: what is submitted is placed as far as that goes, and starts no process.
FULL_UP = {"SPOT_LOCAL_CAPACITY": ",".join(f"{zone}=0" for zone in ZONES)}


@contextmanager
def folder() -> Iterator[Path]:
    """A data folder on this machine's ordinary disk, gone afterwards."""
    path = Path(tempfile.mkdtemp(prefix="spot-bench-"))
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def settings_for(data_dir: Path, database_url: str | None = None, **environ: str) -> Settings:
    flags = {"data_dir": str(data_dir), "port": "0", "database_url": database_url}
    return wired.load(flags, environ={"HOME": str(data_dir), **environ})


@contextmanager
def opened(settings: Settings) -> Iterator[SqlStore]:
    settings.data_dir.mkdir(parents=True, exist_ok=True)
    store = open_store(settings.database_url, migrate=True)
    try:
        yield store
    finally:
        store.close()


def names(count: int) -> list[str]:
    return [f"run-{n:05d}" for n in range(count)]


def cell_of(settings: Settings) -> str:
    """The cell in which the supervisor of these settings will place its runs."""
    provider = LocalProvider(settings.data_dir, (), {}, agent=settings.data_dir / "agent.pyz", clock=SystemClock())
    return placement.cell(provider.name, provider.scope(), settings.store_url)


def pending(name: str, cell: str, now: float, **fields: Any) -> Run:
    base: dict[str, Any] = {
        "key": 0, "run_id": name, "owner": "local", "cell": cell, "provider": "local", "generation": 1,
        "status": Status.PENDING, "policy": Policy(expect_runtime_s=3600.0), "created_at": now - 900,
        "generation_at": now - 900, "status_since": now - 600,
    }  # fmt: skip
    return Run(**{**base, **fields})


def running(name: str, cell: str, supervisor_id: str, zone: str, now: float, **fields: Any) -> Run:
    """A run that trains since ten minutes; its machine is in crowd.json."""
    machine = machine_name("spot", supervisor_id, name, 1, 1)
    place = Placement("local", "local", zone, "cpu", True)
    try_ = Try(1, 1, LAUNCH, machine, place, now - 700, 0.1, 0.3, nonce_hash(NONCE))
    attempt = Attempt(
        1, 1, LAUNCH, machine, _machine_id(name), place, now - 700, now - 690, 0.1, 0.3,
        up_at=now - 680, running_at=now - 670, training_at=now - 600,
    )  # fmt: skip
    pulse = Pulse(
        LAUNCH, 1, "training", now - 600, now - 5, 1, 50_000, None, now - 600, now - 5, 0, 0.0, 3.1, "",
        {"loss": 0.71, "gpu_util": 97.0},
    )  # fmt: skip
    return pending(
        name, cell, now, status=Status.RUNNING, try_=try_, attempt=attempt, pulse=pulse,
        counters=Counters(attempts=1, tries=1), reported=True, **fields,
    )  # fmt: skip


def ended(name: str, cell: str, supervisor_id: str, zone: str, now: float, status: Status) -> Run:
    run = running(name, cell, supervisor_id, zone, now)
    assert run.attempt is not None
    assert run.try_ is not None
    assert status in TERMINAL
    return replace(
        run,
        status=status,
        settled=True,
        money=replace(run.money, cost_usd=1.25),
        attempt=replace(run.attempt, ended_at=now, gone_at=now),
        try_=replace(run.try_, ended_at=now),
    )


def insert(store: SqlStore, runs: Sequence[Run], labels: Sequence[dict[str, str]]) -> list[Run]:
    """In few transactions; the runs with their keys."""
    stored, now = [], time.time()
    for start in range(0, len(runs), PAGE):
        with store.begin(now) as tx:
            for run, its in zip(runs[start : start + PAGE], labels[start : start + PAGE], strict=True):
                event = Event(EventKind.SUBMITTED, "Submitted by local.", "local")
                stored.append(tx.insert(run, {**SPEC, "labels": its}, its, (event,)))
    return stored


def crowd(settings: Settings, count: int, **fields: Any) -> None:
    """`count` running runs in a new database, with machines, and an object store for their beats. `fields`: of each
    run."""
    now = time.time()
    with opened(settings) as store:
        cell, ours = cell_of(settings), store.supervisor_id
        runs = [running(name, cell, ours, ZONES[n % 3], now, **fields) for n, name in enumerate(names(count))]
        insert(store, runs, [{"team": f"t{n % 10}"} for n in range(count)])
        machines = [
            [run.attempt.machine_id, run.attempt.machine_name, run.attempt.placement.zone, ours, run.run_id, LAUNCH]
            for run in runs
            if run.attempt is not None
        ]
        (settings.data_dir / "crowd.json").write_text(json.dumps(machines))
    FilesystemStore.create(FilesystemStore.at(settings.store_url).root)


def finish(settings: Settings, count: int) -> None:
    """`count` runs that have ended, beside whatever there is."""
    now = time.time()
    with opened(settings) as store:
        cell, ours = cell_of(settings), store.supervisor_id
        names = [f"old-{n:05d}" for n in range(count)]
        runs = [ended(name, cell, ours, ZONES[n % 3], now, Status.COMPLETED) for n, name in enumerate(names)]
        insert(store, runs, [{}] * count)


TELEMETRY = encode(full(1))


def beat(name: str, sequence: int) -> Beat:
    """The beat of this sequence number: a step further than the one before."""
    return Beat(
        name, 1, LAUNCH, _machine_id(name), "0f4c3c4e-7d1f-4f0e-9a53-0f1d2c3b4a59", sequence, "training", NONCE,
        step=sequence * 30, total=50_000, steps_per_s=3.1, metrics={"loss": 0.5, "gpu_util": 97.0},
        telemetry=TELEMETRY,
    )  # fmt: skip


def _machine_id(name: str) -> str:
    return f"local:0f4c3c4e:{zlib.crc32(name.encode()) % 99999}:123456"
