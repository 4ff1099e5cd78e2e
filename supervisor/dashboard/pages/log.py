"""What a run wrote: the log of an attempt, and the files that it left, with sizes and checksums.

Of the log a window of numbered lines is shown, a search, and what follows while it grows. A page never holds more than
WINDOW lines, however long the log is. Scripts put new lines below the newest ones (static/log.js asks for
`/log/lines`); without them the page is asked for again. Which part is shown stands in the address: `line=M` (with that
line in the middle), `from=N`, `offset=B` or `before=B` (bytes: where no number is known), else the end; `q=` alone asks
for lines in which a text stands.

Each file can be downloaded through /ui/v1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import quote, urlencode

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from supervisor.dashboard import ansi, rendering
from supervisor.dashboard.public_api import Api, Json, Refused
from supervisor.wording.figures import percent

WINDOW = 500  # lines of a page
LIMIT_BYTES = 1_048_576
AROUND = 200  # lines before the one that is asked for

Query = list[tuple[str, str]]


class Row(NamedTuple):
    """`number` None: not counted that far. `open`: the line has no end yet."""

    number: int | None
    text: Markup
    open: bool = False


def part_of(params: Mapping[str, str]) -> Query:
    """What the API is asked for. Numbers that are none are left for it to refuse."""
    some = [("lines", str(WINDOW)), ("limit", str(LIMIT_BYTES))]
    if line := params.get("line"):
        number = _number(line)
        return [("line", line if number is None else str(max(1, number - AROUND))), *some]
    for name, theirs in (("from", "line"), ("offset", "offset")):
        if name in params:
            return [(theirs, params[name]), *some]
    end = [("tail", str(WINDOW)), ("limit", str(LIMIT_BYTES))]
    return [*end, ("before", params["before"])] if "before" in params else end


def is_end(params: Mapping[str, str]) -> bool:
    """The newest lines are shown: what is new can be put below them."""
    return not any(name in params for name in ("line", "from", "offset", "before", "q"))


def misses(answer: Json, params: Mapping[str, str]) -> bool:
    """Lines are so long that the one that was asked for is not in the window."""
    line, rows = _number(params.get("line", "")), answer["text"].count("\n") + 1
    return line is not None and answer["line"] is not None and line > answer["line"] + rows and _goes_on(answer)


def rows(answer: Json, mark: re.Pattern[str] | None = None) -> list[Row]:
    first, lines = answer["line"], answer["text"].split("\n")
    rest = lines.pop()
    made = [Row(None if first is None else first + at, ansi.shown(line, mark)) for at, line in enumerate(lines)]
    if rest:
        made.append(Row(None if first is None else first + len(lines), ansi.shown(rest, mark), True))
    return made


def window(answer: Json, params: Mapping[str, str], mark: re.Pattern[str] | None) -> Json:
    """What the template shows. `older` and `newer`: queries of the parts beside this one, None at the ends; `resume`:
    from where to follow."""
    shown = rows(answer, mark)
    line = _number(params.get("line", "")) or _number(params.get("from", ""))
    return {
        "rows": shown,
        "first": shown[0].number if shown else None,
        "last": shown[-1].number if shown else None,
        "lines": answer["lines"],
        "size": answer["size"],
        "counted_percent": percent(answer["counted_bytes"], answer["size"]),
        "not_reached": line is not None and answer["line"] is None,
        "too_far": line if line is not None and answer["lines"] is not None and line > answer["lines"] else None,
        "older": {"before": answer["offset"]} if answer["offset"] > 0 else None,
        "newer": _newer(answer, shown) if _goes_on(answer) else None,
        "resume": urlencode(_resume(answer, shown)),
        "complete": answer["complete"],
        "target": line if "line" in params else None,
    }


def matches(answer: Json, mark: re.Pattern[str] | None) -> list[Json]:
    """Of a search; `where`: the query of the part in which the line stands."""
    return [
        {
            "line": match["line"],
            "text": ansi.shown(match["text"], mark),
            "before": match["skipped_bytes"] > 0,
            "after": match["cut_bytes"] > 0,
            "where": {"line": match["line"]} if match["line"] else {"offset": match["offset"]},
        }
        for match in answer["matches"]
    ]


def _newer(answer: Json, shown: list[Row]) -> Json:
    last = shown[-1].number if shown else None
    return {"offset": answer["next_offset"]} if last is None else {"from": last + (not shown[-1].open)}


def _resume(answer: Json, shown: list[Row]) -> Json:
    """The line that has no end yet is read again."""
    if answer["line"] is None:
        return {"offset": answer["next_offset"]}
    return {"from": answer["line"] + len(shown) - (bool(shown) and shown[-1].open)}


def _goes_on(answer: Json) -> bool:
    return bool(answer["next_offset"] < answer["size"])


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and 0 < len(text) < 16 else None


TAIL_LINES = 15


async def tail(api: Api, run: Json) -> Json | None:
    """What `log_panel.html` shows as `log`: the last lines of the newest attempt; None where there are none. `missing`:
    why they cannot be read now. Raises SignInNeeded, Refused."""
    try:
        answer = await api.get_or_none(_path(run), [("tail", str(TAIL_LINES)), ("limit", "65536")], ["FILES_PURGED"])
    except Refused as refusal:
        if refusal.code != "UNAVAILABLE":
            raise
        return {"attempt": run["attempt"], "rows": [], "missing": refusal.problem["detail"]}
    if answer is None or not answer["text"]:
        return None
    return {"attempt": answer["attempt"], "rows": rows(answer), "missing": ""}


async def show(request: Request, api: Api) -> Response:
    """Raises SignInNeeded, Refused."""
    params = {name: value for name, value in request.query_params.items() if value}
    run, answer = await api.together(
        api.get(f"/v1/runs/{request.path_params['run_id']}"),
        api.get(f"/v1/runs/{request.path_params['run_id']}/attempts"),
    )
    attempts = answer["attempts"]
    page: Json = {"run": run, "tab": "log", "attempts": attempts, "params": params, "missing": None, "hits": None}
    number = params.get("attempt") or (str(attempts[-1]["number"]) if attempts else "")
    base = {"attempt": number} if number else {}
    page |= {"number": number, "link": Link(run, base), "log": None, "following": False}
    if rendering.looks_again(request):  # the log is followed by itself
        return await rendering.page(request, "log.html", **page)
    try:
        if "q" in params and not {"line", "from", "offset", "before"} & params.keys():
            page["hits"] = await _search(api, run, params, base)
        else:
            page["log"] = await _window(api, run, params, base)
            page["following"] = is_end(params) and not page["log"]["complete"]
    except Refused as refusal:
        if refusal.code not in ("FILES_PURGED", "UNAVAILABLE"):
            raise
        page["missing"] = refusal.problem["detail"]
    return await rendering.page(request, "log.html", **page)


async def lines(request: Request, api: Api) -> Response:
    """What is new since the last look, as rows; `data-resume` says where to go on. Raises SignInNeeded, Refused."""
    params = {name: value for name, value in request.query_params.items() if value}
    base = {"attempt": params["attempt"]} if "attempt" in params else {}
    run = {"run_id": request.path_params["run_id"]}
    log = await _window(api, run, params, base)
    return await rendering.page(request, "log_lines.html", log=log, link=Link(run, base), params=params)


async def _window(api: Api, run: Json, params: Json, base: Json) -> Json:
    answer = await api.get(_path(run), [*base.items(), *part_of(params)])
    if misses(answer, params):
        answer = await api.get(_path(run), [*base.items(), *part_of({"from": params["line"]})])
    return window(answer, params, _mark(params))


async def _search(api: Api, run: Json, params: Json, base: Json) -> Json:
    query = [*base.items(), ("q", params["q"]), ("offset", params.get("at", "0"))]
    answer = await api.get(_path(run), [*query, *([] if "case" in params else [("ignore_case", "true")])])
    return {
        "matches": matches(answer, _mark(params)),
        "more": {"q": params["q"], "at": answer["next_offset"], **_case(params)} if answer["more"] else None,
        "searched_bytes": answer["next_offset"],
        "size": answer["size"],
        "from_begin": answer["offset"] == 0,
        "complete": answer["complete"],
    }


def _mark(params: Json) -> re.Pattern[str] | None:
    return ansi.pattern(params.get("q", ""), "case" in params)


def _case(params: Json) -> Json:
    return {"case": "match"} if "case" in params else {}


def _path(run: Json) -> str:
    return f"/v1/runs/{run['run_id']}/logs"


class Link:
    """Addresses of other parts of the same log: `link(line=5)`; a search goes along where `params` is given."""

    def __init__(self, run: Json, base: Json) -> None:
        self.path, self._base = f"/ui/runs/{run['run_id']}/log", base

    def __call__(self, params: Json | None = None, **where: object) -> str:
        along = {name: params[name] for name in ("q", "case") if name in params} if params else {}
        query = urlencode([*self._base.items(), *along.items(), *where.items()])
        return f"{self.path}?{query}" if query else self.path

    @property
    def lines(self) -> str:
        """Where new lines are asked for; the query goes on with where to begin."""
        return f"{self.path}/lines?" + urlencode(self._base)


PAGE_SIZE = 100
KINDS = (
    ("results", "Results"), ("checkpoints", "Checkpoints"), ("logs", "Logs"), ("evidence", "Evidence"),
    ("code", "Code"),
)  # fmt: skip


async def files(request: Request, api: Api) -> Response:
    """`?kind=&cursor=`, as the API has them. Raises SignInNeeded, Refused."""
    run = await api.get(f"/v1/runs/{request.path_params['run_id']}")
    query = [
        (name, value) for name, value in request.query_params.multi_items() if name in ("kind", "cursor") and value
    ]
    listing, missing, purged = None, "", False
    try:
        listing = await api.get(f"/v1/runs/{run['run_id']}/files", [*query, ("page_size", str(PAGE_SIZE))])
    except Refused as refusal:
        if refusal.code not in ("FILES_PURGED", "UNAVAILABLE"):
            raise
        missing, purged = refusal.problem["detail"], refusal.code == "FILES_PURGED"
    kinds = [value for name, value in query if name == "kind"]
    return await rendering.tab(
        request,
        "files.html",
        run,
        "files",
        kinds=KINDS,
        kind=kinds[0] if kinds else "",
        began=any(name == "cursor" for name, _ in query),
        files=[_file(run, file) for file in listing["files"]] if listing is not None else [],
        listing=listing,
        following=_next_files(query, listing),
        missing=missing,
        purged=purged,
    )


def _file(run: Json, file: Json) -> Json:
    """Names of results and checkpoints are strangers' words."""
    return {
        **file,
        "name": ansi.shown(file["path"]),
        "address": f"/ui/v1/runs/{run['run_id']}/files/{quote(file['path'])}",
    }


def _next_files(query: list[tuple[str, str]], listing: Json | None) -> str:
    """The query of the next page; empty: there is none."""
    if listing is None or listing["next_cursor"] is None:
        return ""
    return urlencode([*((name, value) for name, value in query if name == "kind"), ("cursor", listing["next_cursor"])])
