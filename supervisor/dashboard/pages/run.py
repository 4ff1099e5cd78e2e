"""One run: what happened, what was done about it, what it costs, what is next, and whether somebody must act.

Its history on a page of its own, newest first: who did it, when, and the data behind each line. Its charts over wall
time: a few on its overview, all of them on a page of their own. Which time they show stands in the address:
`?since=&until=` as the API has them, or `?last=hour|day`, which goes along with the clock until the run is over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from supervisor.dashboard import rendering
from supervisor.dashboard.drawing import charts
from supervisor.dashboard.drawing.timeline import NEWEST, timeline
from supervisor.dashboard.pages import evidence, log
from supervisor.dashboard.public_api import Api, Json
from supervisor.dashboard.rendering import assets
from supervisor.dashboard.run_rows import DID
from supervisor.dashboard.words import moment_text
from supervisor.domain.events import ROUTINE
from supervisor.domain.status import TERMINAL
from supervisor.wording.figures import epoch

POINTS = 240  # as many as a line that nobody can point at needs
SCRIPTS = ("uPlot.iife.min.js", "uPlot.min.css")
LASTS_S = {"hour": 3600.0, "day": 86_400.0}


async def charts_panel(api: Api, run: Json, attempts: Sequence[Json], request: Request) -> Json | None:
    """What `charts_panel.html` shows as `charts`; None where there will be nothing to draw. Raises
    SignInNeeded, Refused."""
    if are_kept(request):
        return None
    series = await api.get(_series_path(run), [("points", str(POINTS))])
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


async def show_charts(request: Request, api: Api) -> Response:
    """Raises SignInNeeded, Refused."""
    run: Json = await api.get(f"/v1/runs/{request.path_params['run_id']}")
    if are_kept(request):
        return await rendering.page(request, "charts_kept.html", run=run)
    now = rendering.of_every_page(request)["now"]
    wish = _asked_times(request.query_params, epoch(run["status_since"]) or now if run["status"] in TERMINAL else now)
    query = [(name, value) for name, value in wish.items() if name in ("since", "until") and value]
    series, answer = await api.together(
        api.get(_series_path(run), [*query, ("points", str(POINTS))]), api.get(f"/v1/runs/{run['run_id']}/attempts")
    )
    points, attempts = series["points"], answer["attempts"]
    times = _times(series, run, attempts, bool(query))
    drawn = charts.draw(charts.kinds(points), points, attempts, times, charts.LARGE_PX)
    return await rendering.tab(
        request,
        "charts.html",
        run,
        "charts",
        drawn=drawn,
        bands=bands(attempts),
        wish=wish,
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
    return [[attempt["number"], epoch(attempt["started_at"]), epoch(attempt["ended_at"])] for attempt in attempts]


def _asked_times(query: Mapping[str, str], end: float) -> dict[str, str]:
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
    ends = [epoch(moment) for moment in [*seen, *(attempt["ended_at"] for attempt in attempts)]]
    return begin, max([moment for moment in ends if moment is not None], default=end)


def _series_path(run: Json) -> str:
    return f"/v1/runs/{run['run_id']}/beats"


RECENT = 12  # events


async def show(request: Request, api: Api) -> Response:
    """`?attempts=all`: every attempt, not the newest only; `?did=`: a change that was just made."""
    run_id = request.path_params["run_id"]
    newest_first = [("newest_first", "true"), ("limit", str(4 * RECENT))]
    run, attempts, history = await api.together(
        of(request, api), api.get(f"/v1/runs/{run_id}/attempts"), api.get(f"/v1/runs/{run_id}/events", newest_first)
    )
    drawn, why, said = await api.together(
        charts_panel(api, run, attempts["attempts"], request),
        evidence.panel(api, run, attempts["attempts"]),
        log.tail(api, run),
    )
    every = rendering.of_every_page(request)
    all_shown = request.query_params.get("attempts") == "all"
    return await rendering.tab(
        request,
        "run.html",
        run,
        "overview",
        did=DID.get(request.query_params.get("did", "")),
        timeline=timeline(run, attempts, every["now"], None if all_shown else NEWEST),
        all_shown=all_shown and len(attempts["attempts"]) > NEWEST,
        events=[event for event in history["events"] if event["kind"] not in ROUTINE][:RECENT],
        charts=drawn,
        evidence=why,
        log=None if why and why["newest"] and why["shown"] else said,  # its last lines are there already
    )


async def of(request: Request, api: Api) -> Json:
    """The run of this address. Raises SignInNeeded, Refused."""
    run: Json = await api.get(f"/v1/runs/{request.path_params['run_id']}")
    return run


PAGE = 50


async def history(request: Request, api: Api) -> Response:
    """`?actor=` what one caller did; `?cloud=true` with what the cloud recorded; `?before=` older than this event."""
    params = {name: request.query_params.get(name, "").strip() for name in ("actor", "cloud", "before")}
    given = {name: value for name, value in params.items() if value}
    query = [("newest_first", "true"), ("limit", str(PAGE)), *given.items()]
    run, history = await api.together(
        of(request, api), api.get(f"/v1/runs/{request.path_params['run_id']}/events", query)
    )
    return await rendering.tab(
        request,
        "run_history.html",
        run,
        "events",
        events=history["events"],
        cloud_unread=history["cloud_unread"],
        params=params,
        older=_older(request, history, given),
        newest=_address(request, {**given, "before": ""}) if params["before"] else "",
    )


def _older(request: Request, history: Json, given: dict[str, str]) -> str:
    """The address of the next page; "" = there is none. Lines of the cloud have no id: pages are counted by ours."""
    ours = [event["id"] for event in history["events"] if event["id"] is not None]
    if history["complete"] or not ours:
        return ""
    return _address(request, {**given, "before": str(min(ours))})


def _address(request: Request, query: dict[str, str]) -> str:
    text = urlencode({name: value for name, value in query.items() if value})
    return request.url.path + (f"?{text}" if text else "")
