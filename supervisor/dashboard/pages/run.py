"""One run: what happened, what was done about it, what it costs, what is next, and whether somebody must act."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from supervisor.dashboard import rendering
from supervisor.dashboard.public_api import Api, Json


async def show(request: Request, api: Api) -> Response:
    run = await of(request, api)
    return await rendering.page(request, "run.html", run=run, tab="overview")


async def of(request: Request, api: Api) -> Json:
    """The run of this address. Raises SignInNeeded, Refused."""
    found: Json = await api.get(f"/v1/runs/{request.path_params['run_id']}")
    return found
