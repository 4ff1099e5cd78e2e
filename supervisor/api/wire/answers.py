"""JSON answers from values made by hand: no model is validated on the way out."""

from __future__ import annotations

from collections.abc import Mapping

from fastapi import Request, Response

from supervisor.api.wire import etags
from supervisor.services.views.run_view import Json, dumps


def json_answer(answer: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(dumps(answer), status, headers, "application/json")


def run_answer(run: Json, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A run as it is shown, with the tag of its version and of this text."""
    text = dumps(run)
    tag = etags.make(run["version"], text)
    return Response(text, status, {**(headers or {}), "ETag": tag}, "application/json")


def run_unless_known(request: Request, run: Json) -> Response:
    """304 without a body where the client has this text already."""
    response = run_answer(run)
    if etags.is_known(request.headers.getlist("if-none-match"), response.headers["etag"]):
        return Response(None, 304, {"ETag": response.headers["etag"]})
    return response
