"""No route is reached without asking who calls it, and none takes more than its route hands over."""

from __future__ import annotations

import pytest
from fastapi import APIRouter, Request, Response

from supervisor.api import app
from supervisor.api.wire.access import Admitted


async def _wants_more(request: Request, name: str, size: int = 1) -> Response:
    return Response(f"{name} {size}")


def test_an_endpoint_reads_its_query_by_itself() -> None:
    router = APIRouter(route_class=Admitted)
    with pytest.raises(TypeError, match="nothing else"):
        router.add_api_route("/v1/things/{name}", _wants_more)


def test_a_route_that_asks_nobody_is_not_served(monkeypatch: pytest.MonkeyPatch) -> None:
    router = APIRouter()
    router.add_api_route("/v1/things/{name}", _wants_more)
    monkeypatch.setattr(app, "ROUTERS", (*app.ROUTERS, router))
    with pytest.raises(TypeError, match="without asking"):
        app.create_app(None)
