"""The page of a group: one row for each cell of a sweep, with its values, step, metrics, cost and status sentence.

The API lists the runs of the group in the order of their submit. The page can order its rows by any value, metric or
cost; the address says by which.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import Response

from supervisor.dashboard import rendering
from supervisor.dashboard.pages.runs import RESUMABLE, STOPPABLE, Wanted, choices
from supervisor.dashboard.public_api import Api
from supervisor.wording.cells import CellRow, CellTable, cell_table, group_cost, limit_text
from supervisor.wording.figures import DASH

CELLS = 500  # of one page
COST = "cost"


async def show(request: Request, api: Api) -> Response:
    """`?sort=label.NAME`, `metric.NAME` or `cost`, with `-` before it the other way round. Raises SignInNeeded,
    Refused."""
    name, sort = request.path_params["group"], request.query_params.get("sort", "")
    cursor = request.query_params.get("cursor", "")
    query = [("group", name), ("sort", "created"), ("page_size", str(CELLS))]
    listing = await api.get("/v1/runs", [*query, ("cursor", cursor)] if cursor else query)
    runs, counts = listing["runs"], listing["summary"]["counts"]
    table = cell_table(runs)
    following = listing["next_cursor"]
    return await rendering.page(
        request,
        "group.html",
        200 if counts else 404,
        group=name,
        table=table,
        rows=ordered(table, sort),
        sort=sort,
        numeric=_numeric(table),
        sorted_by=partial(sort_address, name, sort),
        summary=listing["summary"],
        total=sum(counts.values()),
        cost=group_cost(runs),
        limit=limit_text(runs),
        choices=choices(Wanted((("group", name),)), counts),
        stoppable=sum(counts.get(status, 0) for status in STOPPABLE),
        resumable=sum(counts.get(status, 0) for status in RESUMABLE),
        next_page=None if following is None else _address(name, sort=sort, cursor=following),
        first_page=_address(name, sort=sort) if cursor else None,
    )


def _numeric(table: CellTable) -> dict[str, bool]:
    """axis -> its column has numbers only, and so stands at the right."""
    return {
        name: all(_number(row.values[n]) is not None for row in table.rows if row.values[n] != DASH)
        for n, name in enumerate(table.axes)
    }


def ordered(table: CellTable, sort: str) -> Sequence[CellRow]:
    """By numbers where a text is one, then by text; rows without a value come last, in both directions."""
    name, down = sort.removeprefix("-"), sort.startswith("-")
    texts = _texts(table, name)
    if texts is None:
        return table.rows
    pairs = list(zip(texts, table.rows, strict=True))
    valued = sorted((pair for pair in pairs if pair[0] != DASH), key=lambda pair: _key(pair[0]), reverse=down)
    return [row for _, row in (*valued, *(pair for pair in pairs if pair[0] == DASH))]


def _texts(table: CellTable, name: str) -> list[str] | None:
    """Of this column; None = there is no such column."""
    kind, _, name = name.partition(".")
    if kind == COST:
        return [str((row.run.get("cost") or {}).get("usd") or 0.0) for row in table.rows]
    if kind == "metric" and name in table.metrics:
        return [row.metrics[table.metrics.index(name)] for row in table.rows]
    if kind == "label" and name in table.axes:
        return [row.values[table.axes.index(name)] for row in table.rows]
    return None


def _key(text: str) -> tuple[bool, float, str]:
    number = _number(text)
    return (True, 0.0, text) if number is None else (False, number, "")


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


def _address(name: str, **query: str) -> str:
    text = urlencode({key: value for key, value in query.items() if value})
    return f"/ui/groups/{quote(name, safe='')}" + (f"?{text}" if text else "")


def sort_address(group: str, sort: str, name: str) -> str:
    """Of the same page in the order of this column; a second time turns it round."""
    return _address(group, sort=f"-{name}" if sort == name else name)
