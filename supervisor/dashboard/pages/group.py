"""The page of a group: one row for each cell of a sweep, with its values, step, metrics, cost and status sentence; and
the page that compares runs.

The API lists the runs of the group in the order of their submit. The page can order its rows by any value, metric or
cost; the address says by which. Compared runs are named in the address, or are those of a group: their curves lie over
each other, each run with the same color everywhere.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import partial
from typing import NamedTuple
from urllib.parse import quote, urlencode

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from supervisor.dashboard import rendering
from supervisor.dashboard.drawing import charts, curves
from supervisor.dashboard.pages.run import chooser, step_range
from supervisor.dashboard.pages.runs import RESUMABLE, STOPPABLE, Wanted, choices
from supervisor.dashboard.public_api import Api, Json
from supervisor.wording.cells import METRICS_MOST, CellRow, CellTable, cell_table, group_cost, limit_text, verdict_texts
from supervisor.wording.figures import DASH, metric_text

CELLS = 500  # of one page
COST = "cost"
COMPARED_POINTS = 400
CHARTS_MOST = 4  # metrics whose curves are shown where none is named


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


async def compare(request: Request, api: Api) -> Response:
    """`?run_id=`, several times, or `?runs=` with several names, or `?group=`; `?metric=`, `?by=` as the API has them;
    `?sort=last.NAME` or `best.NAME`; the look of the curves as on the page of a run, by step first. Raises
    SignInNeeded, Refused."""
    params = request.query_params
    names = list(dict.fromkeys([*params.getlist("run_id"), *params.get("runs", "").replace(",", " ").split()]))
    group = "" if names else params.get("group", "")
    look = curves.look_of({"x": curves.STEP, **{name: word for name, word in params.items() if word}})
    comparison: Json | None = None
    shown: list[str] = []
    if names or group:
        which = [("run_id", name) for name in names] or [("group", group)]
        query = [
            *which,
            ("points", str(COMPARED_POINTS)),
            *((name, params[name]) for name in ("by", "better") if params.get(name)),
        ]
        wanted = [("metric", name) for name in params.getlist("metric")[:CHARTS_MOST] if name]
        comparison = await api.get("/v1/compare", [*query, *wanted])
        shown = [name for _, name in wanted] or [name for name in [comparison["by"]] if name]
    return await rendering.page(
        request,
        "compare.html",
        names=" ".join(names),
        group=group,
        look=look,
        comparison=comparison,
        shown=shown,
        choose=chooser(request),
        sort=params.get("sort", ""),
        **({} if comparison is None else await run_in_threadpool(_compared, comparison, shown, look, params)),
    )


class ComparedRow(NamedTuple):
    """`number`: of the run, which chooses its color. `values`: last and best of each column, as text."""

    number: int
    run: Json
    values: list[str]


def _compared(comparison: Json, shown: Sequence[str], look: curves.Look, params: Mapping[str, str]) -> Json:
    columns = [*shown, *(name for name in comparison["metrics"] if name not in shown)][:METRICS_MOST]
    rows = [ComparedRow(n, run, _values(run, columns, comparison)) for n, run in enumerate(comparison["runs"])]
    kind, _, name = params.get("sort", "").removeprefix("-").partition(".")
    if name in columns and kind in ("last", "best"):
        at = 2 * columns.index(name) + (kind == "best")
        down = params["sort"].startswith("-")
        valued = [row for row in rows if _number(row.values[at]) is not None]
        valued.sort(key=lambda row: _number(row.values[at]) or 0.0, reverse=down)
        rows = [*valued, *(row for row in rows if row not in valued)]
    return {
        "drawn": curves.compared_charts(comparison, shown, look, step_range(params), charts.LARGE_PX),
        "columns": columns,
        "rows": rows,
        "verdicts": verdict_texts(comparison),
        "best_word": partial(_best_key, comparison),
    }


def _best_key(comparison: Json, name: str) -> str:
    """`lowest` or `highest`. Of the metric that decides, the address may say which."""
    rows = (row for run in comparison["runs"] for row in run["metrics"] if row["name"] == name)
    better = comparison["better"] if name == comparison["by"] else next((row["better"] for row in rows), "min")
    return "highest" if better == "max" else "lowest"


def _values(run: Json, columns: Sequence[str], comparison: Json) -> list[str]:
    by_name = {row["name"]: row for row in run["metrics"]}
    texts = []
    for name in columns:
        for key in ("last", _best_key(comparison, name)):
            value = by_name[name][key] if name in by_name else None
            texts.append(metric_text(None if value is None else value["value"]))
    return texts
