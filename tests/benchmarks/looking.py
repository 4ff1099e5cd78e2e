"""The runs page of somebody who is signed in: how long the server takes for fifty rows of a hundred thousand, and how
much a browser fetches that comes for the first time.

The fifty newest runs train, with eleven days of steps each; another supervisor's cell has them, so that this one lets
them be.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping

import httpx

from supervisor.dashboard.rendering import assets
from supervisor.domain.attempt import Pulse
from supervisor.ports.store import Sample
from supervisor.settings.loading import Settings
from tests.benchmarks import house, listing, scene
from tests.benchmarks.client import clients
from tests.benchmarks.row import Bench, Figure, Row, Size

ROWS = 50
POINTS = 1440 + 10 * 144  # of a run: a day of minutes, ten days of ten minutes
ATTEMPTS = 20
ASSET = re.compile(r'(?:src|href)="(/ui/static/[^"]+)"')


def looked(size: Size) -> Mapping[str, Figure]:
    if assets().missing:
        raise FileNotFoundError(f"scripts are not installed, run make env: {', '.join(assets().missing)}")
    points = POINTS if size.times > 2 else 100
    with scene.folder() as folder:
        settings = scene.settings_for(folder)
        listing.fill(settings, size.rows)
        _training(settings, points)
        with house.plain(folder, house.FLOODED) as daemon:
            with httpx.Client(headers={"Accept-Encoding": "gzip"}, timeout=30.0) as browser:
                browser.cookies.set(f"spot-{daemon.url.rpartition(':')[2]}", daemon.token)
                first_kb, requests = _first_load(browser, daemon.url)
            found = {}
            for name, path in (("ui_runs_p95_ms", "/ui/runs"), ("ui_runs_label_p95_ms", "/ui/runs?label=team%3Dt3")):
                cpu = house.cpu_s(daemon.pid)
                seen = clients("look", daemon.url, size.seconds / 2, 1, 1, path=path, token=daemon.token)
                each_ms = (house.cpu_s(daemon.pid) - cpu) / len(seen.spans) * 1000
                note = {"requests": len(seen.spans), "cpu_ms": round(each_ms, 1)}
                found[name] = Figure(seen.only("200").p95_ms(), note=note)
    return {**found, "ui_first_load_kb": Figure(first_kb, note={"requests": requests})}


def _training(settings: Settings, points: int) -> None:
    """The newest runs of the list, with their series."""
    now = time.time()
    with scene.opened(settings) as store:
        names = [f"live-{number:02d}" for number in range(ROWS)]
        runs = [scene.running(name, "elsewhere", store.supervisor_id, "local-a", now) for name in names]
        made = scene.insert(store, runs, [{"team": "t3", "lr": "0.1"} for _ in runs])
        lease = store.take_lease("bench", "bench", 3600.0, time.monotonic())
        assert lease is not None
        for run in made:
            store.write_pulses([_sample(run.key, now, n, points) for n in range(points)], lease)
        with store.database.writing() as session:
            session.connection.exec_driver_sql("ANALYZE")


def _sample(key: int, now: float, number: int, points: int) -> Sample:
    """The n-th of so many, of which the newest 1440 are a minute apart and those before ten minutes."""
    minutes = points - number
    ago_s = 60.0 * (minutes if minutes <= 1440 else 1440 + 10 * (minutes - 1440))
    step = 50_000 * (number + 1) // points
    attempt = 1 + ATTEMPTS * number // points
    pulse = Pulse(scene.LAUNCH, number, "training", now, now - ago_s, step, 50_000, metrics={"loss": 0.5})
    return Sample(key, now - ago_s, attempt, pulse)


def _first_load(browser: httpx.Client, url: str) -> tuple[float, int]:
    """(KB of the page and of all that it links, with their heads; how many requests)."""
    page = browser.get(url + "/ui/runs")
    assert page.status_code == 200
    assert page.text.count('<tr role="row" id="run-') == ROWS
    answers = [page, *(browser.get(url + address) for address in dict.fromkeys(ASSET.findall(page.text)))]
    assert {answer.status_code for answer in answers} == {200}
    heads = sum(len(name) + len(value) + 4 for answer in answers for name, value in answer.headers.raw)
    return (heads + sum(answer.num_bytes_downloaded for answer in answers)) / 1000, len(answers)


BENCHES = (
    Bench(
        looked,
        (
            Row("ui_runs_p95_ms", "ms", target=40.0),
            Row("ui_runs_label_p95_ms", "ms", target=40.0),
            Row("ui_first_load_kb", "KB", target=60.0),
        ),
    ),
)
