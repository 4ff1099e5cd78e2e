"""The dashboard as an application below /ui, and the one way in: sign-in, where a request comes from, errors.

A page is a function of a request and the API (`public_api.Api`). What the API refuses becomes a page that says why,
with the same status and code; where it wants a token, the browser is sent to the sign-in and back.

Around the outer door stands `Outside`: the headers of every answer, and refusals as pages. Whatever says no (a page,
the API behind it, the outer door, its net for bugs) says it as a problem, RFC 9457. A person gets a page of that, with
the same status, code and request id. What goes to scripts (/ui/v1) is left as it is.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass
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
    docs,
    evidence,
    log,
    machines,
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
KEPT = ("allow", "connection", "retry-after", "x-request-id")


class Outside:
    """The outermost of all: nothing of the dashboard is answered but through it."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope.get("path", "")
        if scope["type"] != "http" or not (path in ("/", "/ui") or path.startswith("/ui/")):
            await self._app(scope, receive, send)
            return
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


def problem(request: Request, status: int, code: str, detail: str, refusal: dict[str, Any] | None = None) -> Response:
    """A refusal in words of ours (`refusal`: the API's), which `Outside` makes a page of."""
    problem = {**(refusal or {}), "status": status, "code": code, "detail": detail}
    problem["request_id"] = request.scope.get("spot_request_id", "")
    headers = {}
    if status == 429:
        headers["Retry-After"] = str(dict(problem.get("meta") or {}).get("retry_after_s", 2))
    return JSONResponse(problem, status, headers, PROBLEM)


async def _refusal_page(scope: Scope, messages: list[Message]) -> Response:
    """Of the answer that these messages are. One that cannot be rendered is told as it is."""
    start, body = messages[0], b"".join(message.get("body", b"") for message in messages[1:])
    given = MutableHeaders(raw=start["headers"])
    try:
        page = await _rendered(Request(scope), start["status"], json.loads(body))
    except Exception:
        LOG.exception("The page of a refusal cannot be shown.")
        page = Response(body, start["status"], media_type=PROBLEM)
    for name in (*KEPT, *HEADERS):
        if name in given:
            page.headers[name] = given[name]
    return page


async def _rendered(request: Request, status: int, document: dict[str, Any]) -> Response:
    shown = {name: document.get(name, "") for name in ("code", "detail")}
    values = {**shown, "status": status, "errors": document.get("errors", [])}
    return await rendering.page(
        request, "problem.html", status, problem=values, request_id=document.get("request_id", "")
    )


Page = Callable[[Request, Api], Awaitable[Response]]
Clock = Callable[[], float]
GET, POST = ["GET"], ["POST"]
METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
PAGES: tuple[tuple[str, list[str], Page, str], ...] = (
    ("/static/{name}", GET, rendering.show_asset, "ui_static"),
    ("/sign-in", GET, sign_in.show, "ui_sign_in"),
    ("/sign-in", POST, sign_in.enter, "ui_sign_in_sent"),
    ("/sign-out", POST, sign_in.leave, "ui_sign_out"),
    ("/theme", POST, sign_in.choose_theme, "ui_theme"),
    ("/v1/{path:path}", GET, public_api.relay, "ui_relay"),
    ("/live", GET, live.show, "ui_live"),
    ("/runs", GET, runs.show, "ui_runs"),
    ("/many/{deed}", GET, run_change.ask_many, "ui_many"),
    ("/many/{deed}", POST, run_change.do_many, "ui_many_sent"),
    ("/runs/{run_id}", GET, run.show, "ui_run"),
    ("/runs/{run_id}/events", GET, run.history, "ui_run_events"),
    ("/runs/{run_id}/spec", GET, spec.show, "ui_run_spec"),
    ("/runs/{run_id}/charts", GET, run.show_charts, "ui_charts"),
    ("/runs/{run_id}/log", GET, log.show, "ui_log"),
    ("/runs/{run_id}/log/lines", GET, log.lines, "ui_log_lines"),
    ("/runs/{run_id}/console", GET, evidence.console, "ui_console"),
    ("/runs/{run_id}/console/lines", GET, evidence.console_lines, "ui_console_lines"),
    ("/runs/{run_id}/evidence/{attempt}", GET, evidence.show, "ui_evidence"),
    ("/runs/{run_id}/files", GET, log.files, "ui_files"),
    *((f"/runs/{{run_id}}/{deed}", GET, run_change.ask, "ui_run_change") for deed in run_change.DEEDS),
    *((f"/runs/{{run_id}}/{deed}", POST, run_change.do, "ui_run_change_sent") for deed in run_change.DEEDS),
    ("/zones", GET, machines.zones, "ui_zones"),
    ("/machines", GET, machines.show, "ui_machines"),
    ("/machines/release", GET, machines.ask, "ui_release"),
    ("/machines/release", POST, machines.release, "ui_release_sent"),
    ("/alerts", GET, alerts.show, "ui_alerts"),
    ("/alerts/add", POST, alerts.add, "ui_alert_added"),
    ("/alerts/{webhook_id}", GET, alerts.show_webhook, "ui_alert"),
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
            for path, page in (("/", "/ui/runs"), ("/ui", "/ui/runs"), ("/ui/", "/ui/runs"), ("/docs", "/ui/docs"))
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
        Route(path, _named(_page(api, show), name), methods=methods, name=name) for path, methods, show, name in PAGES
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
            document = refusal.problem
            return problem(request, refusal.status, refusal.code, str(document.get("detail", "")), document)

    return answer


def _back(request: Request) -> str:
    """The page to be shown after the sign-in; "" = none. A change is not repeated, and a part is none: the page that
    sent it is shown again."""
    part = request.headers.get("hx-current-url")
    if request.method == "GET" and not part:
        return rendering.here(request)
    return rendering.ours(request, part or request.headers.get("referer", ""))
