"""Pages of a list: at most 500 rows, in a stable order, and a token that remembers the last row and not a count.

So a row that appears or goes between two pages moves no other row: as in the real service, what was there all the
time is listed exactly once.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, Protocol

from tests.cloud.compute_errors import ApiError, invalid
from tests.cloud.compute_filter import parse_filter
from tests.cloud.web import Request

PAGE_ROWS = 500
Key = tuple[Any, ...]


class Row(Protocol):
    @property
    def body(self) -> dict[str, Any]: ...


def newest_first(request: Request) -> bool:
    """Raises ApiError (400) for an order that Compute Engine does not know."""
    order = request.one("orderBy") or "name"
    if order not in ("name", "creationTimestamp desc"):
        raise invalid("orderBy", order, "Invalid sort order.")
    return order != "name"


def page(rows: Sequence[tuple[Key, Row]], request: Request, most: int = PAGE_ROWS) -> tuple[list[Row], str | None]:
    """`rows` in ascending order of their keys -> the rows of this page, and the token of the next (None = the last).
    `most`: a server may always return fewer than requested."""
    limit = min(_limit(request), most)
    test = parse_filter(request.one("filter") or "")
    token = request.one("pageToken")
    start = bisect_right(rows, _key(token), key=lambda row: row[0]) if token else 0
    found: list[Row] = []
    last: Key = ()
    for at in range(start, len(rows)):
        key, row = rows[at]
        if not test(row.body):
            continue
        if len(found) == limit:
            return found, urlsafe_b64encode(json.dumps(last).encode()).decode()
        found.append(row)
        last = key
    return found, None


def _limit(request: Request) -> int:
    text = request.one("maxResults") or str(PAGE_ROWS)
    if not text.isdigit() or int(text) > PAGE_ROWS:
        raise invalid("maxResults", text, "Must be between 0 and 500, inclusive")
    return int(text) or PAGE_ROWS


def _key(token: str) -> Key:
    try:
        return tuple(json.loads(urlsafe_b64decode(token)))
    except ValueError as error:
        raise ApiError(400, "Invalid value for field 'pageToken': '%s'." % token) from error
