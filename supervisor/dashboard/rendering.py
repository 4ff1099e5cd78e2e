"""The browser's side of a page: templates, the headers of every page, static files, redirects, and forms.

Everything that a template shows is escaped unless `markupsafe.Markup` made it: names, labels, log lines and metrics
come from outside. A misspelled name in a template is an error, not an empty text.

Styles, scripts and icons are read once and named by their content, so that a browser may keep them without limit. Ours
are in `static/`. Third-party scripts (htmx and its event streams) are pinned in package.json; `make env` fetches them
into build/vendor, and a wheel contains them. Without them the pages work as they do without JavaScript, and the System
page says so.
"""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
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
from supervisor.wording.figures import only_on_host_text, percent

HERE = Path(__file__).parent
OURS = HERE / "static"
VENDOR = (HERE / "_vendor", HERE.parent.parent / "build" / "vendor")  # in a wheel, in a checkout
THIRD_PARTY = ("htmx.min.js", "sse.min.js")
TYPES = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}
HTML = "text/html; charset=utf-8"
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    # Not no-referrer: the browser would then hide the origin of our own forms, too.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}
UNLIMITED = "public, max-age=31536000, immutable"
THEMES = ("light", "dark")
PACKED_FROM = 1000  # bytes
FIELDS_MAX = 2000
NAV = (
    ("/ui/runs", "Runs"),
    ("/ui/zones", "Zones"),
    ("/ui/machines", "Machines"),
    ("/ui/cost", "Cost"),
    ("/ui/alerts", "Alerts"),
    ("/ui/system", "System"),
)


class Asset(NamedTuple):
    media_type: str
    content: bytes
    packed: bytes  # gzip


class Assets(NamedTuple):
    """`urls`: plain name -> address; `by_name`: name with its hash -> asset."""

    urls: Mapping[str, str]
    by_name: Mapping[str, Asset]

    @property
    def missing(self) -> tuple[str, ...]:
        """Third-party scripts that this installation lacks."""
        return tuple(name for name in THIRD_PARTY if name not in self.urls)


@cache
def assets() -> Assets:
    urls: dict[str, str] = {}
    by_name: dict[str, Asset] = {}
    vendor = [folder for folder in VENDOR if folder.is_dir()][:1]
    for path in sorted(path for folder in (OURS, *vendor) for path in folder.iterdir() if path.suffix in TYPES):
        content = path.read_bytes()
        name = f"{path.stem}.{hashlib.sha256(content).hexdigest()[:12]}{path.suffix}"
        by_name[name] = Asset(TYPES[path.suffix], content, gzip.compress(content, 9, mtime=0))
        urls[path.name] = f"/ui/static/{name}"
    return Assets(urls, by_name)


async def show_asset(request: Request, api: Api) -> Response:
    """Needs no token: assets are the same for everyone."""
    asset = assets().by_name.get(request.path_params["name"])
    if asset is None:
        raise HTTPException(404)
    headers = {"Cache-Control": UNLIMITED, "Vary": "Accept-Encoding"}
    if _takes_gzip(request):
        return Response(asset.packed, 200, {**headers, "Content-Encoding": "gzip"}, asset.media_type)
    return Response(asset.content, 200, headers, asset.media_type)


@cache
def environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    environment.filters.update(words.FILTERS)
    environment.globals.update(
        asset=assets().urls.get,
        ago=words.ago,
        chip=words.chip,
        percent=percent,
        nav=NAV,
        TERMINAL=TERMINAL,
        only_on_host_text=only_on_host_text,
    )
    environment.globals.update(what_next=words.what_next, run_actions=run_actions, duty_of=duty_of, row_of=row_of)
    return environment


async def page(request: Request, template: str, status: int = 200, **values: Any) -> Response:
    """`values`: for the template, besides those of every page, which they may replace."""

    def work() -> Response:
        text = environment().get_template(template).render({**_of_every_page(request), **values})
        body, headers = visible(text).encode(), {"Cache-Control": "no-store", "Vary": "Accept-Encoding"}
        if len(body) >= PACKED_FROM and _takes_gzip(request):
            body = gzip.compress(body, 4, mtime=0)
            headers["Content-Encoding"] = "gzip"
        return Response(body, status, headers, HTML)

    return await run_in_threadpool(work)


async def tab(request: Request, template: str, run: Json, name: str, status: int = 200, **values: Any) -> Response:
    """One of the pages of a run."""
    return await page(request, template, status, run=run, tab=name, **values)


def _of_every_page(request: Request) -> dict[str, Any]:
    theme = request.cookies.get("theme", "")
    return {
        "now": request.app.state.now(),
        "path": request.scope["path"],
        "here": here(request),
        "theme": theme if theme in THEMES else "",
        "signed_in": session.token_of(request) != "",
        "who": session.name_of(request),
    }


def _takes_gzip(request: Request) -> bool:
    return "gzip" in request.headers.get("accept-encoding", "")


def looks_again(request: Request) -> bool:
    """True where an open page requests itself to see what has changed (the header is htmx's)."""
    return request.headers.get("hx-request") == "true"


def here(request: Request) -> str:
    """The address of this page, without our host. The response to a form has no address of its own: the address of the
    page that sent it."""
    if request.method not in session.SAFE:
        return ours(request, request.headers.get("referer", "")) or "/ui/runs"
    path, query = quote(request.scope["path"]), request.scope["query_string"].decode("latin-1")
    return f"{path}?{query}" if query else path


def ours(request: Request, address: str) -> str:
    """A full address of this dashboard without our host; "" for any other address."""
    try:
        parts = urlsplit(address)
    except ValueError:
        return ""
    below = parts.path + (f"?{parts.query}" if parts.query else "")
    is_here = parts.netloc.lower() == request.headers.get("host", "").lower() and is_ours(below)
    return below if is_here else ""


def is_ours(address: str) -> bool:
    """True for a page of this dashboard only (no `//host`, no scheme, no way up and out)."""
    path = address.partition("?")[0].lower().replace("%2e", ".")
    inside = address.startswith("/ui/") and "//" not in path and "/.." not in path
    return inside and "\\" not in address and address.isprintable()


def go_to(address: str) -> Response:
    """After a change: the browser requests `address`, so that reloading does not repeat the change."""
    return RedirectResponse(address, 303, {"Cache-Control": "no-store"})


def to_sign_in(address: str) -> Response:
    """For a script that acts for a page: the whole page goes to `address` (HX-Redirect is htmx's)."""
    return Response(None, 401, {"HX-Redirect": address, "Cache-Control": "no-store"})


async def read_form(request: Request) -> Mapping[str, list[str]]:
    """name -> values. A body that is not such a form is an empty one."""
    if not request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded"):
        return {}
    try:
        return parse_qs(
            (await request.body()).decode(), keep_blank_values=True, max_num_fields=FIELDS_MAX, errors="replace"
        )
    except ValueError:
        return {}


def first(form: Mapping[str, list[str]], name: str) -> str:
    return form.get(name, [""])[0].strip()
