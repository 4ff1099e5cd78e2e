"""What keeps a page live: one stream of events for each open page, which shows one run or the rows of some."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from supervisor.contract.identifiers import is_run_id
from supervisor.dashboard.live.stream import HEADERS, ROWS_MOST, Live, Pages, Wish
from supervisor.dashboard.public_api import Api, Refused
from supervisor.dashboard.relay import refuse_others


async def show(request: Request, api: Api) -> Response:
    """`run=ID`, or `runs=a,b,c` (may be empty: a page without rows); `after` as in the API. Raises Refused."""
    refuse_others(request)
    if request.method == "HEAD":
        return Response(None, headers=HEADERS)  # a stream would have no end
    pages: Pages = request.app.state.pages
    after = request.query_params.get("after")
    seen = request.headers.get("last-event-id")
    return Live(
        api,
        pages,
        _wish(request),
        [] if after is None else [("after", after)],
        {} if seen is None else {"last-event-id": seen},
    )


def _wish(request: Request) -> Wish:
    run = request.query_params.get("run", "")
    rows = [one for one in request.query_params.get("runs", "").split(",") if one]
    unknown = set(request.query_params) - {"run", "runs", "after"}
    if unknown or (run and rows) or not all(map(is_run_id, rows)) or (run and not is_run_id(run)):
        raise _invalid("A stream is of one run (run=ID) or of the rows of some (runs=ID,ID,…).")
    if len(rows) > ROWS_MOST:
        raise _invalid(f"A stream has the rows of {ROWS_MOST} runs at most.")
    return Wish(run, frozenset(rows))


def _invalid(detail: str) -> Refused:
    return Refused(422, {"code": "INVALID_REQUEST", "detail": detail})
