"""No constant silently limits the number of runs: each bound of what is kept in memory is listed, with its reason.

A new bound fails this test until somebody has thought about a supervisor with a hundred thousand active runs.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2] / "supervisor"
SERVER = ("domain", "lifecycle", "objectstores", "reconciler", "services", "storage", "wiring")
SHARED = ("contract/stores",)
SIZE = 256  # a smaller bound is of the parts of one run, or of threads
BOUND = re.compile(r"KEPT|MOST|MAX|REMEMBERED|LIMIT|MIN")
# Lengths of texts and files, times, and the pages in which a list is read.
OTHER = re.compile(r"BYTES|TEXT|_S$|MS$|PAGE|URL|PATH|CHARS|VERSION|SENTENCE|DETAIL")

REASONS = {
    "domain/bundle_index.py MAX_COMPARED": "files of two bundles that are compared",
    "services/access/tokens.py MOST_VALID": "tokens, not runs",
    "services/logs/logs.py CHUNKS_KEPT": "pieces of logs: an older one is read again",
    "services/logs/logs.py LIMIT_MAX": "bytes in one response",
    "services/machines/gc.py MOST": "machines in one call, which says when there are more",
    "services/machines/incidents.py READ_MAX": "incidents in one list, the newest",
    "services/migration/oldrun.py RECORDS_MAX": "records of one imported run",
    "services/migration/oldspec.py ENV_VALUE_MAX": "characters of a value",
    "services/plan/forecasting.py FIRST_LATER_MOST": "runs that are looked at again later: beyond it one is sooner",
    "services/reading/curves.py KEPT_POINTS": "points of series: an older series is read again",
    "services/reading/curves.py POINTS_MAX": "points of a metric in one response",
    "services/reading/ledger.py RUNS_MAX": "runs that one request counts, which says when there are more",
    "services/reading/series.py LINES_KEPT": "lines of steps: an older one is read again",
    "services/runs/many.py MOST": "runs in one command for many, which says when there are more",
    "storage/rows/bases.py READ_MAX": "bases, not runs",
    "storage/store.py PART_MAX": "rows in one transaction of many",
    "contract/stores/durable.py REMEMBERED_MIN": "a floor: twice as many as the largest listing has",
    "domain/beat_decoding.py lru_cache(4096)": "launch ids: an older one is parsed again",
    "lifecycle/ending/ending.py lru_cache(1024)": "verdicts on equal words: an older one is made again",
    "lifecycle/rungs/futures.py EVENTS_MOST": "events of one forecast, which says how many futures it has",
    "lifecycle/rungs/futures.py FUTURE_EVENTS_MOST": "events of one simulated course: beyond it the course has no end",
    "reconciler/acting/act.py DONE_KEPT": "first successes: beyond it a repeated one requests one more tick",
    "reconciler/acting/launches.py UNSENT_KEPT": "calls that were not sent yet: beyond it one counts as repeated",
    "reconciler/acting/sweeping.py RECORDED_KEPT": "warnings about foreign machines: beyond it one is repeated",
    "reconciler/observing/beats.py REJECTIONS_KEPT": "warnings about ignored beats: beyond it one is repeated",
    "reconciler/tick.py OWNERS_KEPT": "owners, not runs",
    "services/access/claims.py SEEN_KEPT": "when sessions were last at the door: beyond it the claim's time counts",
    "services/access/identity.py MOST_KEPT": "callers, not runs",
    "services/reading/series.py POINTS_MAX": "points in one response",
    "services/runs/heartbeat.py FOLLOWED_MAX": "from here on those that nobody reads any more are dropped",
    "services/runs/heartbeat.py NONCES_MIN": "a floor: a few for each active run",
    "services/runs/heartbeat.py REJECTIONS_KEPT": "warnings about refused beats: beyond it one is repeated",
    "services/runs/synced.py lru_cache(256)": "reports of runs that people sync: an older one is read again",
    "services/views/formats.py lru_cache(8192)": "texts of times: an older one is made again",
    "storage/engine/codec.py lru_cache(10000)": "equal values that runs share: beyond it two runs hold their own",
    "storage/rows/pages.py lru_cache(256)": "statements: an older one is built again",
    "storage/rows/rows.py HIDDEN_MAX": "log lines about unreadable rows",
    "storage/rows/rows.py RUNS_KEPT": "decoded rows of lists: an older one is decoded again",
}


def bounds() -> Iterator[str]:
    for folder in (*SERVER, *SHARED):
        for path in sorted((ROOT / folder).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            tree = ast.parse(path.read_text())
            yield from (f"{name} {bound}" for bound in _constants(tree))
            yield from (f"{name} {bound}" for bound in _caches(tree))


def _constants(tree: ast.Module) -> Iterator[str]:
    for node in tree.body:
        if not isinstance(node, ast.Assign) or len(node.targets) != 1:
            continue
        target, value = node.targets[0], node.value
        targets = target.elts if isinstance(target, ast.Tuple) else [target]
        values = value.elts if isinstance(value, ast.Tuple) and isinstance(target, ast.Tuple) else [value]
        for each, number in zip(targets, values, strict=False):
            name = each.id if isinstance(each, ast.Name) else ""
            if BOUND.search(name) and not OTHER.search(name) and _is_large(number):
                yield name


def _caches(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ("lru_cache", "deque"):
            sizes = [*node.args[:1], *(keyword.value for keyword in node.keywords)]
            yield from (f"{node.func.id}({ast.literal_eval(size)})" for size in sizes if _is_large(size))


def _is_large(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int and node.value >= SIZE


def test_each_bound_has_its_reason() -> None:
    assert set(bounds()) == set(REASONS)
