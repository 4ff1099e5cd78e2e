"""Submits of eight clients over HTTP, while ticks over ten thousand running runs go on beside them.

Every submit wakes the loop, so that it ticks as often as it ever does, and only what happens during a tick counts
(`all_…` is the whole time). The beats of all runs move once in 30 seconds, as they do with agents that push
rarely. No zone has room for what is submitted, and that is known: it is taken as far
as `waiting`. What the disk gives to a bare table is measured in the same minute and on the same database.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.benchmarks import beat_writer, disk, house, scene
from tests.benchmarks.client import Answers, clients
from tests.benchmarks.disk import Commits
from tests.benchmarks.row import AT_LEAST, Bench, Figure, Row, Size, percentile
from tests.integration.postgres_server import DURABLE, running_postgres

BEATS_MOVE_IN_S = 30.0
OF_BARE = 0.8  # the share of the bare commits per second that is promised, up to the cap
CAPS = {"sqlite": 500.0, "postgres": 400.0}
P95_MS, P95_COMMITS = 60.0, 8.0
HOLD_MS = 20.0


def on_sqlite(size: Size) -> Mapping[str, Figure]:
    with scene.folder() as folder:
        bare = disk.sqlite_commits(folder, size.seconds / 5)
        return _submits("sqlite", folder, None, bare, size)


def on_postgres(size: Size) -> Mapping[str, Figure]:
    with scene.folder() as folder, running_postgres(DURABLE) as server:
        bare = disk.postgres_commits(server.url(), size.seconds / 5)
        return _submits("postgres", folder, server.url(server.create_database()), bare, size)


def _submits(kind: str, folder: Path, url: str | None, bare: Commits, size: Size) -> Mapping[str, Figure]:
    with _busy_house(folder, url, size) as daemon:
        cpu = house.cpu_s(daemon.pid)
        seen = clients("submit", daemon.url, size.seconds, token=daemon.token).only("201")
        cpu = house.cpu_s(daemon.pid) - cpu
        told = daemon.ticks()
    ticks = _during(told, seen)
    beside = [took for at, took in seen.spans if any(at < end and at + took > begin for begin, end in ticks)]
    assert beside, "no tick ran while runs were submitted"
    ended = sum(begin <= at + took < end for at, took in seen.spans for begin, end in ticks)
    ticked_s = sum(end - begin for begin, end in ticks)
    enough = min(OF_BARE * bare.per_s, CAPS[kind])
    quick = max(P95_MS, P95_COMMITS * bare.p95_ms)
    rate = {
        "all_per_s": round(seen.per_s()),
        "ticks": len(ticks),
        "ticked_share": round(ticked_s / size.seconds, 2),
        "server_cores": round(cpu / size.seconds, 2),
    }
    hold_ms = max(hold_ms for _, _, hold_ms in told[-len(ticks) :])
    return {
        f"submit_{kind}_lock_hold_ms": Figure(hold_ms, bare.longest_ms, HOLD_MS + bare.longest_ms),
        f"submit_{kind}_per_s": Figure(ended / ticked_s, bare.per_s, enough, rate),
        f"submit_{kind}_p95_ms": Figure(
            percentile(beside, 0.95) * 1000, bare.p95_ms, quick, {"all_p95_ms": round(seen.p95_ms(), 1)}
        ),
    }


@contextmanager
def _busy_house(folder: Path, url: str | None, size: Size) -> Iterator[house.CrowdedDaemon]:
    """Its runs have ticked once, their beats move, and its zones are known to be full."""
    settings = scene.settings_for(folder, url, **scene.FULL_UP)
    scene.crowd(settings, size.runs)
    environ = {**scene.FULL_UP, "SPOT_DATABASE_URL": settings.database_url}
    with beat_writer.writer(folder / "objects", size.runs) as writer:
        writer.write(2)
        with house.crowded(folder, environ) as daemon:
            daemon.submit("first", **scene.SPEC)
            daemon.wait_status("first", "waiting")
            writer.begin(3, BEATS_MOVE_IN_S)
            yield daemon


def _during(ticks: list[tuple[float, float, float]], seen: Answers) -> list[tuple[float, float]]:
    began = min(at for at, _ in seen.spans)
    ended = max(at + took for at, took in seen.spans)
    return [(max(begin, began), min(end, ended)) for begin, end, _ in ticks if end > began and begin < ended]


def _rows(kind: str) -> tuple[Row, ...]:
    return Row(f"submit_{kind}_per_s", "submits/s", AT_LEAST), Row(f"submit_{kind}_p95_ms", "ms")


BENCHES = (
    Bench(on_sqlite, (*_rows("sqlite"), Row("submit_sqlite_lock_hold_ms", "ms"))),
    Bench(on_postgres, _rows("postgres")),
)
