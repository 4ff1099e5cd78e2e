"""What a run prints: the log of an attempt, and the console of its machine.

A page shows a window of at most WINDOW numbered lines of the log, however long it is, or the results of a search.
Scripts append new lines (static/log.js requests `/log/lines` and `/console/lines`); without them the page is reloaded.
The address says which part is shown: `line=M` (that line in the middle), `from=N`, `offset=B` or `before=B` (in bytes,
where no line number is known), otherwise the end; `q=` alone searches for lines that contain a text.

The console is read from the machine while it exists, afterwards from what was kept. Where the platform cannot continue
at an offset, scripts show the newest part again.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response

from supervisor.dashboard import ansi, rendering
from supervisor.dashboard.public_api import Api, Json, Refused
from supervisor.wording.figures import percent

WINDOW = 500  # lines of a page
LIMIT_BYTES = 1_048_576
AROUND = 200  # lines before the requested one
TAIL_LINES = 15  # on the overview
CONSOLE_BYTES = 65_536
NO_LOG = ("FILES_PURGED", "UNAVAILABLE")
NO_CONSOLE = ("EVIDENCE_NOT_FOUND", "FILES_PURGED", "UNAVAILABLE", "NOT_SUPPORTED")
SOURCES = {
    "machine": "read from the machine just now",
    "kept": "kept before the machine was released",
    "cloud_logging": "read from the cloud's log service",
}

Query = list[tuple[str, str]]


class Row(NamedTuple):
    """`number` None: lines are not counted that far. `open`: the line is not complete yet."""

    number: int | None
    text: Markup
    open: bool = False


async def show(request: Request, api: Api) -> Response:
    """Raises SignInNeeded, Refused."""
    params = {name: value for name, value in request.query_params.items() if value}
    run, answer = await api.of_run("", "/attempts")
    attempts = answer["attempts"]
    number = params.get("attempt") or (str(attempts[-1]["number"]) if attempts else "")
    base = {"attempt": number} if number else {}
    page: Json = {"attempts": attempts, "params": params, "number": number, "link": Link(run["run_id"], base)}
    page |= {"missing": None, "hits": None, "log": None, "following": False}
    if not rendering.looks_again(request):  # an open page follows its log by another address
        if "q" in params and not {"line", "from", "offset", "before"} & params.keys():
            answer, refusal = await _find(api, run["run_id"], params, base)
            page["hits"] = None if answer is None else search(answer, params)
        else:
            answer, refusal = await _read(api, run["run_id"], params, base, NO_LOG)
            page["log"] = None if answer is None else window(answer, params)
            page["following"] = answer is not None and is_end(params) and not answer["complete"]
        page["missing"] = None if refusal is None else refusal.problem["detail"]
    return await rendering.tab(request, "log.html", run, "log", **page)


async def lines(request: Request, api: Api) -> Response:
    """The rows since the last request; `data-resume` says where to continue. Raises SignInNeeded, Refused."""
    params = {name: value for name, value in request.query_params.items() if value}
    base = {"attempt": params["attempt"]} if "attempt" in params else {}
    run_id = request.path_params["run_id"]
    answer, _ = await _read(api, run_id, params, base, ())
    log = window(answer, params)
    return await rendering.page(request, "log_lines.html", log=log, link=Link(run_id, base), params=params)


async def tail(api: Api, run: Json) -> Json | None:
    """For `log_panel.html`: the last lines of the newest attempt; None where there are none. `missing`: why they cannot
    be read now. Raises SignInNeeded, Refused."""
    query = [("tail", str(TAIL_LINES)), ("limit", "65536")]
    answer, refusal = await api.get_or_refusal(_path(run["run_id"]), query, NO_LOG)
    if refusal is not None and refusal.code == "UNAVAILABLE":
        return {"attempt": run["attempt"], "rows": [], "missing": refusal.problem["detail"]}
    if answer is None or not answer["text"]:
        return None
    return {"attempt": answer["attempt"], "rows": rows(answer), "missing": ""}


class Link:
    """Addresses of other parts of the same log: `link(line=5)`; `params` carries a search along."""

    def __init__(self, run_id: str, base: Json) -> None:
        self.path, self._base = f"/ui/runs/{run_id}/log", base

    def __call__(self, params: Json | None = None, **where: object) -> str:
        along: Json = {name: params[name] for name in ("q", "case") if name in params} if params else {}
        query = urlencode({**self._base, **along, **where})
        return f"{self.path}?{query}" if query else self.path

    @property
    def lines(self) -> str:
        """Where scripts request new lines; they append where to begin."""
        return f"{self.path}/lines?" + urlencode(self._base)


def part_of(params: Mapping[str, str]) -> Query:
    """The query to the API. A number that is not one is passed on, for the API to refuse."""
    forward = [("lines", str(WINDOW)), ("limit", str(LIMIT_BYTES))]
    if line := params.get("line"):
        number = _number(line)
        return [("line", line if number is None else str(max(1, number - AROUND))), *forward]
    for name, theirs in (("from", "line"), ("offset", "offset")):
        if name in params:
            return [(theirs, params[name]), *forward]
    end = [("tail", str(WINDOW)), ("limit", str(LIMIT_BYTES))]
    return [*end, ("before", params["before"])] if "before" in params else end


def is_end(params: Mapping[str, str]) -> bool:
    """True where the newest lines are shown: new ones can be appended."""
    return not any(name in params for name in ("line", "from", "offset", "before", "q"))


def misses(answer: Json, params: Mapping[str, str]) -> bool:
    """True where the lines are so long that the window ends before the requested one."""
    line, row_count = _number(params.get("line", "")), answer["text"].count("\n") + 1
    return line is not None and answer["line"] is not None and line > answer["line"] + row_count and _continues(answer)


def rows(answer: Json, mark: re.Pattern[str] | None = None) -> list[Row]:
    first = answer["line"]
    return [
        Row(None if first is None else first + at, ansi.shown(text, mark), is_open)
        for at, (text, is_open) in enumerate(_lines_of(answer["text"]))
    ]


def _lines_of(text: str) -> list[tuple[str, bool]]:
    """(line, it is incomplete), in order."""
    *whole, rest = text.split("\n")
    return [*((line, False) for line in whole), *([(rest, True)] if rest else [])]


def window(answer: Json, params: Mapping[str, str]) -> Json:
    """For the template. `older`, `newer`: queries of the neighboring parts, None at the ends; `resume`: where to
    follow."""
    shown = rows(answer, _mark(params))
    last = shown[-1].number if shown else None
    line = _number(params.get("line", "")) or _number(params.get("from", ""))
    newer = {"offset": answer["next_offset"]} if last is None else {"from": last + (not shown[-1].open)}
    resume = {"offset": answer["next_offset"]}
    if answer["line"] is not None:  # an incomplete line is read again
        resume = {"from": answer["line"] + len(shown) - (bool(shown) and shown[-1].open)}
    return {
        "rows": shown,
        "first": shown[0].number if shown else None,
        "last": last,
        "lines": answer["lines"],
        "size": answer["size"],
        "counted_percent": percent(answer["counted_bytes"], answer["size"]),
        "not_reached": line is not None and answer["line"] is None,
        "too_far": line if line is not None and answer["lines"] is not None and line > answer["lines"] else None,
        "older": {"before": answer["offset"]} if answer["offset"] > 0 else None,
        "newer": newer if _continues(answer) else None,
        "resume": urlencode(resume),
        "complete": answer["complete"],
        "target": line if "line" in params else None,
    }


def search(answer: Json, params: Mapping[str, str]) -> Json:
    """For the template; `where`: the query of the part that contains the line."""
    case = {"case": "match"} if "case" in params else {}
    return {
        "matches": [
            {
                "line": match["line"],
                "text": ansi.shown(match["text"], _mark(params)),
                "before": match["skipped_bytes"] > 0,
                "after": match["cut_bytes"] > 0,
                "where": {"line": match["line"]} if match["line"] else {"offset": match["offset"]},
            }
            for match in answer["matches"]
        ],
        "more": {"q": params["q"], "at": answer["next_offset"], **case} if answer["more"] else None,
        "searched_bytes": answer["next_offset"],
        "size": answer["size"],
        "from_begin": answer["offset"] == 0,
        "complete": answer["complete"],
    }


async def _find(api: Api, run_id: str, params: Mapping[str, str], base: Json) -> tuple[Any, Refused | None]:
    case = [] if "case" in params else [("ignore_case", "true")]
    query = [*base.items(), ("q", params["q"]), ("offset", params.get("at", "0")), *case]
    return await api.get_or_refusal(_path(run_id), query, NO_LOG)


async def _read(
    api: Api, run_id: str, params: Mapping[str, str], base: Json, codes: Sequence[str]
) -> tuple[Any, Refused | None]:
    answer, refusal = await api.get_or_refusal(_path(run_id), [*base.items(), *part_of(params)], codes)
    if answer is not None and misses(answer, params):
        return await api.get_or_refusal(_path(run_id), [*base.items(), *part_of({"from": params["line"]})], codes)
    return answer, refusal


def _path(run_id: str) -> str:
    return f"/v1/runs/{run_id}/logs"


def _mark(params: Mapping[str, str]) -> re.Pattern[str] | None:
    return ansi.pattern(params.get("q", ""), "case" in params)


def _continues(answer: Json) -> bool:
    return bool(answer["next_offset"] < answer["size"])


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdigit() and 0 < len(text) < 16 else None


async def console(request: Request, api: Api) -> Response:
    """Raises SignInNeeded, Refused."""
    params = dict(request.query_params)
    run, answer = await api.of_run("", "/attempts")
    attempts = answer["attempts"]
    number = params.get("attempt") or (str(attempts[-1]["number"]) if attempts else "")
    page: Json = {"attempts": attempts, "number": number, "source": params.get("source", ""), "sources": SOURCES}
    page |= {"console": None, "missing": None, "log_service": None}
    if attempts and not rendering.looks_again(request):
        answer, refusal = await _console(api, run["run_id"], number, page["source"], attempts)
        if refusal is None:
            page["console"] = _console_view(answer)
        else:
            page["missing"] = refusal.problem["detail"]
            page["log_service"] = await _log_service(api, attempts[-1]["placement"]["provider"])
    return await rendering.tab(request, "console.html", run, "console", **page)


async def console_lines(request: Request, api: Api) -> Response:
    """The text after `after`, or the newest part where there is no such offset. Raises SignInNeeded, Refused."""
    params = request.query_params
    query = [(name, params[name]) for name in ("attempt", "after") if name in params]
    answer = await api.get(f"/v1/runs/{request.path_params['run_id']}/console", [*query, ("limit", str(CONSOLE_BYTES))])
    return await rendering.page(request, "console_lines.html", console=_console_view(answer))


async def _log_service(api: Api, provider: str) -> str | None:
    """The log service that keeps the consoles of this provider's released machines."""
    providers = (await api.get("/v1/providers"))["providers"]
    return next((entry["log_service"] for entry in providers if entry["name"] == provider), None)


