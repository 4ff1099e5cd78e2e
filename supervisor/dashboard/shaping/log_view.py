"""A window of a log as rows: numbered where lines are counted, harmless, and how to go on from there.

Which part of the log is shown stands in the address: `line=M` (with that line in the middle), `from=N`, `offset=B` or
`before=B` (bytes: where no number is known), else the end; `q=` alone asks for lines in which a text stands.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode

from markupsafe import Markup

from supervisor.dashboard.shaping import ansi
from supervisor.wording.figures import percent

WINDOW = 500  # lines of a page
LIMIT_BYTES = 1_048_576
AROUND = 200  # lines before the one that is asked for

Json = dict[str, Any]
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
