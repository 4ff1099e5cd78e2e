"""What runs cost: their machines so far, their files per month, and the beats that they store in a bucket.

A cost that is not known is null, never 0. An attempt without a known price makes the sum a lower bound, and the
response says so. Bytes come from one listing of the object store, by what they are for; objects of no known run do not
count, and a listing that breaks off gives no sum at all.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, cast

from pydantic import Field
from typing_extensions import TypedDict

from supervisor.contract import runfiles
from supervisor.contract.heartbeat import glance_s
from supervisor.domain.policies import list_every_s, rest_s
from supervisor.ports.objectstore import ObjectStore, StoreUnavailable
from supervisor.ports.store import RunFilter
from supervisor.services.parts import Parts
from supervisor.services.reading.queries import Queries
from supervisor.services.views.formats import usd
from supervisor.services.views.run_view import RunJson

KINDS = ("results", "checkpoints", "logs", "evidence", "other")
GIB = 1 << 30
# In US dollars per request: Google's Class A (writes, listings) and Class B (reads) operations of Standard storage in
# one region, read on 2026-09-20 from https://cloud.google.com/storage/pricing. docs/settings.md has the table.
CLASS_A_USD = 0.005 / 1000
CLASS_B_USD = 0.0004 / 1000
MONTH_S = 30 * 86_400.0
READS_PER_BEAT = 3  # the baton, the stop marker and the orders
READS_PER_GLANCE = 2  # the stop marker and the orders
RUNS_PER_PAGE = 1000
UNREAD = "Null: the object store could not be read."
MonthlyPrice = Annotated[
    float | None,
    Field(description="Null: the setting store_usd_per_gib_month is not set, or the store could not be read."),
]


class StoredBytes(TypedDict):
    results: int
    checkpoints: int
    logs: int
    evidence: int
    other: int


class RunCost(TypedDict):
    """Costs that are not known are null, never 0."""

    run_id: str
    status: str
    attempts: int
    cost_usd: float | None
    lower_bound: Annotated[
        bool, Field(description="True: the price of an attempt is not known, so the sum leaves it out.")
    ]
    on_demand_usd: float | None
    usd_per_h: Annotated[
        float | None,
        Field(description="Price of the machine, until it is known gone; null: no machine, or its price is not known."),
    ]
    files: Annotated[int | None, Field(description=UNREAD)]
    stored_bytes: Annotated[StoredBytes | None, Field(description=UNREAD)]
    stored_usd_per_month: MonthlyPrice


class CodeCost(TypedDict):
    """All code bundles together. Runs of all owners share them, so only a token with the scope admin sees them."""

    stored_bytes: Annotated[int | None, Field(description=f"{UNREAD} Or this token may not see it.")]
    stored_usd_per_month: MonthlyPrice


class CostList(TypedDict):
    runs: list[RunCost]
    code: CodeCost
    next_cursor: str | None


@dataclass(slots=True)
class _Stored:
    """Bytes and files of one run. `size_bytes`: by kind."""

    files: int = 0
    size_bytes: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KINDS, 0))


def cost_page(
    parts: Parts, queries: Queries, where: RunFilter, *, page_size: int, cursor: str | None, with_code: bool = True
) -> CostList:
    """The runs of one page of the list, newest first. `with_code` False: without the code bundles, which belong to all
    owners together. Raises CursorInvalid."""
    page = queries.page(where, page_size, cursor)
    code_bytes = _code_bytes(parts) if with_code else None
    return {
        "runs": _costs(parts, page["runs"]),
        "code": {"stored_bytes": code_bytes, "stored_usd_per_month": _usd_per_month(parts, code_bytes)},
        "next_cursor": page["next_cursor"],
    }


def run_cost(parts: Parts, queries: Queries, run_id: str) -> RunCost:
    """One run. Raises NotFound."""
    return _costs(parts, [queries.view(queries.find(run_id))])[0]


def _costs(parts: Parts, runs: Sequence[RunJson]) -> list[RunCost]:
    try:
        stored = _stored(parts.objects, [run["run_id"] for run in runs])
    except StoreUnavailable:
        stored = {}
    return [_cost(parts, run, stored.get(run["run_id"])) for run in runs]


def _cost(parts: Parts, run: RunJson, stored: _Stored | None) -> RunCost:
    """`stored` None: not known."""
    spent_usd, is_complete = run["cost"]["usd"], run["cost"]["known"]
    return {
        "run_id": run["run_id"],
        "status": run["status"],
        "attempts": run["counters"]["attempts"],
        "cost_usd": spent_usd if is_complete or spent_usd else None,
        "lower_bound": not is_complete,
        "on_demand_usd": run["cost"]["on_demand_usd"],
        "usd_per_h": run["price_usd_per_h"],
        "files": None if stored is None else stored.files,
        "stored_bytes": None if stored is None else cast(StoredBytes, stored.size_bytes),
        "stored_usd_per_month": _usd_per_month(parts, None if stored is None else sum(stored.size_bytes.values())),
    }


def _usd_per_month(parts: Parts, size_bytes: int | None) -> float | None:
    price = parts.defaults.store_usd_per_gib_month
    return None if price is None or size_bytes is None else usd(price * size_bytes / GIB)


def _code_bytes(parts: Parts) -> int | None:
    """Of the code bundles, which runs share. None: the store could not be read."""
    try:
        return sum(info.size for page in parts.objects.pages(runfiles.CODE) for info in page.objects)
    except StoreUnavailable:
        return None


def _stored(objects: ObjectStore, run_ids: Sequence[str]) -> dict[str, _Stored]:
    """Run id -> what it has stored, for each of them. Raises StoreUnavailable."""
    sums = {run_id: _Stored() for run_id in run_ids}
    if not sums:
        return sums
    for page in objects.pages(_prefix(run_ids)):
        for info in page.objects:
            run_id, _, name = info.key[len(runfiles.RUNS) :].partition("/")
            if run_id in sums:
                sums[run_id].files += 1
                sums[run_id].size_bytes[_kind_of(name)] += info.size
    return sums


def _kind_of(name: str) -> str:
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


CONTROL_USD = 0.02  # what the control of a run should cost in a month


@dataclass(frozen=True, slots=True)
class BeatCost:
    """Dollars per month. `looks_usd`: of the supervisor, for all its runs together."""

    beats_usd: float  # of one run that trains the whole month
    logs_usd: float  # the same, its log chunks
    looks_usd: float


def beat_cost(
    beat_store_s: float, log_chunk_s: float, poll_interval_s: float, stop_poll_s: float, live_runs: int = 1
) -> BeatCost:
    """At these paces of the settings, where no beat is pushed. Each stored beat is one write; with it the agent reads
    the baton, the stop marker and the orders. At each tick the supervisor writes its canary and lists all beats, 1,000
    a page; it reads each run's stop marker in a rotation of its own, at least one a tick."""
    pages = max(1, -(-live_runs // RUNS_PER_PAGE))
    marker_usd = MONTH_S / stop_poll_s * CLASS_B_USD
    due = live_runs * poll_interval_s / stop_poll_s  # markers in each tick
    return BeatCost(
        beats_usd=MONTH_S / beat_store_s * (CLASS_A_USD + READS_PER_BEAT * CLASS_B_USD) + marker_usd,
        logs_usd=MONTH_S / log_chunk_s * CLASS_A_USD,
        looks_usd=MONTH_S / poll_interval_s * ((1 + pages) * CLASS_A_USD + (math.ceil(due) - due) * CLASS_B_USD),
    )


def resting_cost(
    beat_store_s: float, log_chunk_s: float, poll_interval_s: float, stop_poll_s: float, live_runs: int = 1
) -> BeatCost:
    """The same where pushed beats are acknowledged (reconciler/observing/resting): a stored beat an hour; in between
    the agent reads marker and orders, and the supervisor reads each marker in its turn and lists rarely."""
    pages = max(1, -(-live_runs // RUNS_PER_PAGE))
    glances = MONTH_S / glance_s(beat_store_s) - MONTH_S / rest_s(beat_store_s)
    marker_usd = MONTH_S / max(stop_poll_s, poll_interval_s) * CLASS_B_USD
    beat_usd = CLASS_A_USD + READS_PER_BEAT * CLASS_B_USD
    return BeatCost(
        beats_usd=MONTH_S / rest_s(beat_store_s) * beat_usd + glances * READS_PER_GLANCE * CLASS_B_USD + marker_usd,
        logs_usd=MONTH_S / log_chunk_s * CLASS_A_USD,
        looks_usd=MONTH_S / list_every_s(beat_store_s) * (1 + pages) * CLASS_A_USD,
    )


def cheap_beat_s(stop_poll_s: float) -> float:
    """The shortest pace of stored beats at which a run's beats and stop markers cost no more than `CONTROL_USD`."""
    marker_usd = MONTH_S / stop_poll_s * CLASS_B_USD
    left_usd = max(CONTROL_USD - marker_usd, 1e-9)
    return MONTH_S * (CLASS_A_USD + READS_PER_BEAT * CLASS_B_USD) / left_usd
