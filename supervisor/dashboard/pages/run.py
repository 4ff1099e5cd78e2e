"""One run: its overview, its charts, and its history.

The overview says what happened, what was done, what it costs, what is next, and whether a person must act. The charts
are over wall time: a few on the overview, all of them on a page of their own. The address says which time they show:
`?since=&until=` as the API has them, or `?last=hour|day`, which moves with the clock until the run is over. On the page
of their own the metrics have every point that was reported, by time or by step (`?x=step&from=&to=`), on a logarithmic
axis (`?y=log`), smoothed (`?smooth=0.9`). The history is newest first: who did what, when, with the data of each event.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from supervisor.dashboard import rendering
from supervisor.dashboard.drawing import charts, curves
from supervisor.dashboard.drawing.timeline import NEWEST, timeline
from supervisor.dashboard.pages import evidence, log
from supervisor.dashboard.public_api import Api, Json
from supervisor.dashboard.run_rows import DONE
from supervisor.dashboard.words import moment_text
from supervisor.domain.events import ROUTINE
from supervisor.domain.status import TERMINAL, Status
from supervisor.wording.figures import epoch

RECENT = 12  # events on the overview
PAGE = 50  # events of the history
FEW_POINTS, POINTS = 240, 480  # of a small and of a large chart
CURVE_POINTS = 1000  # of a metric of which every point is there
RANGES = {"last", "since", "until", "from", "to"}
_STEP = re.compile("[0-9]{1,15}")
LASTS_S = {"hour": 3600.0, "day": 86_400.0}


async def show(request: Request, api: Api) -> Response:
    """`?attempts=all`: every attempt, not only the newest; `?did=`: a change that was just made;
    `?since=&until=&last=`: the time of the charts; `?forecast=1`: with the forecast."""
    run_id = request.path_params["run_id"]
    recent = [("newest_first", "true"), ("limit", str(4 * RECENT))]
    (run, answer, gates), history = await api.together(
        api.of_run("", "/attempts", "/gates"), api.get(f"/v1/runs/{run_id}/events", recent)
    )
    attempts = answer["attempts"]
    drawn, why, tail, cell, forecast = await api.together(
        _charts(request, api, run, attempts, small=True),
        evidence.panel(api, run, attempts),
        log.tail(api, run),
        _cell(api, run),
        _forecast(request, api, run),
    )
    all_shown = request.query_params.get("attempts") == "all"
    return await rendering.tab(
        request,
        "run.html",
        run,
        "overview",
        did=DONE.get(request.query_params.get("did", "")),
        timeline=timeline(run, answer, request.app.state.now(), None if all_shown else NEWEST),
        cell=cell,
        forecast=forecast,
        gates=gates,
        all_shown=all_shown and len(attempts) > NEWEST,
        events=[event for event in history["events"] if event["kind"] not in ROUTINE][:RECENT],
        charts=drawn if drawn["series"]["points"] or run["status"] not in TERMINAL else None,
        evidence=why,
        log=None if why and why["newest"] and why["shown"] else tail,  # the evidence has its last lines
    )


async def _forecast(request: Request, api: Api, run: Json) -> Json | None:
    """Made for `?forecast=1` alone, because it takes a second; None = not now."""
    if request.query_params.get("forecast") != "1" or run["status"] in TERMINAL:
        return None
    answer: Json = await api.get(f"/v1/runs/{run['run_id']}/forecast")
    return answer


async def _cell(api: Api, run: Json) -> Json | None:
    """What a person pastes to start its machine; None = nothing, or the user may not change the run."""
    if run["status"] != Status.LAUNCHING or not run["needs_person"]:
        return None
    shown, _ = await api.get_or_refusal(
        f"/v1/runs/{run['run_id']}/cell", (), ("NOTHING_TO_PASTE", "SCOPE_MISSING", "UNAVAILABLE")
    )
    return shown  # type: ignore[no-any-return]


async def show_charts(request: Request, api: Api) -> Response:
    """Raises SignInNeeded, Refused."""
    run, answer = await api.of_run("", "/attempts")
    look, whole = curves.look_of(request.query_params), not RANGES & set(request.query_params)
    query = [("points", str(CURVE_POINTS if whole else 2 * CURVE_POINTS))]
    drawn, metrics = await api.together(
        _charts(request, api, run, answer["attempts"], small=False), api.get(f"/v1/runs/{run['run_id']}/metrics", query)
    )
    stored = any(each["source"] == "series" for each in metrics["attempts"])  # else an older agent's samples are all
    if stored or look != curves.Look():
        span = step_range(request.query_params)
        drawn["drawn"] = await run_in_threadpool(
            curves.run_charts, metrics, look, span, charts.LARGE_PX, drawn["drawn"]
        )
    return await rendering.tab(
        request, "charts.html", run, "charts", charts=drawn, look=look, metrics=metrics, choose=chooser(request)
    )


def step_range(query: Mapping[str, str]) -> tuple[float, float] | None:
    """`?from=&to=`; None = all steps."""
    begin, end = query.get("from", ""), query.get("to", "")
    if not (_STEP.fullmatch(begin) and _STEP.fullmatch(end)) or int(begin) >= int(end):
        return None
    return float(begin), float(end)


def chooser(request: Request) -> Callable[..., str]:
    """The address of this page with other words; "" removes one."""

    def choose(**words: str) -> str:
        others = [(name, word) for name, word in request.query_params.multi_items() if name not in words and word]
        text = urlencode([*others, *((name, word) for name, word in words.items() if word)])
        return request.url.path + (f"?{text}" if text else "")

    return choose


async def _charts(request: Request, api: Api, run: Json, attempts: Sequence[Json], *, small: bool) -> Json:
    """For the templates. `wish`: the time as the address has it; `begin`, `end`: the time shown. Raises SignInNeeded,
    Refused."""
    over = run["status"] in TERMINAL
    now: float = request.app.state.now()
    wish = _wish(request.query_params, epoch(run["status_since"]) or now if over else now)
    query = [(name, value) for name, value in wish.items() if name != "last" and value]
    points = [("points", str(FEW_POINTS if small else POINTS))]
    series = await api.get(f"/v1/runs/{run['run_id']}/beats", [*query, *points])
    kinds = charts.kinds(series["points"])
    drawn = charts.draw(
        charts.few(kinds) if small else kinds,
        series["points"],
        attempts,
        _times(series, attempts, whole=bool(query) or not over),
        charts.SMALL_PX if small else charts.LARGE_PX,
    )
    times = {"begin": moment_text(drawn.begin), "end": moment_text(drawn.end)}
    return {"drawn": drawn, "wish": wish, "series": series, **times}


def _wish(query: Mapping[str, str], end: float) -> dict[str, str]:
    """`last`, `since`, `until` as the address has them, "" where it has none. An unknown `last` counts as none. `end`:
    of the run, else now."""
    last = query.get("last", "")
    if last in LASTS_S:
        return {"last": last, "since": moment_text(end - LASTS_S[last]), "until": ""}
    return {"last": "", "since": query.get("since", ""), "until": query.get("until", "")}


def _times(series: Json, attempts: Sequence[Json], *, whole: bool) -> tuple[float, float]:
    """Of the axis. `whole` False: without the time since the end of the run, which may be weeks."""
    begin, end = epoch(series["since"]) or 0.0, epoch(series["until"]) or 0.0
    if whole:
        return begin, end
    moments = [point["at"] for point in series["points"][-1:]] + [attempt["ended_at"] for attempt in attempts]
    return begin, max((at for moment in moments if (at := epoch(moment)) is not None), default=end)


async def history(request: Request, api: Api) -> Response:
    """`?actor=`: what one caller did; `?cloud=true`: with the cloud's own records; `?before=`: older than this
    event."""
    params = {name: request.query_params.get(name, "").strip() for name in ("actor", "cloud", "before")}
    given = {name: value for name, value in params.items() if value}
    query = [("newest_first", "true"), ("limit", str(PAGE)), *given.items()]
    (run,), answer = await api.together(
        api.of_run(""), api.get(f"/v1/runs/{request.path_params['run_id']}/events", query)
    )
    # The cloud's records have no id: pages are counted by our events.
    ours = [event["id"] for event in answer["events"] if event["id"] is not None]
    return await rendering.tab(
        request,
        "run_history.html",
        run,
        "events",
        events=answer["events"],
        cloud_unread=answer["cloud_unread"],
        params=params,
        older=_address(request, {**given, "before": str(min(ours))}) if ours and not answer["complete"] else "",
        newest=_address(request, {**given, "before": ""}) if params["before"] else "",
    )


def _address(request: Request, query: dict[str, Any]) -> str:
    text = urlencode({name: value for name, value in query.items() if value})
    return request.url.path + (f"?{text}" if text else "")
