"""Assets, named by their content: kept by browsers for a year."""

from __future__ import annotations

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from supervisor.dashboard.assets import assets
from supervisor.dashboard.public_api import Api

FOR_EVER = "public, max-age=31536000, immutable"


async def show(request: Request, api: Api) -> Response:
    """No token is needed: they are the same for everybody."""
    asset = assets().by_name.get(request.path_params["name"])
    if asset is None:
        raise HTTPException(404)
    headers = {"Cache-Control": FOR_EVER, "Vary": "Accept-Encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(asset.packed, 200, {**headers, "Content-Encoding": "gzip"}, asset.media_type)
    return Response(asset.content, 200, headers, asset.media_type)
