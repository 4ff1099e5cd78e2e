"""What runs have cost so far, and what their files cost to keep: figures of the database beside one listing.

What is not known is null, never 0: no price for an attempt makes the sum a lower bound and says so, no price for the
store leaves the month's cost open, a store that cannot be read leaves the bytes open.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from supervisor.ports.objectstore import StoreUnavailable
from supervisor.ports.store import RunFilter
from supervisor.services.parts import Parts
from supervisor.services.queries import Queries
from supervisor.services.run_view import Json, usd
from supervisor.services.stored import GIB, KINDS, Stored, code_size, stored


def cost_page(parts: Parts, queries: Queries, where: RunFilter, page_size: int, cursor: str | None) -> Json:
    """The runs of one page of the list, newest first, with their total. Raises CursorInvalid."""
    page = queries.page(where, page_size, cursor)
    shown = _costs(parts, page["runs"])
    code = _code_size(parts)
    return {
        "runs": shown,
        "total": _total(shown),
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


def _total(runs: Sequence[Json]) -> Json:
    """Sums of what is known; a sum in which nothing is known is null."""
    sizes = [run["stored_bytes"] for run in runs if run["stored_bytes"] is not None]
    whole = len(sizes) == len(runs)
    return {
        "runs": len(runs),
        "attempts": sum(run["attempts"] for run in runs),
        "cost_usd": _sum(runs, "cost_usd"),
        "lower_bound": any(run["lower_bound"] for run in runs),
        "on_demand_usd": _sum(runs, "on_demand_usd"),
        "usd_per_h": _sum(runs, "usd_per_h"),
        "files": sum(run["files"] for run in runs) if whole else None,
        "stored_bytes": {kind: sum(size[kind] for size in sizes) for kind in KINDS} if whole else None,
        "stored_usd_per_month": _sum(runs, "stored_usd_per_month"),
    }


def _sum(runs: Sequence[Json], name: str) -> float | None:
    known = [run[name] for run in runs if run[name] is not None]
    return usd(sum(known)) if known else None
