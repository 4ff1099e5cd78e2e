"""From a change in the database to the changed chip in a real browser, while two hundred other pages are open.

Runs that wait for a machine are stopped and resumed over HTTP, two a second. An event's time is taken before its
commit; a chip counts as changed when the browser is about to paint it. The other pages (tabs.py) hear the same events
and ask for the whole page again as browsers do.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from tests.benchmarks import house, scene
from tests.benchmarks.row import Bench, Figure, Row, Size, percentile

TABS, PEOPLE, RUNS, CHANGES_PER_S = 200, 4, 50, 2
# A rate that all pages of a person together keep to, beside the submits of the bench itself.
SETTINGS = {**scene.FULL_UP, **house.FLOODED}
WATCH = """() => {
  window.seen = [];
  const chip = (row) => row.querySelector(".chip").textContent.trim().split(/\\s+/).pop();
  const rows = () => new Map([...document.querySelectorAll("tr[id^=run-]")].map((row) => [row.id.slice(4), chip(row)]));
  let before = rows();
  new MutationObserver(() => requestAnimationFrame(() => {
    const now = rows();
    for (const [run, text] of now) if (before.get(run) !== text) window.seen.push([run, text, Date.now()]);
    before = now;
  })).observe(document.getElementById("rows"), { subtree: true, childList: true, characterData: true });
}"""


def chips(size: Size) -> Mapping[str, Figure]:
    sync_api, program = _browser()
    with scene.folder() as folder, house.plain(folder, SETTINGS) as daemon:
        names = scene.names(RUNS)
        for name in names:
            daemon.submit(name, command=["true"])
        daemon.wait_status(names[-1], "waiting")
        rss_before = house.rss_kib(daemon.pid)
        with _tabs(daemon, names) as child, sync_api.sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])
            page = _opened(browser, daemon)
            began, cpu = time.monotonic(), house.cpu_s(daemon.pid)
            changes = _change(daemon, page, names, 3 * size.seconds)
            cores = (house.cpu_s(daemon.pid) - cpu) / (time.monotonic() - began)
            rss = house.rss_kib(daemon.pid) - rss_before
            seen = page.evaluate("window.seen")
            browser.close()
            others = json.loads(child.communicate("", timeout=60)[0])
        delays = _delays(daemon, seen)
    assert not others["ended"], others
    assert len(delays) >= 0.95 * changes, f"{len(delays)} of {changes} changes were seen"
    note = {
        "tabs": TABS,
        "changes": changes,
        "median_ms": round(percentile(delays, 0.5), 1),
        "slowest_ms": round(max(delays), 1),
        "cores": round(cores, 2),
        "rss_mb": round(rss / 1024, 1),
        "pages_asked": others["asked"],
        "page_p95_ms": others["asked_p95_ms"],
        "rows_pushed": others["rows"],
    }
    return {"ui_chip_p95_ms": Figure(percentile(delays, 0.95), note=note)}


def _browser() -> tuple[Any, str]:
    """Playwright, which not every installation for tests has, and where Chromium is."""
    from tests.browser.chromium import HOW_TO_INSTALL, program

    path = program()
    if path is None:
        raise FileNotFoundError(f"Chromium is not installed: {HOW_TO_INSTALL}")
    return importlib.import_module("playwright.sync_api"), path


@contextmanager
def _tabs(daemon: house.TimedDaemon, names: list[str]) -> Iterator[subprocess.Popen[str]]:
    """The other pages, once all of them are open."""
    port = daemon.url.rpartition(":")[2]
    stream = f"/ui/live?runs={','.join(names)}"
    command = [sys.executable, "-m", "tests.benchmarks.tabs", port, str(TABS), "/ui/runs", stream]
    wish = {"owner": "bench", "scopes": ["admin"]}
    tokens = [daemon.call("POST", "/v1/tokens", {**wish, "name": f"tabs-{n}"})["token"] for n in range(PEOPLE)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdin is not None
            assert child.stdout is not None
            child.stdin.write(" ".join(tokens) + "\n")
            child.stdin.flush()
            assert child.stdout.readline() == "open\n"
            yield child
        finally:
            child.kill()


def _opened(browser: Any, daemon: house.TimedDaemon) -> Any:
    page = browser.new_page()
    page.goto(f"{daemon.url}/ui/sign-in")
    page.fill("#token", daemon.token)
    page.press("#token", "Enter")
    page.wait_for_selector("tr[id^=run-]")
    page.wait_for_timeout(1000)  # for its stream
    page.evaluate(WATCH)
    return page


def _change(daemon: house.TimedDaemon, page: Any, names: list[str], seconds: float) -> int:
    """Stops and resumes at their pace; how many."""
    began, changes = time.monotonic(), int(seconds * CHANGES_PER_S)
    for number in range(changes):
        page.wait_for_timeout(max(0.0, began + number / CHANGES_PER_S - time.monotonic()) * 1000)
        name, act = names[number % RUNS], ("stop", "resume")[number // RUNS % 2]
        daemon.call("POST", f"/v1/runs/{name}/{act}", {})
    page.wait_for_timeout(2000)
    return changes


def _delays(daemon: house.TimedDaemon, seen: list[tuple[str, str, float]]) -> list[float]:
    """Milliseconds from each stop and resume to the first change of its chip that follows."""
    delays = []
    for name in {run for run, _, _ in seen}:
        events = daemon.call("GET", f"/v1/runs/{name}/events?limit=1000")["events"]
        shown = [at for run, _, at in seen if run == name]
        for event in events:
            if event["kind"] in ("stopped", "resumed"):
                at = datetime.fromisoformat(event["at"]).timestamp() * 1000
                delays += [min(after)] if (after := [one - at for one in shown if one >= at]) else []
    return delays


BENCHES = (Bench(chips, (Row("ui_chip_p95_ms", "ms", target=500.0),)),)
