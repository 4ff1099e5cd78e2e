"""The runs page: one row for each run, counts that filter, a search, pages, and the way to stop or resume many.

The address has the filters of the API's list, so every view has an address, and every link is the same filter with one
change, from its first page. An unknown filter stays in the address, for the API to refuse.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from supervisor.dashboard import rendering
from supervisor.dashboard.live import ROWS_MAX
from supervisor.dashboard.public_api import Api, Json, Refused
from supervisor.dashboard.words import status_look
from supervisor.domain.status import TERMINAL, Status
from supervisor.wording.figures import STATUS_LOOKS, Look

FILTERS = ("status", "label", "group", "zone", "owner", "created_after", "q", "run_id")
LIVE = tuple(str(status) for status in Status if status not in TERMINAL)
STOPPABLE = tuple(status for status in LIVE if status not in ("stopping", "awaiting_teardown"))
RESUMABLE = tuple(status for status in TERMINAL if status != "completed")
SIZES = ("25", "50", "100")  # the ids of a whole page fit into one address
PAGE_SIZE = "50"
INVALID_FILTER = (400, 422)  # an unknown or misspelled filter, a cursor of another list
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_MIDNIGHT = "T00:00:00Z"

Pairs = tuple[tuple[str, str], ...]


class Wanted(NamedTuple):
    """`pairs`: the parameters of the address, in their order, without empty ones."""

    pairs: Pairs = ()

    def first(self, name: str) -> str:
        """ "" = not given."""
        return next(iter(self.all(name)), "")

    def all(self, name: str) -> list[str]:
        return [value for given, value in self.pairs if given == name]

    @property
    def filters(self) -> Pairs:
        return tuple(pair for pair in self.pairs if pair[0] in FILTERS)

    @property
    def day(self) -> str:
        """`created_after` where it is the beginning of a day, for a date field."""
        begin = self.first("created_after")
        return begin.removesuffix(_MIDNIGHT) if begin.endswith(_MIDNIGHT) else ""

    def address(self, path: str = "/ui/runs", **changes: str | Sequence[str]) -> str:
        """Of the first page, with these parameters replaced; "" and () remove a parameter."""
        kept = [pair for pair in self.pairs if pair[0] not in changes and pair[0] != "cursor"]
        for name, value in changes.items():
            kept += [(name, text) for text in ([value] if isinstance(value, str) else value) if text]
        return path + (f"?{urlencode(kept)}" if kept else "")


def wanted_of(given: Sequence[tuple[str, str]]) -> Wanted:
    """As a form sends it: empty fields are dropped, a day means its beginning."""
    return Wanted(
        tuple(
            (name, value + _MIDNIGHT if name == "created_after" and _DAY.fullmatch(value) else value)
            for name, value in given
            if value != ""
        )
    )


async def show(request: Request, api: Api) -> Response:
    """The list that the address filters. Empty fields of the form redirect to the address without them."""
    given = request.query_params.multi_items()
    wanted = wanted_of(given)
    if wanted.pairs != tuple(given):
        return RedirectResponse(wanted.address(), 303, {"Cache-Control": "no-store"})
    try:
        listing = await api.get("/v1/runs", [*wanted.pairs, ("include", "sparkline"), ("incidents", "true")])
    except Refused as refusal:
        if refusal.status not in INVALID_FILTER:
            raise
        first = wanted.address() if refusal.code == "CURSOR_INVALID" else ""
        return await rendering.page(
            request, "runs_refused.html", refusal.status, problem=refusal.problem, code=refusal.code, first=first
        )
    origin = str(request.base_url).rstrip("/")  # for commands to copy
    alike = [(incident, failed_alike(incident)) for incident in listing["incidents"]]
    return await rendering.page(request, "runs.html", origin=origin, incidents=alike, **shown(wanted, listing))


def failed_alike(incident: Json) -> str:
    """The address of the list of its runs, the newest ones."""
    names = incident["runs"][-int(PAGE_SIZE) :]
    return f"/ui/runs?{urlencode([('run_id', name) for name in names])}"


def shown(wanted: Wanted, listing: Json) -> dict[str, Any]:
    """For the template, from a response of the API."""
    runs, counts = listing["runs"], listing["summary"]["counts"]
    statuses, following = wanted.all("status"), listing["next_cursor"]
    address = wanted.address()
    return {
        "wanted": wanted,
        "runs": runs,
        "summary": listing["summary"],
        "choices": choices(wanted, counts),
        "matching": counted(counts, statuses),
        "stoppable": _of(counts, statuses, STOPPABLE),
        "resumable": _of(counts, statuses, RESUMABLE),
        "of_filter": wanted.filters or (("all", "true"),),
        "live_names": ",".join(run["run_id"] for run in runs[:ROWS_MAX]),
        "next_page": None if following is None else f"{address}{'&' if '?' in address else '?'}cursor={following}",
        "first_page": address if wanted.first("cursor") else None,
        "sizes": SIZES,
        "page_size": wanted.first("page_size") or PAGE_SIZE,
    }


def counted(counts: dict[str, int], statuses: Sequence[str]) -> int:
    """How many runs have one of these statuses; () = any."""
    return sum(counts.values()) if not statuses else sum(counts.get(status, 0) for status in set(statuses))


def _of(counts: dict[str, int], statuses: Sequence[str], able: Sequence[str]) -> int:
    """How many of the matching runs an action applies to; the API decides for each run."""
    return sum(counts.get(status, 0) for status in able if not statuses or status in statuses)


def choices(wanted: Wanted, counts: dict[str, int]) -> list[dict[str, Any]]:
    """The filters by status, each with its number of runs; without filters that would show none."""
    chosen = set(wanted.all("status"))
    groups: list[tuple[Look, tuple[str, ...]]] = [
        (Look("", "", text), statuses)
        for text, statuses in (("All", ()), ("Live", LIVE), ("Over", tuple(sorted(TERMINAL))))
    ]
    groups += [
        (status_look(status), (status,))
        for status in [*STATUS_LOOKS, *sorted(set(counts) - set(STATUS_LOOKS))]
        if counts.get(status) or chosen == {status}
    ]
    return [
        {
            "look": look,
            "count": counted(counts, statuses),
            "address": wanted.address(status=statuses),
            "chosen": chosen == set(statuses),
        }
        for look, statuses in groups
    ]
