"""One run: what happened, what was done about it, what it costs, what is next, and whether somebody must act."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from supervisor.dashboard import rendering
from supervisor.dashboard.drawing.timeline import NEWEST, timeline
from supervisor.dashboard.pages import charts, evidence, log
from supervisor.dashboard.public_api import Api, Json
from supervisor.dashboard.shaping.run_actions import DID
from supervisor.domain.events import ROUTINE

RECENT = 12  # events


async def show(request: Request, api: Api) -> Response:
    """`?attempts=all`: every attempt, not the newest only; `?did=`: a change that was just made."""
    run_id = request.path_params["run_id"]
    newest_first = [("newest_first", "true"), ("limit", str(4 * RECENT))]
    run, attempts, history = await api.together(
        of(request, api),
        api.get(f"/v1/runs/{run_id}/attempts"),
        api.get(f"/v1/runs/{run_id}/events", newest_first),
    )
    drawn, why, said = await api.together(
        charts.panel(api, run, attempts["attempts"], request),
        evidence.panel(api, run, attempts["attempts"]),
        log.tail(api, run),
    )
    every = rendering.of_every_page(request)
    all_shown = request.query_params.get("attempts") == "all"
    return await rendering.page(
        request,
        "run.html",
        run=run,
        tab="overview",
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
    found: Json = await api.get(f"/v1/runs/{request.path_params['run_id']}")
    return found
