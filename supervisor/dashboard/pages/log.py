"""The log of an attempt: a window of numbered lines, a search, and what follows while it grows.

A page never holds more than WINDOW lines, however long the log is. Scripts put new lines below the newest ones
(static/log.js asks for `/log/lines`); without them the page is asked for again.
"""

from __future__ import annotations

import re
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from supervisor.dashboard import rendering
from supervisor.dashboard.public_api import Api, Json, Refused
from supervisor.dashboard.shaping import ansi, log_view

TAIL_LINES = 15


async def tail(api: Api, run: Json) -> Json | None:
    """What `log_panel.html` shows as `log`: the last lines of the newest attempt; None where there are none. `missing`:
    why they cannot be read now. Raises SignInNeeded, Refused."""
    try:
        told = await api.get_or_none(
            _path(run), [("tail", str(TAIL_LINES)), ("limit", "65536")], ["FILES_PURGED"]
        )
    except Refused as refusal:
        if refusal.code != "UNAVAILABLE":
            raise
        return {"attempt": run["attempt"], "rows": [], "missing": refusal.problem["detail"]}
    if told is None or not told["text"]:
        return None
    return {"attempt": told["attempt"], "rows": log_view.rows(told), "missing": ""}


async def show(request: Request, api: Api) -> Response:
    """Raises SignInNeeded, Refused."""
    asked = {name: value for name, value in request.query_params.items() if value}
    run, told = await api.together(
        api.get(f"/v1/runs/{request.path_params['run_id']}"),
        api.get(f"/v1/runs/{request.path_params['run_id']}/attempts"),
    )
    attempts = told["attempts"]
    page: Json = {
        "run": run,
        "tab": "log",
        "attempts": attempts,
        "asked": asked,
        "missing": None,
        "found": None,
    }
    number = asked.get("attempt") or (str(attempts[-1]["number"]) if attempts else "")
    base = {"attempt": number} if number else {}
    page |= {"number": number, "link": Link(run, base), "log": None, "following": False}
    if rendering.looks_again(request):  # the log is followed by itself
        return await rendering.page(request, "log.html", **page)
    try:
        if "q" in asked and not {"line", "from", "offset", "before"} & asked.keys():
            page["found"] = await _search(api, run, asked, base)
        else:
            page["log"] = await _window(api, run, asked, base)
            page["following"] = log_view.is_end(asked) and not page["log"]["complete"]
    except Refused as refusal:
        if refusal.code not in ("FILES_PURGED", "UNAVAILABLE"):
            raise
        page["missing"] = refusal.problem["detail"]
    return await rendering.page(request, "log.html", **page)


async def lines(request: Request, api: Api) -> Response:
    """What is new since the last look, as rows; `data-resume` says where to go on. Raises SignInNeeded, Refused."""
    asked = {name: value for name, value in request.query_params.items() if value}
    base = {"attempt": asked["attempt"]} if "attempt" in asked else {}
    run = {"run_id": request.path_params["run_id"]}
    log = await _window(api, run, asked, base)
    return await rendering.page(request, "log_lines.html", log=log, link=Link(run, base), asked=asked)


async def _window(api: Api, run: Json, asked: Json, base: Json) -> Json:
    told = await api.get(_path(run), [*base.items(), *log_view.part_of(asked)])
    if log_view.misses(told, asked):
        told = await api.get(_path(run), [*base.items(), *log_view.part_of({"from": asked["line"]})])
    return log_view.window(told, asked, _mark(asked))


async def _search(api: Api, run: Json, asked: Json, base: Json) -> Json:
    query = [*base.items(), ("q", asked["q"]), ("offset", asked.get("at", "0"))]
    told = await api.get(_path(run), [*query, *([] if "case" in asked else [("ignore_case", "true")])])
    return {
        "matches": log_view.matches(told, _mark(asked)),
        "more": {"q": asked["q"], "at": told["next_offset"], **_case(asked)} if told["more"] else None,
        "searched_bytes": told["next_offset"],
        "size": told["size"],
        "from_begin": told["offset"] == 0,
        "complete": told["complete"],
    }


def _mark(asked: Json) -> re.Pattern[str] | None:
    return ansi.pattern(asked.get("q", ""), "case" in asked)


def _case(asked: Json) -> Json:
    return {"case": "match"} if "case" in asked else {}


def _path(run: Json) -> str:
    return f"/v1/runs/{run['run_id']}/logs"


class Link:
    """Addresses of other parts of the same log: `link(line=5)`; a search goes along where `asked` is given."""

    def __init__(self, run: Json, base: Json) -> None:
        self.path, self._base = f"/ui/runs/{run['run_id']}/log", base

    def __call__(self, asked: Json | None = None, **where: object) -> str:
        along = {name: asked[name] for name in ("q", "case") if name in asked} if asked else {}
        query = urlencode([*self._base.items(), *along.items(), *where.items()])
        return f"{self.path}?{query}" if query else self.path

    @property
    def lines(self) -> str:
        """Where new lines are asked for; the query goes on with where to begin."""
        return f"{self.path}/lines?" + urlencode(self._base)
