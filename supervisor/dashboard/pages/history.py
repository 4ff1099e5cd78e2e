"""All that happened to one run, newest first: who did it, when, and the data behind each line."""

from __future__ import annotations

from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from supervisor.dashboard import rendering
from supervisor.dashboard.pages import run as run_page
from supervisor.dashboard.public_api import Api, Json

PAGE = 50


async def show(request: Request, api: Api) -> Response:
    """`?actor=` what one caller did; `?cloud=true` with what the cloud recorded; `?before=` older than this event."""
    asked = {name: request.query_params.get(name, "").strip() for name in ("actor", "cloud", "before")}
    given = {name: value for name, value in asked.items() if value}
    query = [("newest_first", "true"), ("limit", str(PAGE)), *given.items()]
    run, history = await api.together(
        run_page.of(request, api), api.get(f"/v1/runs/{request.path_params['run_id']}/events", query)
    )
    return await rendering.page(
        request,
        "run_history.html",
        run=run,
        tab="events",
        events=history["events"],
        cloud_unread=history["cloud_unread"],
        asked=asked,
        older=_older(request, history, given),
        newest=_address(request, {**given, "before": ""}) if asked["before"] else "",
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
