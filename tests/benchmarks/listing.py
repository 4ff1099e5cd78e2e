"""A page of a hundred runs out of a hundred thousand, with the counts of the same filter: over HTTP and in the service.

A thousand runs are made by the store; the others are copies of them, made inside the database.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from supervisor.domain.run import Waiting
from supervisor.domain.status import Status
from supervisor.ports.store import RunFilter
from supervisor.settings.loading import Settings
from supervisor.storage.engine.tables import attempts, events, labels, pulses, runs, specs, tries
from supervisor.storage.store import SqlStore
from tests.benchmarks import house, scene
from tests.benchmarks.client import clients
from tests.benchmarks.row import Bench, Figure, Row, Size, percentile

PAGE = 100
TEAM = "t3"  # a tenth of all runs
ENDS = (Status.COMPLETED, Status.COMPLETED, Status.FAILED, Status.STOPPED, Status.PARTIAL)
BLOCK = 1000


def listing(size: Size) -> Mapping[str, Figure]:
    with scene.folder() as folder:
        settings = scene.settings_for(folder)
        fill(settings, size.rows)
        figures = {name: Figure(value) for name, value in _in_the_service(settings, size).items()}
        with house.plain(folder, house.FLOODED) as daemon:
            for name, query in (("list_http_p95_ms", ""), ("list_label_http_p95_ms", f"&label=team%3D{TEAM}")):
                path = f"/v1/runs?page_size={PAGE}{query}"
                seen = clients("get", daemon.url, size.seconds / 2, 1, 1, path=path, token=daemon.token).only("200")
                figures[name] = Figure(seen.p95_ms(), note={"requests": len(seen.spans)})
        return figures


def _in_the_service(settings: Settings, size: Size) -> dict[str, float]:
    from supervisor.services.reading.health import LoopStatus
    from supervisor.services.reading.queries import Queries

    found = {}
    with scene.opened(settings) as store:
        queries = Queries(*_parts(store, settings), lambda: LoopStatus(1.0, leader=True))
        for name, where in (
            ("list_service_p95_ms", RunFilter()),
            ("list_label_service_p95_ms", RunFilter(labels=(("team", TEAM),))),
        ):
            times = []
            for _ in range(50 * size.times):
                began = time.perf_counter()
                page = queries.page(where, PAGE, None)
                times.append(time.perf_counter() - began)
            assert len(page["runs"]) == PAGE
            found[name] = percentile(times, 0.95) * 1000
        assert sum(store.page(RunFilter(), None, 1).counts.values()) == size.rows
    return found


def _parts(store: SqlStore, settings: Settings) -> tuple[Any, Any]:
    from supervisor.objectstores.filesystem import FilesystemStore
    from supervisor.reconciler.system_clock import EventWake, SystemClock
    from supervisor.services.parts import Parts
    from supervisor.services.runs.heartbeat import BeatInbox
    from tests.fakes.platform import FakePlatform
    from tests.fakes.provider import FakeProvider

    clock, wake, objects = SystemClock(), EventWake(), FilesystemStore.at(settings.store_url)
    knobs = replace(settings.knobs, supervisor_id=store.supervisor_id)
    providers = {"local": FakeProvider(clock)}
    parts = Parts(store, objects, clock, wake, providers, {"local": ""}, knobs, FakePlatform())
    return parts, BeatInbox(store, clock, wake, 10.0)


def fill(settings: Settings, count: int) -> None:
    """`count` runs: most have ended, one in fifty waits for capacity."""
    now = time.time()
    with scene.opened(settings) as store:
        cell = scene.cell_of(settings)
        made = [_run(n, cell, store.supervisor_id, now) for n in range(BLOCK)]
        scene.insert(store, made, [{"team": f"t{n % 10}"} for n in range(BLOCK)])
        with store.database.writing() as session:
            run = session.connection.exec_driver_sql
            run("UPDATE outbox SET next_at = NULL, delivered_at = 0")  # told long ago
            for statement in _copies(count // BLOCK):
                run(statement)
            run("ANALYZE")
        assert count % BLOCK == 0


def _run(number: int, cell: str, supervisor_id: str, now: float) -> Any:
    name = f"run-{number:05d}"
    if number % 50 == 0:
        return scene.pending(
            name, cell, now, status=Status.WAITING, waiting=Waiting(since=now), next_at=now + 900, cause="no_capacity"
        )
    zone = scene.ZONES[number % 3]
    return scene.ended(name, cell, supervisor_id, zone, now, ENDS[number % 5])


def _copies(times: int) -> list[str]:
    """SQLite's words for: all rows again and again, with the keys and names that follow."""
    own = {
        "key": "key + n * 1000",
        "run_id": "run_id || '-' || n",
        "doc": "replace(doc, '\"' || run_id || '\"', '\"' || run_id || '-' || n || '\"')",
        "run": "run + n * 1000",
    }
    each = f"WITH RECURSIVE again(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM again WHERE n < {times - 1}) "  # noqa: S608
    statements = []
    for table in (runs, specs, labels, attempts, tries, pulses, events):
        names = [column.key for column in table.c if not (table is events and column.key == "id")]
        has_id = table is runs
        cells = [own.get(name, name) if has_id or name == "run" else name for name in names]
        statements.append(
            f"INSERT INTO {table.name} ({', '.join(names)}) {each}"  # noqa: S608 - names of our own tables
            f"SELECT {', '.join(cells)} FROM {table.name}, again WHERE {'key' if has_id else 'run'} <= {BLOCK}"
        )
    return statements if times > 1 else []


TARGET_MS = 10.0
NAMES = ("list_http_p95_ms", "list_label_http_p95_ms", "list_service_p95_ms", "list_label_service_p95_ms")
BENCHES = (Bench(listing, tuple(Row(name, "ms", target=TARGET_MS) for name in NAMES)),)
