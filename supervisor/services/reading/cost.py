"""What runs have cost so far, and what their files cost to keep: figures of the database beside one listing.

What is not known is null, never 0: no price for an attempt makes the sum a lower bound and says so, no price for the
store leaves the month's cost open, a store that cannot be read leaves the bytes open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from supervisor.ports.objectstore import StoreUnavailable
from supervisor.ports.store import RunFilter
from supervisor.services.files.stored import GIB, Stored, code_size, stored
from supervisor.services.parts import Parts
from supervisor.services.reading.queries import Queries
from supervisor.services.views.run_view import Json, usd


def cost_page(
    parts: Parts,
    queries: Queries,
    where: RunFilter,
    page_size: int,
    cursor: str | None,
    with_code: bool = True,
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
        found: Mapping[str, Stored] | None = stored(parts.objects, [run["run_id"] for run in runs])
    except StoreUnavailable:
        found = None
    return [_cost(parts, run, None if found is None else found[run["run_id"]]) for run in runs]


def _cost(parts: Parts, run: Json, kept: Stored | None) -> Json:
    spent, known = run["cost"]["usd"], run["cost"]["known"]
    return {
        "run_id": run["run_id"],
        "status": run["status"],
        "attempts": run["counters"]["attempts"],
        "cost_usd": spent if known or spent else None,
        "lower_bound": not known,
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
