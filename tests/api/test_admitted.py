"""No route runs without a check of its token, and no endpoint has arguments that its route does not have."""

from __future__ import annotations

import pytest
from fastapi import APIRouter, Request, Response

from supervisor.api import server
from supervisor.api.wire.route import Routes


async def _wants_more(request: Request, name: str, size: int = 1) -> Response:
    return Response(f"{name} {size}")


def test_an_endpoint_takes_the_texts_of_its_path_a_query_and_a_body_alone() -> None:
    with pytest.raises(TypeError, match="nothing else"):
        Routes("runs").on("GET /v1/things/{name}", None, {})(_wants_more)


def test_a_route_declares_its_response() -> None:
    async def undeclared(request: Request) -> Response:
        return Response()

    with pytest.raises(TypeError, match="must return a TypedDict"):
        Routes("runs").on("GET /v1/things", None)(undeclared)


def test_a_route_without_a_check_of_its_token_is_not_served(monkeypatch: pytest.MonkeyPatch) -> None:
    router = APIRouter()
    router.add_api_route("/v1/things/{name}", _wants_more)
    monkeypatch.setattr(server, "ROUTES", [*server.ROUTES, *router.routes])
    with pytest.raises(TypeError, match="without a check"):
        server.create_app(None)
