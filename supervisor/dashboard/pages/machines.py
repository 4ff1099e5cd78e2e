"""Every machine of this supervisor as the cloud shows it now, what each is for and costs, and the release of leftovers.

The API asks the cloud for each of these pages, and tells an administrator alone. Zones that could not be read are
named: nothing is said of them, and nothing in them is released.
"""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from supervisor.dashboard import rendering
from supervisor.dashboard.public_api import Api, Json, Refused
from supervisor.dashboard.words import Look, look_of, moment_text, price

LOOKS = {
    "serves": Look("●", "good", "serves"),
    "retiring": Look("◌", "wait", "on its way out"),
    "kept": Look("◆", "person", "kept"),
    "orphan": Look("▲", "bad", "leftover"),
    "elsewhere": Look("◇", "still", "led elsewhere"),
    "foreign": Look("·", "still", "not ours"),
}
_FIRST = ("orphan", "elsewhere", "kept", "retiring", "serves", "foreign")
TOLD = ("SCOPE_MISSING", "UNAVAILABLE")  # refusals that this page explains itself


async def show(request: Request, api: Api) -> Response:
    """`?all=true`: those of others, too. Raises SignInNeeded, Refused."""
    everything = request.query_params.get("all") == "true"
    try:
        found = await api.get("/v1/machines", [("all", "true")] if everything else [])
    except Refused as refusal:
        return await _untold(request, refusal)
    machines = sorted(found["machines"], key=_by_need)
    return await _page(
        request,
        "machines.html",
        found=found,
        machines=machines,
        everything=everything,
        leftovers=sum(one["use"] == "orphan" for one in machines),
        billing=[run for run in found["runs"] if run["machines"]],
        now_per_h=sum_text(found["summary"], found["summary"]["ours"]),
        asked_at=moment_text(rendering.of_every_page(request)["now"]),
    )


async def ask(request: Request, api: Api) -> Response:
    """What a release would do. Nothing is released by looking. Raises SignInNeeded, Refused."""
    return await _collected(request, api, True)


async def release(request: Request, api: Api) -> Response:
    """Its answer is the page itself and no other address: what was released can be told once only, and a repeat finds
    nothing left to release. Raises SignInNeeded, Refused."""
    return await _collected(request, api, False)


async def _collected(request: Request, api: Api, dry_run: bool) -> Response:
    try:
        found: Json = (await api.call("POST", "/v1/gc", body={"dry_run": dry_run})).json()
    except Refused as refusal:
        return await _untold(request, refusal)
    sums = sum_text(found, len(found["released"]))
    return await _page(request, "machines_release.html", found=found, now_per_h=sums)


async def _untold(request: Request, refusal: Refused) -> Response:
    """Raises Refused for what this page cannot explain."""
    if refusal.code not in TOLD:
        raise refusal
    needed = (refusal.problem.get("meta") or {}).get("needed", "")
    detail = str(refusal.problem.get("detail", ""))
    return await rendering.page(
        request, "machines_untold.html", refusal.status, needed=needed, detail=detail, code=refusal.code
    )


async def _page(request: Request, template: str, **values: Any) -> Response:
    return await rendering.page(request, template, look=look, **values)


def look(use: str) -> Look:
    return look_of(use, LOOKS)


def sum_text(sums: Json, count: int) -> str:
    """`$0.35/h, and 1 of unknown price`: what is not known is never $0."""
    unpriced = sums["unpriced"]
    if unpriced and unpriced == count:
        return "price unknown"
    known = f"{price(sums['usd_per_h'])}/h"
    return f"{known}, and {unpriced} of unknown price" if unpriced else known


def _by_need(machine: Json) -> tuple[int, str, str, str]:
    """What nobody needs and is paid for comes first."""
    use = machine["use"]
    place = _FIRST.index(use) if use in _FIRST else len(_FIRST)
    return (place, machine["run_id"] or "", machine["zone"], machine["machine"])
