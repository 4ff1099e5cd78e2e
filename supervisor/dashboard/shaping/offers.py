"""What was learned of each zone, shaped for its page: which offers are shown, in which order, and how each looks.

An offer is a shape in a zone, as a spot or an on-demand machine. Filters are of this page alone: the API tells all
offers at once, some hundreds at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from supervisor.dashboard.public_api import Json
from supervisor.dashboard.words import Look, look_of

LOOKS = {
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
_FIRST = ("cooling", "refused", "good", "unknown")


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


def look(state: str) -> Look:
    return look_of(state, LOOKS)


def market(offer: Json) -> str:
    return SPOT if offer["spot"] else ON_DEMAND


def choose(offers: Sequence[Json], query: Mapping[str, str]) -> Offers:
    """By the query of the page; a value that no offer has shows none."""
    chosen = {name: query.get(name, "") for name in FILTERS}
    shown = [
        one
        for one in offers
        if all(not wanted or _value(one, name) == wanted for name, wanted in chosen.items())
    ]
    order = query.get("sort", "")
    order = order if order in ORDERS else ""
    return Offers(
        sorted(shown, key=_KEYS[order]), chosen, {name: _choices(offers, name) for name in FILTERS}, order
    )


def _value(offer: Json, name: str) -> str:
    return market(offer) if name == "market" else str(offer[name])


def _choices(offers: Iterable[Json], name: str) -> list[Choice]:
    counts: dict[str, int] = {}
    for offer in offers:
        value = _value(offer, name)
        counts[value] = counts.get(value, 0) + 1
    known = [state for state in _FIRST if state in counts] if name == "state" else []
    return [Choice(value, counts[value]) for value in [*known, *(one for one in counts if one not in known)]]


def _by_need(offer: Json) -> tuple[int, str, int]:
    """What keeps runs waiting first, and of that what is asked again soonest; then where machines are."""
    state = offer["state"]
    place = _FIRST.index(state) if state in _FIRST else len(_FIRST)
    return (place, offer["cool_until"] or "", -offer["machines"])


def _by_price(offer: Json) -> tuple[bool, float]:
    price = offer["price_usd_per_h"]
    return (price is None, price or 0.0)


def _as_told(offer: Json) -> int:
    return 0


_KEYS: dict[str, Callable[[Json], Any]] = {"": _by_need, "price": _by_price, "provider": _as_told}
