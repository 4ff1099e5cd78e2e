"""All runs: one row each, counts that filter, bulk actions."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from supervisor.dashboard import rendering
from supervisor.dashboard.public_api import Api


async def show(request: Request, api: Api) -> Response:
    found = await api.get("/v1/runs", request.query_params.multi_items())
    return await rendering.page(request, "runs.html", runs=found["runs"], summary=found["summary"])
