"""From values to an answer: templates, the headers that every page has, and compression.

Everything that a template shows is escaped unless it was made by `markupsafe.Markup`; names, labels, log lines and
metrics come from strangers. A name that a template misspells is an error, not an empty place.
"""

from __future__ import annotations

import gzip
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from supervisor.dashboard import session, words
from supervisor.dashboard.assets import assets
from supervisor.dashboard.shaping.run_actions import duty_of, run_actions
from supervisor.dashboard.shaping.run_rows import row_of
from supervisor.domain.access.plaintext import visible
from supervisor.domain.status import TERMINAL
from supervisor.wording.figures import percent

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    # Not no-referrer: the browser would then hide the origin of our own forms, too.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
THEMES = ("light", "dark")
HTML = "text/html; charset=utf-8"
PACKED_FROM = 1000  # bytes
NAV = (
    ("runs", "/ui/runs", "Runs"),
    ("zones", "/ui/zones", "Zones"),
    ("machines", "/ui/machines", "Machines"),
    ("alerts", "/ui/alerts", "Alerts"),
    ("system", "/ui/system", "System"),
)


@cache
def environment() -> Environment:
    made = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters.update(words.FILTERS)
    made.globals.update(asset=assets().urls.get, ago=words.ago, percent=percent, nav=NAV)
    made.globals.update(what_next=words.what_next, run_actions=run_actions, duty_of=duty_of)
    made.globals.update(row_of=row_of, TERMINAL=TERMINAL)
    return made


async def page(request: Request, template: str, status: int = 200, **values: Any) -> Response:
    """`values`: what the template shows. `now` may be among them; else it is the time of day."""

    def work() -> Response:
        text = environment().get_template(template).render({**of_every_page(request), **values})
        return html(request, text, status)

    return await run_in_threadpool(work)


def looks_again(request: Request) -> bool:
    """A script asks in the name of a page that is open for what has changed on it (the header is htmx's)."""
    return request.headers.get("hx-request") == "true"


def of_every_page(request: Request) -> dict[str, Any]:
    theme = request.cookies.get("theme", "")
    return {
        "now": request.app.state.now(),
        "path": request.scope["path"],
        "here": here(request),
        "theme": theme if theme in THEMES else "",
        "signed_in": session.token_of(request) != "",
        "who": session.name_of(request),
    }


def here(request: Request) -> str:
    """The address of this page, below our host; of the answer to a form, which cannot be asked for again, the page that
    sent it."""
    if request.method not in session.SAFE:
        return ours(request, request.headers.get("referer", "")) or "/ui/runs"
    path, query = quote(request.scope["path"]), request.scope["query_string"].decode("latin-1")
    return f"{path}?{query}" if query else path


def ours(request: Request, address: str) -> str:
    """Of a whole address of this dashboard what is below our host; "" of any other."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return ""
    below = parts.path + (f"?{parts.query}" if parts.query else "")
    known = parts.netloc.lower() == request.headers.get("host", "").lower() and is_ours(below)
    return below if known else ""


def html(request: Request, text: str, status: int = 200) -> Response:
    body, headers = visible(text).encode(), {"Cache-Control": "no-store", "Vary": "Accept-Encoding"}
    if len(body) >= PACKED_FROM and "gzip" in request.headers.get("accept-encoding", ""):
        body = gzip.compress(body, 4, mtime=0)
        headers["Content-Encoding"] = "gzip"
    return Response(body, status, headers, HTML)


def go_to(address: str) -> Response:
    """After a change: the browser asks for `address` anew, so that reloading does not repeat the change."""
    return RedirectResponse(address, 303, {"Cache-Control": "no-store"})


def to_sign_in(address: str) -> Response:
    """For a script that asks in the name of a page: the whole page goes to `address` (HX-Redirect is htmx's)."""
    return Response(None, 401, {"HX-Redirect": address, "Cache-Control": "no-store"})


def is_ours(address: str) -> bool:
    """A page of this dashboard, and nowhere else (no `//host`, no scheme, no way up and out)."""
    path = address.partition("?")[0].lower().replace("%2e", ".")
    inside = address.startswith("/ui/") and "//" not in path and "/.." not in path
    return inside and "\\" not in address and address.isprintable()
