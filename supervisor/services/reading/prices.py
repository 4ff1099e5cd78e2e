"""The prices of the machines that are offered, where each was read and how old it is; and their refresh.

An unknown price is null, never 0. A price of the settings has no day, and so no age.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime

from supervisor.domain.access.callers import Caller
from supervisor.domain.errors import NotSupportedHere, Unavailable
from supervisor.domain.events import Event, EventKind
from supervisor.ports.platform import OLD_PRICE_DAYS, PriceTold
from supervisor.ports.provider import NotSupported, ProviderUnavailable
from supervisor.services.parts import Parts
from supervisor.services.views.run_view import Json, usd
from supervisor.wording.figures import plural

TOLD = 100  # changed prices in the history


def prices_json(parts: Parts) -> Json:
    """No network. Raises NotSupportedHere."""
    return _document(parts, _told(parts))


def refreshed_json(parts: Parts, caller: Caller) -> Json:
    """Ask the platform now, which takes up to a minute; `changed` names what differs. Raises NotSupportedHere, and
    Unavailable where it could not be asked: then nothing has changed."""
    before = _told(parts)
    try:
        after = parts.platform.refresh_prices()
    except NotSupported as error:
        raise NotSupportedHere(f"There is nothing to refresh: {error}.") from error
    except ProviderUnavailable as error:
        raise Unavailable(f"The prices were not refreshed: {error}.") from error
    changes = _changes(before, after)
    parts.store.add_events(None, [_event(changes, caller)], parts.clock.now())
    return {**_document(parts, after), "changed": changes}


def _told(parts: Parts) -> tuple[PriceTold, ...]:
    try:
        return parts.platform.prices()
    except NotSupported as error:
        raise NotSupportedHere(f"There are no prices here: {error}.") from error


def _document(parts: Parts, prices: Sequence[PriceTold]) -> Json:
    today = datetime.fromtimestamp(parts.clock.now(), UTC).date()
    return {
        "provider": parts.own_provider,
        "prices": [_price(one, today) for one in prices],
        "old_after_days": OLD_PRICE_DAYS,
    }


def _price(one: PriceTold, today: date) -> Json:
    age_days = one.age_days(today)
    return {
        "shape": one.shape,
        "region": one.region,
        "spot_usd_per_h": usd(one.spot_usd_per_h),
        "on_demand_usd_per_h": usd(one.on_demand_usd_per_h),
        "saved_percent": _saved(one),
        "source": one.source or None,
        "dated": one.dated or None,
        "age_days": age_days,
        "old": age_days is not None and age_days > OLD_PRICE_DAYS,
    }


def _saved(one: PriceTold) -> float | None:
    """Of the on-demand price, 0 to 100; None where one of the two is not known."""
    spot, on_demand = one.spot_usd_per_h, one.on_demand_usd_per_h
    if spot is None or not on_demand:
        return None
    return round(100.0 * (1.0 - spot / on_demand), 1)


def _event(changes: Sequence[Json], caller: Caller) -> Event:
    names = [f"{one['shape']} {one['region']} {one['market']}" for one in changes]
    told = list(zip(names, changes, strict=True))[:TOLD]
    return caller.changed(
        EventKind.PRICES_REFRESHED,
        f"Prices refreshed by {caller.actor}: {plural(len(changes), 'price')} changed.",
        {name: one["from_usd_per_h"] for name, one in told},
        {name: one["to_usd_per_h"] for name, one in told},
        {"changed": len(changes)},
    )


def _changes(before: Sequence[PriceTold], after: Sequence[PriceTold]) -> list[Json]:
    known = {(one.shape, one.region): one for one in before}
    changes = []
    for one in after:
        was = known.get((one.shape, one.region))
        for market, old, new in (
            ("spot", was.spot_usd_per_h if was else None, one.spot_usd_per_h),
            ("on_demand", was.on_demand_usd_per_h if was else None, one.on_demand_usd_per_h),
        ):
            if old != new:
                place = {"shape": one.shape, "region": one.region, "market": market}
                changes.append({**place, "from_usd_per_h": usd(old), "to_usd_per_h": usd(new)})
    return changes
