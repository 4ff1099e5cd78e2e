"""What runs have cost so far, and what their files cost to keep: figures of the database beside one listing.

What is not known is null, never 0: no price for an attempt makes the sum a lower bound and says so, no price for the
store leaves the month's cost open, a store that cannot be read leaves the bytes open.

What beats cost in a bucket: requests per month at the paces of the settings, times their price.

Each stored beat is one write; with it the agent reads the baton and the stop marker. The supervisor writes its canary
and lists all beats at each look, 1,000 a page, and reads each run's stop marker in a rotation of its own.
Prices in US dollars per request: Google's Class A (writes, listings) and Class B (reads) operations of Standard storage
in one region, as read on 2026-09-20 from https://cloud.google.com/storage/pricing. docs/settings.md has the table.

What the runs' files take in the object store, from one listing.

Bytes are counted by what they are for; what no row of a run owns is not counted. A listing that breaks off is worth
nothing: StoreUnavailable, never half a sum.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from supervisor.contract import runfiles
from supervisor.ports.objectstore import ObjectStore, StoreUnavailable
from supervisor.ports.store import RunFilter
from supervisor.services.parts import Parts
from supervisor.services.reading.queries import Queries
from supervisor.services.views.run_view import Json, usd

KINDS = ("results", "checkpoints", "logs", "evidence", "other")
GIB = 1 << 30


@dataclass(slots=True)
class Stored:
    """Bytes and files of one run, or of several. `size`: kind -> bytes."""

    files: int = 0
    size: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))

    @property
    def total(self) -> int:
        return sum(self.size.values())

    def add(self, kind: str, size: int) -> None:
        self.files += 1
        self.size[kind] += size


def stored(objects: ObjectStore, run_ids: Sequence[str]) -> dict[str, Stored]:
    """run id -> what it has stored, for each of them. Raises StoreUnavailable."""
    sums = {run_id: Stored() for run_id in run_ids}
    if not sums:
        return sums
    for page in objects.pages(_prefix(run_ids)):
        for info in page.objects:
            run_id, _, name = info.key[len(runfiles.RUNS) :].partition("/")
            if run_id in sums:
                sums[run_id].add(kind_of(name), info.size)
    return sums


def code_size(objects: ObjectStore) -> int:
    """Bytes of the code bundles: shared by the runs that use them. Raises StoreUnavailable."""
    return sum(info.size for page in objects.pages(runfiles.CODE) for info in page.objects)


def kind_of(name: str) -> str:
    """`name`: below the run's folder."""
    first, _, rest = name.partition("/")
    if rest and first in KINDS:
        return first
    evidence = first == "instances" and name.endswith((".evidence.json", ".console.log"))
    return "evidence" if evidence else "other"


def _prefix(run_ids: Sequence[str]) -> str:
    """The narrowest listing that shows all of them."""
    if len(run_ids) == 1:
        return runfiles.folder(run_ids[0])
    shared = os.path.commonprefix(list(run_ids))  # noqa: RUF071 a listing compares characters too
    return runfiles.RUNS + shared


CLASS_A_USD = 0.005 / 1000
CLASS_B_USD = 0.0004 / 1000
MONTH_S = 30 * 86_400.0
READS_PER_BEAT = 2  # the baton and the stop marker
RUNS_PER_PAGE = 1000


@dataclass(frozen=True, slots=True)
class BeatCost:
    """Dollars per month. `looks_usd`: of the supervisor, for all its runs together."""

    beats_usd: float  # of one run that trains the whole month
    logs_usd: float  # the same, its log chunks
    looks_usd: float


def beat_cost(
    beat_store_s: float, log_chunk_s: float, poll_interval_s: float, stop_poll_s: float, live_runs: int = 1
) -> BeatCost:
    pages = max(1, -(-live_runs // RUNS_PER_PAGE))
    marker_usd = MONTH_S / stop_poll_s * CLASS_B_USD
    return BeatCost(
        beats_usd=MONTH_S / beat_store_s * (CLASS_A_USD + READS_PER_BEAT * CLASS_B_USD) + marker_usd,
        logs_usd=MONTH_S / log_chunk_s * CLASS_A_USD,
        looks_usd=MONTH_S / poll_interval_s * (1 + pages) * CLASS_A_USD,
    )


def cost_page(
    parts: Parts, queries: Queries, where: RunFilter, *, page_size: int, cursor: str | None, with_code: bool = True
) -> Json:
    """The runs of one page of the list, newest first. `with_code` False: the bundles, which belong to all owners
    together, are not told of. Raises CursorInvalid."""
    page = queries.page(where, page_size, cursor)
    code = _code_size(parts) if with_code else None
    return {
        "runs": _costs(parts, page["runs"]),
        "code": {"stored_bytes": code, "stored_usd_per_month": _usd_per_month(parts, code)},
        "next_cursor": page["next_cursor"],
    }


def run_cost(parts: Parts, queries: Queries, run_id: str) -> Json:
    """One run. Raises NotFound."""
    return _costs(parts, [queries.view(queries.find(run_id))])[0]


def _costs(parts: Parts, runs: Sequence[Json]) -> list[Json]:
    try:
        sums: Mapping[str, Stored] | None = stored(parts.objects, [run["run_id"] for run in runs])
    except StoreUnavailable:
        sums = None
    return [_cost(parts, run, None if sums is None else sums[run["run_id"]]) for run in runs]


def _cost(parts: Parts, run: Json, kept: Stored | None) -> Json:
    spent, is_complete = run["cost"]["usd"], run["cost"]["known"]
    return {
        "run_id": run["run_id"],
        "status": run["status"],
        "attempts": run["counters"]["attempts"],
        "cost_usd": spent if is_complete or spent else None,
        "lower_bound": not is_complete,
        "on_demand_usd": run["cost"]["on_demand_usd"],
        "usd_per_h": run["price_usd_per_h"],
        "files": None if kept is None else kept.files,
        "stored_bytes": None if kept is None else dict(kept.size),
        "stored_usd_per_month": _usd_per_month(parts, None if kept is None else kept.total),
    }


def _code_size(parts: Parts) -> int | None:
    try:
        return code_size(parts.objects)
    except StoreUnavailable:
        return None


def _usd_per_month(parts: Parts, size_bytes: int | None) -> float | None:
    price = parts.defaults.store_usd_per_gib_month
    return None if price is None or size_bytes is None else usd(price * size_bytes / GIB)
