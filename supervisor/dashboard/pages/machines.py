"""Where machines are and where they could be: each machine of this supervisor as the cloud shows it now, and zones.

The API asks the cloud for each page of machines, and tells an administrator alone: what each is for and costs, and the
release of leftovers. Zones that could not be read are named: nothing is said of them, and nothing in them is released.

Of each zone, what was learned: room, refusals and their pauses, machines that were taken away. An offer is a shape in a
zone, as a spot or an on-demand machine. Filters are of this page alone: the API tells all offers at once, some hundreds
at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from supervisor.dashboard import rendering
from supervisor.dashboard.public_api import Api, Json, Refused
from supervisor.dashboard.words import look_of, moment_text, price
from supervisor.wording.figures import Look

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
        answer = await api.get("/v1/machines", [("all", "true")] if everything else [])
    except Refused as refusal:
        return await _untold(request, refusal)
    machines = sorted(answer["machines"], key=_by_need)
    return await _page(
        request,
        "machines.html",
        answer=answer,
        machines=machines,
        everything=everything,
        leftovers=sum(machine["use"] == "orphan" for machine in machines),
        billing=[run for run in answer["runs"] if run["machines"]],
        now_per_h=sum_text(answer["summary"], answer["summary"]["ours"]),
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
        answer: Json = (await api.call("POST", "/v1/gc", body={"dry_run": dry_run})).json()
    except Refused as refusal:
        return await _untold(request, refusal)
    sums = sum_text(answer, len(answer["released"]))
    return await _page(request, "machines_release.html", answer=answer, now_per_h=sums)


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
    rate = f"{price(sums['usd_per_h'])}/h"
    return f"{rate}, and {unpriced} of unknown price" if unpriced else rate


def _by_need(machine: Json) -> tuple[int, str, str, str]:
    """What nobody needs and is paid for comes first."""
    use = machine["use"]
    place = _FIRST.index(use) if use in _FIRST else len(_FIRST)
    return (place, machine["run_id"] or "", machine["zone"], machine["machine"])


OFFER_LOOKS = {
    "good": Look("●", "good", "good"),
    "cooling": Look("◔", "wait", "cooling"),
    "refused": Look("✗", "bad", "refused"),
    "unknown": Look("○", "still", "unknown"),
}
MEANINGS = {
    "good": "A machine of ours is there now, or was until it was taken away within the window.",
    "cooling": "The last request was refused. Nobody asks before the pause is over; it grows from 3 to 30 minutes.",
    "refused": "The last request was refused, and the pause after it is over: it may be asked again.",
    "unknown": "Nothing was learned yet, or all of it is too long ago.",
}
ORDERS = {"": "what needs a look", "price": "price", "provider": "the provider's preference"}
FILTERS = ("state", "region", "shape", "market")
SPOT, ON_DEMAND = "spot", "on-demand"
_STATES = ("cooling", "refused", "good", "unknown")


class Choice(NamedTuple):
    """A value of a filter, and how many of all offers have it."""

    value: str
    offers: int


class Offers(NamedTuple):
    """`shown`: in order; `chosen`: filter -> value, "" = any; `choices`: filter -> what there is."""

    shown: list[Json]
    chosen: dict[str, str]
    choices: dict[str, list[Choice]]
    order: str


def offer_look(state: str) -> Look:
    return look_of(state, OFFER_LOOKS)


def market(offer: Json) -> str:
    return SPOT if offer["spot"] else ON_DEMAND


def choose(offers: Sequence[Json], query: Mapping[str, str]) -> Offers:
    """By the query of the page; a value that no offer has shows none."""
    chosen = {name: query.get(name, "") for name in FILTERS}
    shown = [
        offer for offer in offers if all(not wanted or _value(offer, name) == wanted for name, wanted in chosen.items())
    ]
    order = query.get("sort", "")
    order = order if order in ORDERS else ""
    return Offers(sorted(shown, key=_KEYS[order]), chosen, {name: _choices(offers, name) for name in FILTERS}, order)


def _value(offer: Json, name: str) -> str:
    return market(offer) if name == "market" else str(offer[name])


def _choices(offers: Iterable[Json], name: str) -> list[Choice]:
    counts: dict[str, int] = {}
    for offer in offers:
        value = _value(offer, name)
        counts[value] = counts.get(value, 0) + 1
    first = [state for state in _STATES if state in counts] if name == "state" else []
    return [Choice(value, counts[value]) for value in [*first, *(value for value in counts if value not in first)]]


def _offer_by_need(offer: Json) -> tuple[int, str, int]:
    """What keeps runs waiting first, and of that what is asked again soonest; then where machines are."""
    state = offer["state"]
    place = _STATES.index(state) if state in _STATES else len(_STATES)
    return (place, offer["cool_until"] or "", -offer["machines"])


def _by_price(offer: Json) -> tuple[bool, float]:
    price = offer["price_usd_per_h"]
    return (price is None, price or 0.0)


def _as_told(offer: Json) -> int:
    return 0


_KEYS: dict[str, Callable[[Json], Any]] = {"": _offer_by_need, "price": _by_price, "provider": _as_told}


async def zones(request: Request, api: Api) -> Response:
    """`?state=&region=&shape=&market=&sort=`. Raises SignInNeeded, Refused."""
    answer = await api.get("/v1/zones")
    chosen = choose(answer["zones"], request.query_params)
    filters = {**chosen.chosen, "sort": chosen.order}

    def where(name: str, value: str) -> str:
        """This page with one of its choices made otherwise."""
        query = {**filters, name: value}
        return "/ui/zones?" + urlencode([(key, text) for key, text in query.items() if text])

    return await rendering.page(
        request,
        "zones.html",
        offers=chosen,
        total=len(answer["zones"]),
        window_s=answer["window_s"],
        where=where,
        look=offer_look,
        market=market,
        meanings=MEANINGS,
        orders=ORDERS,
    )
