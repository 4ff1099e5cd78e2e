"""From values to an answer: templates, headers of every page, compression; forms as pages send them; and assets.

Everything that a template shows is escaped unless it was made by `markupsafe.Markup`; names, labels, log lines and
metrics come from strangers. A name that a template misspells is an error, not an empty place.

Style, scripts and icons are read once and named by their content, so that a browser may keep them for ever. Ours lie in
`static/`. Those of others (htmx and its event streams, uPlot) are pinned in package.json, fetched by `make env` into
build/vendor or, in a wheel, laid beside the package. Without them the pages work as they do without JavaScript, and the
System page says so.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, urlsplit

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from supervisor.dashboard import session, words
from supervisor.dashboard.public_api import Api, Json
from supervisor.dashboard.run_rows import duty_of, row_of, run_actions
from supervisor.domain.status import TERMINAL
from supervisor.domain.texts import visible
from supervisor.wording.figures import percent

HERE = Path(__file__).parent
OURS = HERE / "static"
VENDOR = (HERE / "_vendor", HERE.parent.parent / "build" / "vendor")  # in a wheel, in a checkout
NEEDED = ("htmx.min.js", "sse.min.js", "uPlot.iife.min.js", "uPlot.min.css")  # of others
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}


@dataclass(frozen=True, slots=True)
class Asset:
    name: str  # with its hash
    media_type: str
    content: bytes
    packed: bytes  # gzip


@dataclass(frozen=True, slots=True)
class Assets:
    """`urls`: plain name -> address; `by_name`: hashed name -> asset."""

    urls: Mapping[str, str]
    by_name: Mapping[str, Asset]

    @property
    def missing(self) -> tuple[str, ...]:
        """Scripts of others that this installation lacks."""
        return tuple(name for name in NEEDED if name not in self.urls)


@cache
def assets() -> Assets:
    urls: dict[str, str] = {}
    by_name: dict[str, Asset] = {}
    vendor = next((folder for folder in VENDOR if folder.is_dir()), None)
    for folder in (OURS, vendor):
        for path in sorted(folder.iterdir()) if folder is not None else ():
            if path.suffix not in TYPES:
                continue
            content = path.read_bytes()
            name = f"{path.stem}.{hashlib.sha256(content).hexdigest()[:12]}{path.suffix}"
            by_name[name] = Asset(name, TYPES[path.suffix], content, gzip.compress(content, 9, mtime=0))
            urls[path.name] = f"/ui/static/{name}"
    return Assets(urls, by_name)


FOR_EVER = "public, max-age=31536000, immutable"


async def show_asset(request: Request, api: Api) -> Response:
    """No token is needed: they are the same for everybody."""
    asset = assets().by_name.get(request.path_params["name"])
    if asset is None:
        raise HTTPException(404)
    headers = {"Cache-Control": FOR_EVER, "Vary": "Accept-Encoding"}
    if "gzip" in request.headers.get("accept-encoding", ""):
        return Response(asset.packed, 200, {**headers, "Content-Encoding": "gzip"}, asset.media_type)
    return Response(asset.content, 200, headers, asset.media_type)


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


async def tab(request: Request, template: str, run: Json, name: str, status: int = 200, **values: Any) -> Response:
    """One of the pages of a run."""
    return await page(request, template, status, run=run, tab=name, **values)


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
    is_here = parts.netloc.lower() == request.headers.get("host", "").lower() and is_ours(below)
    return below if is_here else ""


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


MOST_FIELDS = 2000


async def read_form(request: Request) -> Mapping[str, list[str]]:
    """name -> values. What is no such form is an empty one."""
    if not request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        return {}
    try:
        return parse_qs(
            (await request.body()).decode(), keep_blank_values=True, max_num_fields=MOST_FIELDS, errors="replace"
        )
    except ValueError:
        return {}


def first(form: Mapping[str, list[str]], name: str) -> str:
    return form.get(name, [""])[0].strip()
