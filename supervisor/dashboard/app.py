"""The dashboard as an application below /ui, and the one way in: headers, sign-in, where a request comes from, errors.

A page is a function of a request and the API (`public_api.Api`). What the API refuses becomes a page that says why,
with the same status and code; where it wants a token, the browser is sent to the sign-in and back.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp

from supervisor.dashboard import relay, rendering, session
from supervisor.dashboard.live import Pages
from supervisor.dashboard.pages import charts, live, run, runs, sign_in, static
from supervisor.dashboard.public_api import Api, Refused, SignInNeeded

Page = Callable[[Request, Api], Awaitable[Response]]
GET, POST = ["GET"], ["POST"]
PAGES: tuple[tuple[str, list[str], Page, str], ...] = (
    ("/static/{name}", GET, static.show, "ui_static"),
    ("/sign-in", GET, sign_in.show, "ui_sign_in"),
    ("/sign-in", POST, sign_in.enter, "ui_sign_in_sent"),
    ("/sign-out", POST, sign_in.leave, "ui_sign_out"),
    ("/theme", POST, sign_in.choose_theme, "ui_theme"),
    ("/v1/{path:path}", GET, relay.show, "ui_relay"),
    ("/live", GET, live.show, "ui_live"),
    ("/runs", GET, runs.show, "ui_runs"),
    ("/runs/{run_id}", GET, run.show, "ui_run"),
    ("/runs/{run_id}/charts", GET, charts.show, "ui_charts"),
)


def mount(app: Starlette) -> None:
    """Lay the pages into the API's application, whose outer door then stands before them too."""
    app.router.routes += [
        Route("/", _to_runs, name="ui_home"),
        Route("/ui", _to_runs, name="ui_home"),
        Route("/ui/", _to_runs, name="ui_home"),
        Mount("/ui", _pages(app), name="ui"),
    ]


async def _to_runs(request: Request) -> Response:
    return RedirectResponse("/ui/runs", 307)


def _pages(api: ASGIApp) -> ASGIApp:
    routes = [
        Route(path, _page(api, show, name), methods=methods, name=name) for path, methods, show, name in PAGES
    ]
    pages = Starlette(routes=routes, exception_handlers={HTTPException: _unknown})  # type: ignore[dict-item]
    pages.state.pages = Pages()
    return pages


def _page(api: ASGIApp, show: Page, name: str) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        request.scope["route"] = _Named(name)
        response = await _shown(request, show, api)
        for header, value in rendering.HEADERS.items():
            response.headers.setdefault(header, value)
        return response

    return answer


class _Named:
    """By which the outer door counts a request."""

    def __init__(self, name: str) -> None:
        self.name = name


async def _shown(request: Request, show: Page, api: ASGIApp) -> Response:
    if not session.is_from_our_pages(request):
        return await problem(request, 403, "ORIGIN_REFUSED", "This was not sent by a page of this dashboard.")
    try:
        return await show(request, Api(api, request))
    except SignInNeeded:
        back = rendering.of_every_page(request)["here"] if request.method == "GET" else ""
        address = "/ui/sign-in" + (f"?next={quote(back)}" if back else "")
        # A script that followed a redirect would put the sign-in into the page: it is told to go there instead.
        asks = request.headers.get("hx-request") == "true"
        return rendering.to_sign_in(address) if asks else rendering.go_to(address)
    except Refused as refusal:
        told = refusal.problem
        return await problem(request, refusal.status, refusal.code, str(told.get("detail", "")), told)


async def problem(
    request: Request, status: int, code: str, detail: str, told: dict[str, object] | None = None
) -> Response:
    values = {"status": status, "code": code, "detail": detail, "errors": (told or {}).get("errors", [])}
    request_id = request.scope.get("spot_request_id", "")
    response = await rendering.page(request, "problem.html", status, problem=values, request_id=request_id)
    if status == 429:
        meta = (told or {}).get("meta")
        response.headers["Retry-After"] = str(meta.get("retry_after_s", 2)) if isinstance(meta, dict) else "2"
    return response


async def _unknown(request: Request, error: HTTPException) -> Response:
    """What no route answers."""
    if error.status_code == 405:
        response = await problem(request, 405, "METHOD_NOT_ALLOWED", "This page cannot be asked that way.")
        response.headers["Allow"] = (error.headers or {}).get("Allow", "GET")
    else:
        response = await problem(request, error.status_code, "NOT_FOUND", "There is no such page.")
    response.headers.update(rendering.HEADERS)
    return response
