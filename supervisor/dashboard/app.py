"""The dashboard as an application below /ui: its routes, the check where a request comes from, and refusals.

A page is a function of a request and the API (`public_api.Api`). A refusal of the API becomes a page that says why,
with the same status and code; where the API requires a token, the browser is sent to the sign-in and back.

`Outside` is the outermost middleware: it adds the headers to every response, and turns refusals into pages. A page, the
API, and the API's own middleware all refuse by a problem document (RFC 9457). A person gets a page of it, with the same
status, code and request id. Responses to scripts (/ui/v1) are not changed.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Collection
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware.exceptions import ExceptionMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Mount, Route, Router
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from supervisor.dashboard import live, public_api, rendering, session
from supervisor.dashboard.live import Pages
from supervisor.dashboard.pages import (
    alerts,
    cost,
    docs,
    evidence,
    group,
    log,
    machines,
    providers,
    run,
    run_change,
    runs,
    sign_in,
    spec,
    system,
)
from supervisor.dashboard.public_api import Api, Refused, SignInNeeded

LOG = logging.getLogger(__name__)
PROBLEM = "application/problem+json"
HEADERS = rendering.HEADERS
CAGED = {**HEADERS, **public_api.CAGE}
KEPT = ("allow", "connection", "retry-after", "x-request-id")  # headers of a refusal that its page keeps
GET, POST = ["GET"], ["POST"]
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]

Page = Callable[[Request, Api], Awaitable[Response]]
Answer = Callable[[Request], Awaitable[Response]]

# (path below /ui, methods, page, name of the operation in metrics)
PAGES: tuple[tuple[str, list[str], Page, str], ...] = (
    ("/static/{name}", GET, rendering.show_asset, "ui_static"),
    ("/sign-in", GET, sign_in.show, "ui_sign_in"),
    ("/sign-in", POST, sign_in.enter, "ui_sign_in_sent"),
    ("/sign-out", POST, sign_in.leave, "ui_sign_out"),
    ("/theme", POST, sign_in.choose_theme, "ui_theme"),
    ("/v1/{path:path}", GET, public_api.relay, "ui_relay"),
    ("/live", GET, live.show, "ui_live"),
    ("/runs", GET, runs.show, "ui_runs"),
    ("/many/{action}", GET, run_change.ask_many, "ui_many"),
    ("/many/{action}", POST, run_change.do_many, "ui_many_sent"),
    ("/runs/{run_id}", GET, run.show, "ui_run"),
    ("/runs/{run_id}/events", GET, run.history, "ui_run_events"),
    ("/runs/{run_id}/spec", GET, spec.show, "ui_run_spec"),
    ("/runs/{run_id}/charts", GET, run.show_charts, "ui_charts"),
    ("/runs/{run_id}/log", GET, log.show, "ui_log"),
    ("/runs/{run_id}/log/lines", GET, log.lines, "ui_log_lines"),
    ("/runs/{run_id}/console", GET, log.console, "ui_console"),
    ("/runs/{run_id}/console/lines", GET, log.console_lines, "ui_console_lines"),
    ("/runs/{run_id}/evidence/{attempt}", GET, evidence.show, "ui_evidence"),
    ("/runs/{run_id}/files", GET, evidence.files, "ui_files"),
    *((f"/runs/{{run_id}}/{action}", GET, run_change.ask, "ui_run_change") for action in run_change.ACTIONS),
    *((f"/runs/{{run_id}}/{action}", POST, run_change.do, "ui_run_change_sent") for action in run_change.ACTIONS),
    ("/groups/{group}", GET, group.show, "ui_group"),
    ("/compare", GET, group.compare, "ui_compare"),
    ("/cost", GET, cost.show, "ui_cost"),
    ("/zones", GET, machines.zones, "ui_zones"),
    ("/providers", GET, providers.show, "ui_providers"),
    ("/machines", GET, machines.show, "ui_machines"),
    ("/machines/release", GET, machines.ask, "ui_release"),
    ("/machines/release", POST, machines.release, "ui_release_sent"),
    ("/alerts", GET, alerts.show, "ui_alerts"),
    ("/alerts/add", POST, alerts.add, "ui_alert_added"),
    ("/alerts/{webhook_id}", GET, alerts.show_webhook, "ui_alert"),
    ("/alerts/{webhook_id}/{action}", POST, alerts.change, "ui_alert_changed"),
    ("/alerts/{webhook_id}/deliveries/{delivery_id}/replay", POST, alerts.replay, "ui_alert_replayed"),
    ("/system", GET, system.show, "ui_system"),
    ("/docs", GET, docs.show, "ui_docs"),
    ("/docs/openapi.json", GET, docs.download, "ui_document"),
    ("/docs/{operation}", GET, docs.show_operation, "ui_docs_operation"),
    ("/system/alert-test", POST, system.alert_test, "ui_alert_tested"),
)


class Outside:
    """Every response to a request for the dashboard passes through it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope.get("path", "")
        refusal: list[Message] = []
        of_scripts = path.startswith("/ui/v1/")

        async def answer(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(raw=list(message["headers"]))
                for name, value in (CAGED if of_scripts else HEADERS).items():
                    headers.setdefault(name, value)
                message["headers"] = headers.raw
                if headers.get("content-type") == PROBLEM and not of_scripts:
                    if scope["method"] != "HEAD":
                        refusal.append(message)
                        return
                    headers["content-type"], headers["cache-control"] = rendering.HTML, "no-store"
                    del headers["content-length"]
            if not refusal:
                await send(message)
                return
            refusal.append(message)
            if not message.get("more_body"):
                await (await _refusal_page(scope, refusal))(scope, receive, send)

        await self._app(scope, receive, answer)


async def _refusal_page(scope: Scope, messages: list[Message]) -> Response:
    """The page of the response that these messages are. Where it cannot be rendered, the response itself."""
    start, body = messages[0], b"".join(message.get("body", b"") for message in messages[1:])
    given = MutableHeaders(raw=start["headers"])
    try:
        problem = json.loads(body)
        page = await rendering.page(
            Request(scope),
            "problem.html",
            start["status"],
            problem={"detail": "", "code": "", "errors": [], **problem, "status": start["status"]},
            request_id=problem.get("request_id", ""),
        )
    except Exception:
        LOG.exception("The page of a refusal cannot be shown.")
        page = Response(body, start["status"], media_type=PROBLEM)
    for name in (*KEPT, *HEADERS):
        if name in given:
            page.headers[name] = given[name]
    return page


def add_pages(app: Starlette) -> None:
    """To the API's application."""
    app.router.routes += [
        *(
            Route(path, _named(_redirect(page), "ui_home"), methods=METHODS)
            for path, page in (("/", "/ui/runs"), ("/ui", "/ui/runs"), ("/ui/", "/ui/runs"), ("/docs", "/ui/docs"))
        ),
        Mount("/ui", _pages(app), name="ui"),
    ]
    app.state.pages = Pages(app.state.now)


def _redirect(page: str) -> Answer:
    async def answer(request: Request) -> Response:
        if request.method in session.SAFE:
            return RedirectResponse(page, 307)
        return _not_allowed(request, {"GET", "HEAD"})

    return answer


def _pages(api: ASGIApp) -> ASGIApp:
    """An unexpected error of a page reaches the API's middleware, which logs it and responds."""
    routes = [
        Route(path, _named(_page(api, show), name), methods=methods, name=name) for path, methods, show, name in PAGES
    ]
    paths = [(route.path_regex, route.methods or set()) for route in routes]

    async def unknown(request: Request, error: HTTPException) -> Response:
        """No route matches."""
        if error.status_code != 405:
            return problem(request, error.status_code, "NOT_FOUND", "There is no such page.")
        inner = request.scope["path"].removeprefix("/ui")
        allowed = {name for regex, names in paths if regex.match(inner) for name in names}
        return _not_allowed(request, allowed)

    pages = Router(routes, redirect_slashes=False)
    return ExceptionMiddleware(pages, handlers={HTTPException: unknown})  # type: ignore[dict-item]


def _named(show: Answer, name: str) -> Answer:
    """The API's middleware counts a request by the name of its route."""

    async def answer(request: Request) -> Response:
        request.scope["route"] = SimpleNamespace(name=name)
        return await show(request)

    return answer


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
            return rendering.to_sign_in(address) if rendering.looks_again(request) else rendering.go_to(address)
        except Refused as refusal:
            document = refusal.problem
            return problem(request, refusal.status, refusal.code, str(document.get("detail", "")), document)

    return answer


def _back(request: Request) -> str:
    """The page to show after the sign-in; "" = none. A change is not repeated, and a part of a page cannot be shown
    alone: the page that sent the request is shown instead."""
    part = request.headers.get("hx-current-url")
    if request.method == "GET" and not part:
        return rendering.here(request)
    return rendering.ours(request, part or request.headers.get("referer", ""))


def problem(request: Request, status: int, code: str, detail: str, refusal: dict[str, Any] | None = None) -> Response:
    """A refusal that `Outside` turns into a page. `refusal`: the API's problem document."""
    document = {**(refusal or {}), "status": status, "code": code, "detail": detail}
    document["request_id"] = request.scope.get("spot_request_id", "")
    headers = {}
    if status == 429:
        headers["Retry-After"] = str(dict(document.get("meta") or {}).get("retry_after_s", 2))
    return JSONResponse(document, status, headers, PROBLEM)


def _not_allowed(request: Request, allowed: Collection[str]) -> Response:
    refusal = problem(request, 405, "METHOD_NOT_ALLOWED", "This page does not support this method.")
    refusal.headers["Allow"] = ", ".join(sorted(allowed))
    return refusal
