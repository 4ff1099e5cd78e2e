"""What the money was for: a bar and a row for each month, owner, group or run, cut into the classes of the ledger.

A bar is as long as its dollars, beside the longest one; where no price is known, as its billed time. The table below
has the same figures, and so has the CSV, which the link on the page gets from the API.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from supervisor.dashboard import rendering
from supervisor.dashboard.drawing.timeline import HAIR, Part
from supervisor.dashboard.public_api import Api, Refused
from supervisor.wording.figures import age_text, money

Json = Mapping[str, Any]

BY = {"month": "Month", "owner": "Owner", "group": "Group", "run": "Run"}
DAYS = {"7": "7 days", "30": "30 days", "90": "90 days", "": "all"}
FIRST_DAYS = "90"
ROWS_MOST = 60
# Class -> its name for people, in the order of the legend and of a bar.
USES = {
    "productive": "productive",
    "save": "saving",
    "lost": "lost work",
    "frozen": "frozen",
    "restore": "restore",
    "pull": "image pull",
    "boot": "boot",
    "finishing": "finishing",
    "idle_kept": "idle, kept",
}


class Bar(NamedTuple):
    """`row`: as the API has it. `name`: its text; `address`: of its page, "" = it has none."""

    row: Json
    name: str
    address: str
    parts: list[Part]


async def show(request: Request, api: Api) -> Response:
    """`?by=` a word of BY, `?days=` of DAYS; the page names what it does not know, and shows the first ones then.
    `?billed=1`: with the platform's bill. Raises SignInNeeded, Refused."""
    billed, refusal = await _billed(request, api)
    by, days = request.query_params.get("by", ""), request.query_params.get("days", FIRST_DAYS)
    by, days = by if by in BY else next(iter(BY)), days if days in DAYS else FIRST_DAYS
    query = [("by", by), *_since(request.app.state.now(), days)]
    ledger, completion = await api.together(api.get("/v1/ledger", query), api.get("/v1/completion", query[1:]))
    rows: list[Json] = ledger["rows"]
    if by != "month":
        rows.sort(key=lambda row: (-row["billed_usd"], -row["billed_s"]))
    shown = rows[:ROWS_MOST]
    return await rendering.page(
        request,
        "cost.html",
        by=by,
        days=days,
        kinds=BY,
        spans=DAYS,
        uses=USES,
        total=ledger["total"],
        bars=bars(shown, by),
        hidden=len(rows) - len(shown),
        complete=ledger["complete"],
        completion=completion,
        wrong=_wrong(request.query_params),
        billed=billed,
        refusal=refusal,
        address=address,
        as_csv="/ui/v1/ledger?" + urlencode([*query, ("format", "csv")]),
    )


def _wrong(given: Mapping[str, str]) -> list[str]:
    """A sentence for each part of the address that the page does not understand."""
    allowed = {"by": BY, "days": DAYS, "billed": ("1",)}
    texts = []
    for name, value in given.items():
        words = allowed.get(name)
        if words is None:
            texts.append(f"This page knows no {name}: it takes by, days and billed.")
        elif value not in words:
            choice = ", ".join(word or "nothing" for word in words)
            texts.append(f"{name}={value} is not known: {name} is one of {choice}.")
    return texts


async def _billed(request: Request, api: Api) -> tuple[Json | None, str]:
    """The table beside the bill, and why there is none; neither where it was not requested."""
    if request.query_params.get("billed") != "1":
        return None, ""
    try:
        return await api.get("/v1/ledger/billed"), ""
    except Refused as refused:
        return None, str(refused)


def _since(now: float, days: str) -> list[tuple[str, str]]:
    if not days:
        return []
    at = datetime.fromtimestamp(now - int(days) * 86_400.0, UTC)
    return [("since", f"{at:%Y-%m-%dT%H:%M:%SZ}")]


def address(by: str, days: str) -> str:
    return "/ui/cost?" + urlencode({"by": by, "days": days})


def bars(rows: Sequence[Json], by: str) -> list[Bar]:
    sizes = "usd" if any(row["billed_usd"] for row in rows) else "seconds"
    whole = {"usd": "billed_usd", "seconds": "billed_s"}[sizes]
    longest = max((row[whole] for row in rows), default=0.0) or 1.0
    return [Bar(row, *_named(row["name"], by), _parts(row, sizes, longest)) for row in rows]


def _named(name: str | None, by: str) -> tuple[str, str]:
    if name is None:
        return "no group", ""
    return name, {"run": f"/ui/runs/{name}", "group": f"/ui/groups/{name}"}.get(by, "")


def _parts(row: Json, sizes: str, longest: float) -> list[Part]:
    parts, x = [], 0.0
    for use, name in USES.items():
        width = round(100.0 * (row[sizes][use] or 0.0) / longest, 3)
        if width <= 0:
            continue
        title = f"{name} {age_text(row['seconds'][use] or 0.0)}, {money(row['usd'][use])}"
        parts.append(Part(use, min(x, 100.0 - HAIR), max(width, HAIR), title, ""))
        x += width
    return parts
