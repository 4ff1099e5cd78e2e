"""The dashboard as an application below /ui, and the one way in: sign-in, where a request comes from, errors.

A page is a function of a request and the API (`public_api.Api`). What the API refuses becomes a page that says why,
with the same status and code; where it wants a token, the browser is sent to the sign-in and back.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route, Router
from starlette.types import ASGIApp

from supervisor.dashboard import relay, rendering, session
from supervisor.dashboard.live.stream import Pages
from supervisor.dashboard.outside import Outside, problem
from supervisor.dashboard.pages import (
    alerts,
    charts,
    console,
    docs,
    evidence,
    files,
    history,
    live,
    log,
    machines,
    many,
    run,
    run_change,
    runs,
    sign_in,
    spec,
    static,
    system,
    zones,
)
from supervisor.dashboard.public_api import Api, Refused, SignInNeeded

Page = Callable[[Request, Api], Awaitable[Response]]
Clock = Callable[[], float]
GET, POST = ["GET"], ["POST"]
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
PAGES: tuple[tuple[str, list[str], Page, str], ...] = (
    ("/static/{name}", GET, static.show, "ui_static"),
    ("/sign-in", GET, sign_in.show, "ui_sign_in"),
    ("/sign-in", POST, sign_in.enter, "ui_sign_in_sent"),
    ("/sign-out", POST, sign_in.leave, "ui_sign_out"),
    ("/theme", POST, sign_in.choose_theme, "ui_theme"),
    ("/v1/{path:path}", GET, relay.show, "ui_relay"),
    ("/live", GET, live.show, "ui_live"),
    ("/runs", GET, runs.show, "ui_runs"),
    ("/many/{deed}", GET, many.ask, "ui_many"),
    ("/many/{deed}", POST, many.do, "ui_many_sent"),
    ("/runs/{run_id}", GET, run.show, "ui_run"),
    ("/runs/{run_id}/events", GET, history.show, "ui_run_events"),
    ("/runs/{run_id}/spec", GET, spec.show, "ui_run_spec"),
    ("/runs/{run_id}/charts", GET, charts.show, "ui_charts"),
    ("/runs/{run_id}/log", GET, log.show, "ui_log"),
    ("/runs/{run_id}/log/lines", GET, log.lines, "ui_log_lines"),
    ("/runs/{run_id}/console", GET, console.show, "ui_console"),
    ("/runs/{run_id}/console/lines", GET, console.lines, "ui_console_lines"),
    ("/runs/{run_id}/evidence/{attempt}", GET, evidence.show, "ui_evidence"),
    ("/runs/{run_id}/files", GET, files.show, "ui_files"),
    *((f"/runs/{{run_id}}/{deed}", GET, run_change.ask, "ui_run_change") for deed in run_change.DEEDS),
    *((f"/runs/{{run_id}}/{deed}", POST, run_change.do, "ui_run_change_sent") for deed in run_change.DEEDS),
    ("/zones", GET, zones.show, "ui_zones"),
    ("/machines", GET, machines.show, "ui_machines"),
    ("/machines/release", GET, machines.ask, "ui_release"),
    ("/machines/release", POST, machines.release, "ui_release_sent"),
    ("/alerts", GET, alerts.show, "ui_alerts"),
    ("/alerts/add", POST, alerts.add, "ui_alert_added"),
    ("/alerts/{webhook_id}", GET, alerts.one, "ui_alert"),
    ("/alerts/{webhook_id}/{deed}", POST, alerts.change, "ui_alert_changed"),
    ("/alerts/{webhook_id}/deliveries/{delivery_id}/replay", POST, alerts.replay, "ui_alert_replayed"),
    ("/system", GET, system.show, "ui_system"),
    ("/docs", GET, docs.show, "ui_docs"),
    ("/docs/openapi.json", GET, docs.download, "ui_document"),
    ("/docs/{operation}", GET, docs.show_operation, "ui_docs_operation"),
    ("/system/alert-test", POST, system.alert_test, "ui_alert_tested"),
)


def mount(app: Starlette, now: Clock = time.time) -> None:
    """Lay the pages into the API's application, whose outer door then stands before them too. `now`: the time of day,
    by which the pages tell how long ago something was."""
    app.router.routes += [
        *(
            Route(path, _named(_sent_on(page), "ui_home"), methods=METHODS)
            for path, page in (
                ("/", "/ui/runs"),
                ("/ui", "/ui/runs"),
                ("/ui/", "/ui/runs"),
                ("/docs", "/ui/docs"),
            )
        ),
        Mount("/ui", _pages(app), name="ui"),
    ]
    app.state.pages, app.state.now = Pages(now), now
    app.add_middleware(Outside)


def _sent_on(page: str) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        if request.method in session.SAFE:
            return RedirectResponse(page, 307)
        return _not_allowed(request, {"GET", "HEAD"})

    return answer


def _pages(api: ASGIApp) -> ASGIApp:
    """A bug in one goes on to the outer door, whose net logs and answers it."""
    routes = [
        Route(path, _named(_page(api, show), name), methods=methods, name=name)
        for path, methods, show, name in PAGES
    ]
    paths = [(route.path_regex, route.methods or set()) for route in routes]

    async def unknown(request: Request, error: HTTPException) -> Response:
        """What no route answers."""
        if error.status_code != 405:
            return problem(request, error.status_code, "NOT_FOUND", "There is no such page.")
        inner = request.scope["path"].removeprefix("/ui")
        allowed = {name for regex, names in paths if regex.match(inner) for name in names}
        return _not_allowed(request, allowed)

    pages = Router(routes, redirect_slashes=False)
    return ExceptionMiddleware(pages, handlers={HTTPException: unknown})  # type: ignore[dict-item]


def _not_allowed(request: Request, allowed: Collection[str]) -> Response:
    refusal = problem(request, 405, "METHOD_NOT_ALLOWED", "This page cannot be asked that way.")
    refusal.headers["Allow"] = ", ".join(sorted(allowed))
    return refusal


Answer = Callable[[Request], Awaitable[Response]]


def _named(show: Answer, name: str) -> Answer:
    """The outer door counts a request by this name."""

    async def answer(request: Request) -> Response:
        request.scope["route"] = _Named(name)
        return await show(request)

    return answer


@dataclass(frozen=True, slots=True)
class _Named:
    name: str


def _page(api: ASGIApp, show: Page) -> Answer:
    async def answer(request: Request) -> Response:
        if not session.is_from_our_pages(request):
            return problem(request, 403, "ORIGIN_REFUSED", "This was not sent by a page of this dashboard.")
        try:
            return await show(request, Api(api, request))
        except SignInNeeded:
            back = _back(request)
            address = "/ui/sign-in" + (f"?next={quote(back)}" if back else "")
            # A script that followed a redirect would put the sign-in into the page: it is told to go there instead.
            scripted = rendering.looks_again(request)
            return rendering.to_sign_in(address) if scripted else rendering.go_to(address)
        except Refused as refusal:
            told = refusal.problem
            return problem(request, refusal.status, refusal.code, str(told.get("detail", "")), told)

    return answer


def _back(request: Request) -> str:
    """The page to be shown after the sign-in; "" = none. A change is not repeated, and a part is none: the page that
    sent it is shown again."""
    part = request.headers.get("hx-current-url")
    if request.method == "GET" and not part:
        return rendering.here(request)
    return rendering.ours(request, part or request.headers.get("referer", ""))
