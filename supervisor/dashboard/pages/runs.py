"""All runs: one row each, counts that filter, search, pages, and the way to stop or resume many."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from supervisor.dashboard import rendering
from supervisor.dashboard.live.stream import ROWS_MOST
from supervisor.dashboard.public_api import Api, Json, Refused
from supervisor.dashboard.shaping.run_filter import LIVE, Wanted, counted, resumable, stoppable, wanted_of
from supervisor.dashboard.words import STATUS_LOOKS, Look, status_look
from supervisor.domain.status import TERMINAL

SIZES = ("25", "50", "100")  # the ids of a whole page fit into one address
PAGE_SIZE = "50"
WRONG_ADDRESS = (400, 422)  # an unknown or misspelt filter, a cursor of another list


async def show(request: Request, api: Api) -> Response:
    """The page of the filter that stands in the address. Empty fields of the form lead to the address without them."""
    given = request.query_params.multi_items()
    wanted = wanted_of(given)
    if wanted.pairs != tuple(given):
        return RedirectResponse(wanted.address(), 303, {"Cache-Control": "no-store"})
    try:
        found = await api.get("/v1/runs", [*wanted.pairs, ("include", "sparkline")])
    except Refused as refusal:
        if refusal.status not in WRONG_ADDRESS:
            raise
        return await _refused(request, wanted, refusal)
    return await rendering.page(request, "runs.html", **shown(wanted, found), **_around(request))


async def _refused(request: Request, wanted: Wanted, refusal: Refused) -> Response:
    first = wanted.address() if refusal.code == "CURSOR_INVALID" else ""
    return await rendering.page(
        request, "runs_refused.html", refusal.status, told=refusal.problem, code=refusal.code, first=first
    )


def _around(request: Request) -> dict[str, Any]:
    """`origin`: of this service as the browser has it, for commands that are to be copied."""
    return {"origin": str(request.base_url).rstrip("/")}


def shown(wanted: Wanted, found: Json) -> dict[str, Any]:
    """What the template shows of an answer of the API."""
    runs, counts = found["runs"], found["summary"]["counts"]
    statuses = wanted.all("status")
    following = found["next_cursor"]
    return {
        "wanted": wanted,
        "runs": runs,
        "summary": found["summary"],
        "choices": choices(wanted, counts),
        "matching": counted(counts, statuses),
        "stoppable": stoppable(counts, statuses),
        "resumable": resumable(counts, statuses),
        "of_filter": wanted.filters or (("all", "true"),),
        "live_names": ",".join(run["run_id"] for run in runs[:ROWS_MOST]),
        "next_page": None if following is None else f"{_with(wanted.address())}cursor={following}",
        "first_page": wanted.address() if wanted.one("cursor") else None,
        "sizes": SIZES,
        "page_size": wanted.one("page_size") or PAGE_SIZE,
    }


def _with(address: str) -> str:
    return f"{address}{'&' if '?' in address else '?'}"


def choices(wanted: Wanted, counts: dict[str, int]) -> list[dict[str, Any]]:
    """Filters by status, each with the number of runs that it would show; without those that would show none."""
    asked = set(wanted.all("status"))
    groups = [("all", "All", ()), ("live", "Live", LIVE), ("over", "Over", tuple(sorted(TERMINAL)))]
    made = [
        _choice(wanted, Look("", "", text), counted(counts, statuses), statuses, asked == set(statuses))
        for _, text, statuses in groups
    ]
    known = [*STATUS_LOOKS, *sorted(set(counts) - set(STATUS_LOOKS))]
    made += [
        _choice(wanted, status_look(status), counts.get(status, 0), (status,), asked == {status})
        for status in known
        if counts.get(status) or asked == {status}
    ]
    return made


def _choice(
    wanted: Wanted, look: Look, count: int, statuses: tuple[str, ...], chosen: bool
) -> dict[str, Any]:
    return {"look": look, "count": count, "address": wanted.address(status=statuses), "chosen": chosen}
