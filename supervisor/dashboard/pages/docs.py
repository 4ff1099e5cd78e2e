"""The API for people: every operation, and one in detail, made from the document that the daemon serves."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from supervisor.dashboard import rendering
from supervisor.dashboard.public_api import Api, Refused
from supervisor.dashboard.shaping import api_reference

TEXTS: dict[str, Any] = {"prose": api_reference.prose, "paragraphs": api_reference.paragraphs}


async def show(request: Request, api: Api) -> Response:
    """Raises SignInNeeded, Refused."""
    document = await api.get("/openapi.json")
    operations = api_reference.operations(document)
    tags = [(tag, [one for one in operations if one.tag == tag["name"]]) for tag in document["tags"]]
    return await rendering.page(request, "docs.html", info=document["info"], tags=tags, **TEXTS)


async def download(request: Request, api: Api) -> Response:
    """The document itself, for a browser that has no token in a header. Raises SignInNeeded, Refused."""
    return Response((await api.call("GET", "/openapi.json")).body, media_type="application/json")


async def show_operation(request: Request, api: Api) -> Response:
    """Raises SignInNeeded, Refused."""
    document, name = await api.get("/openapi.json"), request.path_params["operation"]
    operation = next((one for one in api_reference.operations(document) if one.name == name), None)
    if operation is None:
        raise Refused(404, {"code": "NOT_FOUND", "detail": "The API has no operation of this name."})
    return await rendering.page(
        request,
        "docs_operation.html",
        operation=operation,
        parameters=api_reference.parameters(operation),
        messages=api_reference.messages(operation),
        shapes=api_reference.shapes(operation, document),
        **TEXTS,
    )
