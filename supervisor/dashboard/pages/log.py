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


def part_of(asked: Mapping[str, str]) -> Query:
    """What the API is asked for. Numbers that are none are left for it to refuse."""
    some = [("lines", str(WINDOW)), ("limit", str(LIMIT_BYTES))]
    if line := asked.get("line"):
        number = _number(line)
        return [("line", line if number is None else str(max(1, number - AROUND))), *some]
    for name, theirs in (("from", "line"), ("offset", "offset")):
        if name in asked:
            return [(theirs, asked[name]), *some]
    end = [("tail", str(WINDOW)), ("limit", str(LIMIT_BYTES))]
    return [*end, ("before", asked["before"])] if "before" in asked else end


def is_end(asked: Mapping[str, str]) -> bool:
    """The newest lines are shown: what is new can be put below them."""
    return not any(name in asked for name in ("line", "from", "offset", "before", "q"))


def misses(told: Json, asked: Mapping[str, str]) -> bool:
    """Lines are so long that the one that was asked for is not in the window."""
    line, rows = _number(asked.get("line", "")), told["text"].count("\n") + 1
    return line is not None and told["line"] is not None and line > told["line"] + rows and _goes_on(told)


def rows(told: Json, mark: re.Pattern[str] | None = None) -> list[Row]:
    first, lines = told["line"], told["text"].split("\n")
    rest = lines.pop()
    made = [
        Row(None if first is None else first + at, ansi.shown(line, mark)) for at, line in enumerate(lines)
    ]
    if rest:
        made.append(Row(None if first is None else first + len(lines), ansi.shown(rest, mark), True))
    return made


def window(told: Json, asked: Mapping[str, str], mark: re.Pattern[str] | None) -> Json:
    """What the template shows. `older` and `newer`: queries of the parts beside this one, None at the ends; `resume`:
    from where to follow."""
    shown = rows(told, mark)
    line = _number(asked.get("line", "")) or _number(asked.get("from", ""))
    return {
        "rows": shown,
        "first": shown[0].number if shown else None,
        "last": shown[-1].number if shown else None,
        "lines": told["lines"],
        "size": told["size"],
        "counted_percent": percent(told["counted_bytes"], told["size"]),
        "not_reached": line is not None and told["line"] is None,
        "too_far": line if line is not None and told["lines"] is not None and line > told["lines"] else None,
        "older": {"before": told["offset"]} if told["offset"] > 0 else None,
        "newer": _newer(told, shown) if _goes_on(told) else None,
        "resume": urlencode(_resume(told, shown)),
        "complete": told["complete"],
        "target": line if "line" in asked else None,
    }


def matches(told: Json, mark: re.Pattern[str] | None) -> list[Json]:
    """Of a search; `where`: the query of the part in which the line stands."""
    return [
        {
            "line": match["line"],
            "text": ansi.shown(match["text"], mark),
            "before": match["skipped_bytes"] > 0,
            "after": match["cut_bytes"] > 0,
            "where": {"line": match["line"]} if match["line"] else {"offset": match["offset"]},
        }
        for match in told["matches"]
    ]


def _newer(told: Json, shown: list[Row]) -> Json:
    last = shown[-1].number if shown else None
    return {"offset": told["next_offset"]} if last is None else {"from": last + (not shown[-1].open)}


def _resume(told: Json, shown: list[Row]) -> Json:
    """The line that has no end yet is read again."""
    if told["line"] is None:
        return {"offset": told["next_offset"]}
    return {"from": told["line"] + len(shown) - (bool(shown) and shown[-1].open)}


def _goes_on(told: Json) -> bool:
    return bool(told["next_offset"] < told["size"])


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and 0 < len(text) < 16 else None


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
    return {"attempt": told["attempt"], "rows": rows(told), "missing": ""}


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
            page["following"] = is_end(asked) and not page["log"]["complete"]
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
    told = await api.get(_path(run), [*base.items(), *part_of(asked)])
    if misses(told, asked):
        told = await api.get(_path(run), [*base.items(), *part_of({"from": asked["line"]})])
    return window(told, asked, _mark(asked))


async def _search(api: Api, run: Json, asked: Json, base: Json) -> Json:
    query = [*base.items(), ("q", asked["q"]), ("offset", asked.get("at", "0"))]
    told = await api.get(_path(run), [*query, *([] if "case" in asked else [("ignore_case", "true")])])
    return {
        "matches": matches(told, _mark(asked)),
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


PAGE_SIZE = 100
KINDS = (
    ("results", "Results"), ("checkpoints", "Checkpoints"), ("logs", "Logs"), ("evidence", "Evidence"),
    ("code", "Code"),
)  # fmt: skip


async def files(request: Request, api: Api) -> Response:
    """`?kind=&cursor=`, as the API has them. Raises SignInNeeded, Refused."""
    run = await api.get(f"/v1/runs/{request.path_params['run_id']}")
    query = [
        (name, value)
        for name, value in request.query_params.multi_items()
        if name in ("kind", "cursor") and value
    ]
    found, missing, purged = None, "", False
    try:
        found = await api.get(f"/v1/runs/{run['run_id']}/files", [*query, ("page_size", str(PAGE_SIZE))])
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
        files=[_file(run, file) for file in found["files"]] if found is not None else [],
        found=found,
        following=_next_files(query, found),
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


def _next_files(query: list[tuple[str, str]], found: Json | None) -> str:
    """The query of the next page; empty: there is none."""
    if found is None or found["next_cursor"] is None:
        return ""
    return urlencode(
        [*((name, value) for name, value in query if name == "kind"), ("cursor", found["next_cursor"])]
    )
