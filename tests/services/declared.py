"""A response has the fields of its declaration: all of them, no other, and each of the declared type.

The server renders responses without validation, so the tests' client checks every one of them here.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import httpx
from pydantic import ConfigDict, TypeAdapter
from starlette.routing import Match

from supervisor.api.server import ROUTES

EXACT = ConfigDict(extra="forbid", allow_inf_nan=False, strict=True)


def declared(shape: Any, response: Any) -> Any:
    """The response itself. Raises ValidationError where it differs from `shape`, a TypedDict."""
    _adapter(shape).validate_python([response])
    return response


def check_declared(response: httpx.Response) -> None:
    """The JSON of a good response against the declaration of its route."""
    if not response.content or not response.headers.get("content-type", "").startswith("application/json"):
        return
    scope = {"type": "http", "method": response.request.method, "path": response.request.url.path}
    operation = next((route.operation for route in ROUTES if route.matches(scope)[0] is Match.FULL), None)
    if operation is not None and response.status_code in operation.responses:
        shape = operation.responses[response.status_code]
        declared(shape if operation.also is None else shape | operation.also, response.json())


@cache
def _adapter(shape: Any) -> TypeAdapter[Any]:
    """Of a list: a TypedDict takes no configuration itself, and passes on that of its surroundings."""
    return TypeAdapter(list[shape], config=EXACT)