async def _console(
    api: Api, run_id: str, number: str, source: str, attempts: Sequence[Json]
) -> tuple[Any, Refused | None]:
    path, query = f"/v1/runs/{run_id}/console", [("attempt", number), ("limit", str(CONSOLE_BYTES))]
    if source == "cloud_logging":
        return await api.get_or_refusal(path, [*query, ("source", source)], NO_CONSOLE)
    if any(str(attempt["number"]) == number and attempt["gone_at"] is None for attempt in attempts):
        answer, refusal = await api.get_or_refusal(path, [*query, ("after", str(-CONSOLE_BYTES))], NO_CONSOLE)
        if (refusal is None and answer["text"]) or (refusal is not None and refusal.code == "UNAVAILABLE"):
            return answer, refusal
    return await api.get_or_refusal(path, query, NO_CONSOLE)


def _console_view(answer: Json) -> Json:
    shown = _lines_of(answer["text"])
    rest = shown[-1][0] if shown and shown[-1][1] else ""
    after = answer.get("next_offset")  # None: this console cannot be followed by offsets
    if after is not None and "\ufffd" not in rest:  # an incomplete line is read again, where its bytes can be counted
        after -= len(rest.encode("utf-8", "replace"))
    return {
        **{name: answer[name] for name in ("live", "source", "machine", "zone", "log_service")},
        "rows": [(ansi.shown(line), is_open) for line, is_open in shown],
        "lost": answer.get("lost_bytes") or 0,
        "begin": answer.get("start"),
        "resume": urlencode({"after": after}) if after is not None else "",
    }
