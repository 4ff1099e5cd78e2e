"""Machines and zones: each machine of this supervisor as the cloud shows it now, and where machines could be.

The API asks the cloud for each page of machines, and shows an administrator only: what each machine is for, its cost,
and the release of leftovers. Zones that could not be read are named: the page says nothing about them, and nothing in
them is released.

The page of zones shows what was learned of each offer, which is a shape in a zone as a spot or an on-demand machine:
capacity, refusals and their backoff, preemptions. It filters and sorts itself: the API sends all offers, some hundreds
at most.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from supervisor.dashboard import rendering
from supervisor.dashboard.public_api import Api, Json, Refused
from supervisor.dashboard.words import look_of, moment_text, price
from supervisor.wording.figures import Look

LOOKS = {  # the most urgent first
    "orphan": Look("▲", "bad", "leftover"),
    "elsewhere": Look("◇", "still", "led elsewhere"),
    "kept": Look("◆", "person", "kept"),
    "retiring": Look("◌", "wait", "being released"),
    "serves": Look("●", "good", "serves"),
    "foreign": Look("·", "still", "not ours"),
}
EXPLAINED = ("SCOPE_MISSING", "UNAVAILABLE")  # refusals that this page explains itself

OFFER_LOOKS = {  # the most urgent first
    "no_contact": Look("▲", "bad", "no contact"),
    "cooling": Look("◔", "wait", "cooling"),
    "refused": Look("✗", "bad", "refused"),
    "good": Look("●", "good", "good"),
    "unknown": Look("○", "still", "unknown"),
}
MEANINGS = {
    "good": "One of our machines is there now, or was there until it was preempted within the window.",
    "cooling": "The last request was refused. There is no request before the backoff is over; it grows from 3 to 30 "
    "minutes.",
    "refused": "The last request was refused, and the backoff is over: a new request is possible.",
    "unknown": "Nothing is known yet, or all of it is too old.",
    "no_contact": "Its machines cannot be read. They may still work, so nothing is ended and nothing started there.",
}
ORDERS = {"": "urgency", "price": "price", "provider": "the provider's preference"}
FILTERS = ("state", "region", "shape", "market")


class Offers(NamedTuple):
    """`shown`: in order; `chosen`: filter -> value, "" = any; `choices`: filter -> (value, number of offers)."""

    shown: list[Json]
    chosen: dict[str, str]
    choices: dict[str, list[tuple[str, int]]]
    order: str


async def show(request: Request, api: Api) -> Response:
    """`?all=true`: also the machines of others. Raises SignInNeeded, Refused."""
    everything = request.query_params.get("all") == "true"
    answer, refusal = await api.get_or_refusal("/v1/machines", [("all", "true")] if everything else [], EXPLAINED)
    if refusal is not None:
        return await _unavailable(request, refusal)
    machines = sorted(answer["machines"], key=_by_urgency)
    return await _page(
        request,
        "machines.html",
        answer=answer,
        machines=machines,
        bases=(await api.get("/v1/bases"))["bases"],
        everything=everything,
        leftovers=sum(machine["use"] == "orphan" for machine in machines),
        billing=[run for run in answer["runs"] if run["machines"]],
        now_per_h=sum_text(answer["summary"], answer["summary"]["ours"]),
        asked_at=moment_text(request.app.state.now()),
    )


async def ask(request: Request, api: Api) -> Response:
    """What a release would do; nothing is released. Raises SignInNeeded, Refused."""
    return await _collected(request, api, True)


async def release(request: Request, api: Api) -> Response:
    """The response is the page itself, without a redirect: only this response knows what was released, and a repeated
    request finds nothing left to release. Raises SignInNeeded, Refused."""
    return await _collected(request, api, False)


async def _collected(request: Request, api: Api, dry_run: bool) -> Response:
    try:
        answer: Json = await api.post("/v1/gc", {"dry_run": dry_run})
    except Refused as refusal:
        if refusal.code not in EXPLAINED:
            raise
        return await _unavailable(request, refusal)
    sums = sum_text(answer, len(answer["released"]))
    return await _page(request, "machines_release.html", answer=answer, now_per_h=sums)


async def _unavailable(request: Request, refusal: Refused) -> Response:
    needed = (refusal.problem.get("meta") or {}).get("needed", "")
    return await rendering.page(
        request, "machines_refused.html", refusal.status, needed=needed, detail=str(refusal), code=refusal.code
    )


async def _page(request: Request, template: str, **values: Any) -> Response:
    return await rendering.page(request, template, look=lambda use: look_of(use, LOOKS), **values)


def sum_text(sums: Json, count: int) -> str:
    """`$0.35/h, and 1 of unknown price`: an unknown price is never $0."""
    unpriced = sums["unpriced"]
    if unpriced and unpriced == count:
        return "price unknown"
    rate = f"{price(sums['usd_per_h'])}/h"
    return f"{rate}, and {unpriced} of unknown price" if unpriced else rate


def _by_urgency(machine: Json) -> tuple[int, str, str, str]:
    """First the machines that cost money and serve no run."""
    return (_place(machine["use"], LOOKS), machine["run_id"] or "", machine["zone"], machine["machine"])


def _place(word: str, looks: Mapping[str, Look]) -> int:
    return [*looks, word].index(word)


async def zones(request: Request, api: Api) -> Response:
    """`?state=&region=&shape=&market=&sort=`. Raises SignInNeeded, Refused."""
    answer = await api.get("/v1/zones")
    offers = choose(answer["zones"], request.query_params)
    filters = {**offers.chosen, "sort": offers.order}

    def where(name: str, value: str) -> str:
        """This page with another value of one filter."""
        query = {**filters, name: value}
        return "/ui/zones?" + urlencode([(key, text) for key, text in query.items() if text])

    return await rendering.page(
        request,
        "zones.html",
        offers=offers,
        total=len(answer["zones"]),
        window_s=answer["window_s"],
        where=where,
        look=lambda state: look_of(state, OFFER_LOOKS),
        market=market,
        meanings=MEANINGS,
        orders=ORDERS,
    )


def market(offer: Json) -> str:
    return str(offer["market"])


def choose(offers: Sequence[Json], query: Mapping[str, str]) -> Offers:
    """By the query of the page; a value that no offer has shows none."""
    chosen = {name: query.get(name, "") for name in FILTERS}
    shown = [
        offer for offer in offers if all(not value or _value(offer, name) == value for name, value in chosen.items())
    ]
    order = query.get("sort", "")
    order = order if order in ORDERS else ""
    return Offers(sorted(shown, key=_KEYS[order]), chosen, {name: _choices(offers, name) for name in FILTERS}, order)


def _value(offer: Json, name: str) -> str:
    return market(offer) if name == "market" else str(offer[name])


def _choices(offers: Sequence[Json], name: str) -> list[tuple[str, int]]:
    counts = Counter(_value(offer, name) for offer in offers)
    first = [state for state in OFFER_LOOKS if state in counts] if name == "state" else []
    return [(value, counts[value]) for value in dict.fromkeys([*first, *counts])]


def _offer_by_urgency(offer: Json) -> tuple[int, str, int]:
    """First the offers that keep runs waiting, the soonest next request first; then those with machines."""
    return (_place(offer["state"], OFFER_LOOKS), offer["cool_until"] or "", -offer["machines"])


def _by_price(offer: Json) -> tuple[bool, float]:
    usd_per_h = offer["price_usd_per_h"]
    return (usd_per_h is None, usd_per_h or 0.0)


_KEYS: dict[str, Callable[[Json], Any]] = {"": _offer_by_urgency, "price": _by_price, "provider": lambda offer: 0}
