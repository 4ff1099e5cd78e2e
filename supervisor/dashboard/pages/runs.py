"""All runs: one row each, counts that filter, search, pages, and the way to stop or resume many.

Which runs a page is about: the filters of the API's list, as they stand in the address of the page. Every view has an
address, and every link here is one: the same filter with one thing changed, from its first page on. What the API does
not know stays in, so that the API says so.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from supervisor.dashboard import rendering
from supervisor.dashboard.live import ROWS_MOST
from supervisor.dashboard.public_api import Api, Json, Refused
from supervisor.dashboard.words import status_look
from supervisor.domain.status import TERMINAL, Status
from supervisor.wording.figures import STATUS_LOOKS, Look

Pairs = tuple[tuple[str, str], ...]
FILTERS = ("status", "label", "zone", "owner", "created_after", "q", "run_id")
LIVE = tuple(str(status) for status in Status if status not in TERMINAL)
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_MIDNIGHT = "T00:00:00Z"


@dataclass(frozen=True, slots=True)
class Wanted:
    """`pairs`: the parameters of the address, in their order, without empty ones."""

    pairs: Pairs = ()

    def first(self, name: str) -> str:
        """The empty text = not given."""
        return next((value for given, value in self.pairs if given == name), "")

    def all(self, name: str) -> list[str]:
        return [value for given, value in self.pairs if given == name]

    @property
    def filters(self) -> Pairs:
        return tuple(pair for pair in self.pairs if pair[0] in FILTERS)

    @property
    def day(self) -> str:
        """`created_after` where it is the begin of a day, as a date field has it."""
        begin = self.first("created_after")
        return begin.removesuffix(_MIDNIGHT) if begin.endswith(_MIDNIGHT) else ""

    def address(self, path: str = "/ui/runs", **changes: str | Sequence[str]) -> str:
        """Of its first page, with these parameters in the place of those of the same name; "" and () = without."""
        kept = [pair for pair in self.pairs if pair[0] not in changes and pair[0] != "cursor"]
        for name, value in changes.items():
            kept += [(name, text) for text in ([value] if isinstance(value, str) else value) if text]
        return path + (f"?{urlencode(kept)}" if kept else "")


def wanted_of(given: Sequence[tuple[str, str]]) -> Wanted:
    """As a form sends it: fields that were left empty say nothing, a day means its begin."""
    return Wanted(
        tuple(
            (name, value + _MIDNIGHT if name == "created_after" and _DAY.fullmatch(value) else value)
            for name, value in given
            if value != ""
        )
    )


def counted(counts: dict[str, int], statuses: Sequence[str]) -> int:
    """How many runs of these statuses; of every one where none is named."""
    return sum(counts.values()) if not statuses else sum(counts.get(status, 0) for status in set(statuses))


def stoppable(counts: dict[str, int], statuses: Sequence[str]) -> int:
    """Of the runs that match, those to which a stop means something; the API judges each by itself."""
    able = [status for status in LIVE if status not in ("stopping", "awaiting_teardown")]
    return _of(counts, statuses, able)


def resumable(counts: dict[str, int], statuses: Sequence[str]) -> int:
    return _of(counts, statuses, [status for status in TERMINAL if status != "completed"])


def _of(counts: dict[str, int], statuses: Sequence[str], able: Sequence[str]) -> int:
    return sum(counts.get(status, 0) for status in able if not statuses or status in statuses)


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
        listing = await api.get("/v1/runs", [*wanted.pairs, ("include", "sparkline")])
    except Refused as refusal:
        if refusal.status not in WRONG_ADDRESS:
            raise
        return await _refused(request, wanted, refusal)
    return await rendering.page(request, "runs.html", **shown(wanted, listing), **_around(request))


async def _refused(request: Request, wanted: Wanted, refusal: Refused) -> Response:
    first = wanted.address() if refusal.code == "CURSOR_INVALID" else ""
    return await rendering.page(
        request, "runs_refused.html", refusal.status, problem=refusal.problem, code=refusal.code, first=first
    )


def _around(request: Request) -> dict[str, Any]:
    """`origin`: of this service as the browser has it, for commands that are to be copied."""
    return {"origin": str(request.base_url).rstrip("/")}


def shown(wanted: Wanted, listing: Json) -> dict[str, Any]:
    """What the template shows of an answer of the API."""
    runs, counts = listing["runs"], listing["summary"]["counts"]
    statuses = wanted.all("status")
    following = listing["next_cursor"]
    return {
        "wanted": wanted,
        "runs": runs,
        "summary": listing["summary"],
        "choices": choices(wanted, counts),
        "matching": counted(counts, statuses),
        "stoppable": stoppable(counts, statuses),
        "resumable": resumable(counts, statuses),
        "of_filter": wanted.filters or (("all", "true"),),
        "live_names": ",".join(run["run_id"] for run in runs[:ROWS_MOST]),
        "next_page": None if following is None else f"{_with(wanted.address())}cursor={following}",
        "first_page": wanted.address() if wanted.first("cursor") else None,
        "sizes": SIZES,
        "page_size": wanted.first("page_size") or PAGE_SIZE,
    }


def _with(address: str) -> str:
    return f"{address}{'&' if '?' in address else '?'}"


def choices(wanted: Wanted, counts: dict[str, int]) -> list[dict[str, Any]]:
    """Filters by status, each with the number of runs that it would show; without those that would show none."""
    chosen = set(wanted.all("status"))
    groups = [("all", "All", ()), ("live", "Live", LIVE), ("over", "Over", tuple(sorted(TERMINAL)))]
    made = [
        _choice(wanted, Look("", "", text), counted(counts, statuses), statuses, chosen == set(statuses))
        for _, text, statuses in groups
    ]
    words = [*STATUS_LOOKS, *sorted(set(counts) - set(STATUS_LOOKS))]
    made += [
        _choice(wanted, status_look(status), counts.get(status, 0), (status,), chosen == {status})
        for status in words
        if counts.get(status) or chosen == {status}
    ]
    return made


def _choice(wanted: Wanted, look: Look, count: int, statuses: tuple[str, ...], chosen: bool) -> dict[str, Any]:
    return {"look": look, "count": count, "address": wanted.address(status=statuses), "chosen": chosen}
