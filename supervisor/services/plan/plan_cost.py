"""What a run that is not there yet would cost: prices of the places where it may run, and the most that its limits
allow. A price that is not known is said to be unknown and never counted as 0; then there is no "at most" either, unless
a budget gives one.
"""

from __future__ import annotations

from collections.abc import Sequence

from supervisor.domain.machines.placement import Offer
from supervisor.domain.policies import Limits
from supervisor.services.views.run_view import Json, usd
from supervisor.wording.figures import count_text, money_text

HOUR_S = 3600.0
TIMES = "\N{MULTIPLICATION SIGN}"


def cost_json(offers: Sequence[Offer], limits: Limits) -> Json:
    """`offers` in the order of the tries. Prices in $/h, sums in $; null = unknown, or without a limit."""
    prices = [offer.price_usd_per_h for offer in offers]
    known = [price for price in prices if price is not None]
    most = max(known) if known and len(known) == len(prices) else None
    for_training = None
    if most is not None and limits.max_runtime_s is not None:
        for_training = most * limits.max_runtime_s / HOUR_S
    sums = [one for one in (for_training, limits.budget_usd) if one is not None]
    return {
        "usd_per_h": usd(prices[0]) if prices else None,
        "least_usd_per_h": usd(min(known, default=None)),
        "most_usd_per_h": usd(most),
        "known": bool(prices) and len(known) == len(prices),
        "max_runtime_usd": usd(for_training),
        "budget_usd": usd(limits.budget_usd),
        "at_most_usd": usd(min(sums, default=None)),
        "lines": _lines(offers, known, most, for_training, limits),
    }


def _lines(
    offers: Sequence[Offer],
    known: list[float],
    most: float | None,
    for_training: float | None,
    limits: Limits,
) -> list[str]:
    if not offers:
        return ["No place is offered to this run, so no price can be told."]
    found = [_first(offers[0])]
    if len(offers) > 1 and known:
        least, highest = min(known), max(known)
        spread = f"{_per_h(least)}" if least == highest else f"{_per_h(least)} to {_per_h(highest)}"
        found.append(f"All {len(offers)} places of the order: {spread}.")
    if len(known) < len(offers):
        lacking = dict.fromkeys(
            f"{_name(offer)} in {offer.placement.zone}" for offer in offers if offer.price_usd_per_h is None
        )
        found.append(f"Unknown prices, not counted: {', '.join(lacking)}.")
    if limits.max_runtime_s is not None:
        hours = _hours(limits.max_runtime_s)
        if for_training is None or most is None:
            found.append(f"max_runtime {hours}: the sum is unknown, because a price is.")
        else:
            found.append(
                f"max_runtime {hours} {TIMES} {_per_h(most)} = {money_text(for_training)} at most for training; "
                "booting, restoring and lost work come on top."
            )
    if limits.budget_usd is not None:
        found.append(f"The budget ends it at {money_text(limits.budget_usd)}.")
    elif limits.max_runtime_s is None and most is not None:
        found.append(f"No limit is set: a day costs {money_text(24 * most)} at most, until it ends.")
    return found


def _first(offer: Offer) -> str:
    price, on_demand = offer.price_usd_per_h, offer.on_demand_usd_per_h
    where = f"{_name(offer)} in {offer.placement.zone}"
    if price is None:
        return f"First: {where}; its price is unknown."
    saved = ""
    if offer.placement.spot and on_demand is not None and on_demand > price:
        saved = f" (on-demand {_per_h(on_demand)}, {100 * (1 - price / on_demand):.0f} % saved)"
    return f"First: {where} at {_per_h(price)}{saved}."


def _name(offer: Offer) -> str:
    return f"{offer.placement.shape} {'spot' if offer.placement.spot else 'on-demand'}"


def _per_h(price: float) -> str:
    """To the cent where that is all of it, else with the digits that make the sums add up."""
    whole_cents = abs(price - round(price, 2)) < 0.00005
    return f"{money_text(price)}/h" if whole_cents else f"${price:,.4f}/h"


def _hours(seconds: float) -> str:
    hours = seconds / HOUR_S
    if hours >= 1:
        return f"{count_text(int(hours))} h" if hours == int(hours) else f"{hours:,.1f} h"
    return f"{seconds / 60:g} min"
