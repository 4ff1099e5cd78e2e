"""The charts of a run over wall time: a few on its overview, all of them on a page of their own.

Which time is shown stands in the address: `?since=&until=` as the API has them, or `?last=hour|day`, which goes along
with the clock until the run is over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from supervisor.dashboard import rendering
from supervisor.dashboard.assets import assets
from supervisor.dashboard.drawing import charts
from supervisor.dashboard.public_api import Api, Json
from supervisor.dashboard.words import moment_text
from supervisor.domain.status import TERMINAL
from supervisor.wording.figures import epoch

POINTS = 240  # as many as a line that nobody can point at needs
SCRIPTS = ("uPlot.iife.min.js", "uPlot.min.css")
LASTS_S = {"hour": 3600.0, "day": 86_400.0}


async def panel(api: Api, run: Json, attempts: Sequence[Json], request: Request) -> Json | None:
    """What `charts_panel.html` shows as `charts`; None where there will be nothing to draw. Raises
    SignInNeeded, Refused."""
    if are_kept(request):
        return None
    series = await api.get(_path(run), [("points", str(POINTS))])
    if not series["points"] and run["status"] in TERMINAL:
        return None
    points = series["points"]
    few, times = charts.few(charts.kinds(points)), _times(series, run, attempts, False)
    return {
        "drawn": charts.draw(few, points, attempts, times, charts.SMALL_PX),
        "bands": bands(attempts),
        "times": times,
        "over": run["status"] in TERMINAL,
    }


async def show(request: Request, api: Api) -> Response:
    """Raises SignInNeeded, Refused."""
    run: Json = await api.get(f"/v1/runs/{request.path_params['run_id']}")
    if are_kept(request):
        return await rendering.page(request, "charts_kept.html", run=run)
    now = rendering.of_every_page(request)["now"]
    asked = _asked(
        request.query_params, epoch(run["status_since"]) or now if run["status"] in TERMINAL else now
    )
    query = [(name, value) for name, value in asked.items() if name in ("since", "until") and value]
    series, answer = await api.together(
        api.get(_path(run), [*query, ("points", str(POINTS))]),
        api.get(f"/v1/runs/{run['run_id']}/attempts"),
    )
    points, attempts = series["points"], answer["attempts"]
    times = _times(series, run, attempts, bool(query))
    drawn = charts.draw(charts.kinds(points), points, attempts, times, charts.LARGE_PX)
    return await rendering.page(
        request,
        "charts.html",
        run=run,
        tab="charts",
        drawn=drawn,
        bands=bands(attempts),
        asked=asked,
        series=series,
        times=times,
        over=run["status"] in TERMINAL,
        begin=moment_text(times[0]),
        end=moment_text(times[1]),
    )


def are_kept(request: Request) -> bool:
    """The page asks itself what has changed, and scripts that have drawn its charts look after them."""
    return rendering.looks_again(request) and set(SCRIPTS) <= assets().urls.keys()


def bands(attempts: Sequence[Json]) -> list[list[Any]]:
    """Of attempts what a script shades: number, start, end (epoch seconds; null = still on)."""
    return [[one["number"], epoch(one["started_at"]), epoch(one["ended_at"])] for one in attempts]


def _asked(query: Mapping[str, str], end: float) -> dict[str, str]:
    """`last`, `since`, `until` as the address has them, "" where it has not. An unknown `last` is none. `end`: of the
    run, else now."""
    last = query.get("last", "")
    if last in LASTS_S:
        return {"last": last, "since": moment_text(end - LASTS_S[last]), "until": ""}
    return {"last": "", "since": query.get("since", ""), "until": query.get("until", "")}


def _times(series: Json, run: Json, attempts: Sequence[Json], ranged: bool) -> tuple[float, float]:
    """Of the axis. Nobody wants to see the weeks since the end of a run, unless he has asked for them."""
    begin, end = epoch(series["since"]) or 0.0, epoch(series["until"]) or 0.0
    if ranged or run["status"] not in TERMINAL:
        return begin, end
    seen = [point["at"] for point in series["points"][-1:]]
    ends = [epoch(moment) for moment in [*seen, *(one["ended_at"] for one in attempts)]]
    return begin, max([moment for moment in ends if moment is not None], default=end)


def _path(run: Json) -> str:
    return f"/v1/runs/{run['run_id']}/beats"
