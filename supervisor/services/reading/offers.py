"""The prices of the machines that are offered, where each was read and how old it is; and their refresh.

An unknown price is null, never 0. A price of the settings has no day, and so no age.

What was learned of each offer: where machines could be had lately, where not and why, where they were taken away.

All of it comes from the database; the cloud is not asked. It is the memory that the next placement goes by, told in
the order in which the provider prefers its zones, offers that nothing is known of included.

The providers of this supervisor: what each can do, where its machines may be had, and how the loop reads it.

Nobody is asked: traits and places come from the settings, the rest from the memory of the loop. Only the supervisor
that leads reads listings, so others know nothing of them (null).
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime

from supervisor.domain.callers import Caller
from supervisor.domain.errors import NotSupportedHere, Unavailable
from supervisor.domain.events import Event, EventKind
from supervisor.domain.machines import Offer, ZoneRecord, offer_key
from supervisor.domain.observation import World, gap_s
from supervisor.lifecycle.offers.choosing import LOST_WINDOW_S, is_cooling, lost_lately
from supervisor.ports.platform import OLD_PRICE_DAYS, ShapePrice
from supervisor.ports.provider import NotSupported, Provider, ProviderUnavailable
from supervisor.services.parts import Parts
from supervisor.services.reading.health import LoopStatus
from supervisor.services.views import rfc3339
from supervisor.services.views.run_view import GpuOf, Json, placement_json, usd
from supervisor.wording.figures import plural

COOLING, REFUSED, GOOD, UNKNOWN = "cooling", "refused", "good", "unknown"


def zones_json(parts: Parts, caller: Caller) -> Json:
    """`machines` are those of the caller's own runs, for an admin of all. Raises StoreDown."""
    now, owner = parts.clock.now(), caller.visible_owner(None)
    offers: list[Json] = []
    for name, provider in parts.providers.items():
        cell = parts.cells[name]
        world = World(knobs=parts.knobs, zones=parts.store.zones(cell))
        machines = parts.store.machines(cell, owner)
        for offer in provider.offers():
            key = offer_key(offer.placement)
            offers.append(_offer_json(offer, world, machines.get(key, 0), now, parts.gpu))
    return {"zones": offers, "window_s": LOST_WINDOW_S}


def _offer_json(offer: Offer, world: World, machines: int, now: float, gpu_of: GpuOf) -> Json:
    place, record = offer.placement, world.zones.get(offer_key(offer.placement))
    cooling = is_cooling(record, world, now)
    lost = lost_lately(record, now)
    return {
        **placement_json(place, gpu_of),
        "price_usd_per_h": usd(offer.price_usd_per_h),
        "state": _state(record, cooling, machines, bool(lost)),
        "machines": machines,
        "failures": 0 if record is None else record.failures,
        "cause": None if record is None else record.cause or None,
        "detail": None if record is None else record.detail or None,
        "cool_until": rfc3339.text(record.cool_until) if record is not None and cooling else None,
        "last_stock_out_at": rfc3339.maybe((record.stocked_out_at or None) if record is not None else None),
        "preemptions": len(lost),
        "last_preemption_at": rfc3339.maybe(lost[-1] if lost else None),
    }


def _state(record: ZoneRecord | None, cooling: bool, machines: int, lost: bool) -> str:
    """`refused`: the last request failed, and the pause after it is over."""
    if cooling:
        return COOLING
    if record is not None and record.failures > 0:
        return REFUSED
    return GOOD if machines or lost else UNKNOWN


TOLD = 100  # changed prices in the history


def prices_json(parts: Parts) -> Json:
    """No network. Raises NotSupportedHere."""
    return _document(parts, _prices(parts))


def refreshed_json(parts: Parts, caller: Caller) -> Json:
    """Ask the platform now, which takes up to a minute; `changed` names what differs. Raises NotSupportedHere, and
    Unavailable where it could not be asked: then nothing has changed."""
    before = _prices(parts)
    try:
        after = parts.platform.refresh_prices()
    except NotSupported as error:
        raise NotSupportedHere(f"There is nothing to refresh: {error}.") from error
    except ProviderUnavailable as error:
        raise Unavailable(f"The prices were not refreshed: {error}.") from error
    changes = _changes(before, after)
    parts.store.add_events(None, [_event(changes, caller)], parts.clock.now())
    return {**_document(parts, after), "changed": changes}


def _prices(parts: Parts) -> tuple[ShapePrice, ...]:
    try:
        return parts.platform.prices()
    except NotSupported as error:
        raise NotSupportedHere(f"There are no prices here: {error}.") from error


def _document(parts: Parts, prices: Sequence[ShapePrice]) -> Json:
    today = datetime.fromtimestamp(parts.clock.now(), UTC).date()
    return {
        "provider": parts.own_provider,
        "prices": [_price(price, today) for price in prices],
        "old_after_days": OLD_PRICE_DAYS,
        "setting": parts.traits(parts.own_provider).price_setting or None,
    }


def _price(price: ShapePrice, today: date) -> Json:
    age_days = price.age_days(today)
    return {
        "shape": price.shape,
        "region": price.region,
        "spot_usd_per_h": usd(price.spot_usd_per_h),
        "on_demand_usd_per_h": usd(price.on_demand_usd_per_h),
        "saved_percent": _saved(price),
        "source": price.source or None,
        "dated": price.dated or None,
        "age_days": age_days,
        "old": age_days is not None and age_days > OLD_PRICE_DAYS,
    }


def _saved(price: ShapePrice) -> float | None:
    """Of the on-demand price, 0 to 100; None where one of the two is not known."""
    spot, on_demand = price.spot_usd_per_h, price.on_demand_usd_per_h
    if spot is None or not on_demand:
        return None
    return round(100.0 * (1.0 - spot / on_demand), 1)


def _event(changes: Sequence[Json], caller: Caller) -> Event:
    names = [f"{change['shape']} {change['region']} {change['market']}" for change in changes]
    named = list(zip(names, changes, strict=True))[:TOLD]
    return caller.changed(
        EventKind.PRICES_REFRESHED,
        f"Prices refreshed by {caller.actor}: {plural(len(changes), 'price')} changed.",
        {name: change["from_usd_per_h"] for name, change in named},
        {name: change["to_usd_per_h"] for name, change in named},
        {"changed": len(changes)},
    )


def _changes(before: Sequence[ShapePrice], after: Sequence[ShapePrice]) -> list[Json]:
    earlier = {(price.shape, price.region): price for price in before}
    changes = []
    for price in after:
        was = earlier.get((price.shape, price.region))
        for market, old, new in (
            ("spot", was.spot_usd_per_h if was else None, price.spot_usd_per_h),
            ("on_demand", was.on_demand_usd_per_h if was else None, price.on_demand_usd_per_h),
        ):
            if old != new:
                place = {"shape": price.shape, "region": price.region, "market": market}
                changes.append({**place, "from_usd_per_h": usd(old), "to_usd_per_h": usd(new)})
    return changes


def providers_json(parts: Parts, loop: LoopStatus) -> Json:
    """In the order of preference."""
    oldest_s = gap_s(parts.knobs.poll_interval_s)
    return {
        "providers": [
            {**_traits_json(name, provider), **_listing_json(name, loop, oldest_s)}
            for name, provider in parts.providers.items()
        ]
    }


def _traits_json(name: str, provider: Provider) -> Json:
    traits = provider.traits
    return {
        "name": name,
        "kind": traits.kind,
        "title": traits.title,
        "meter": traits.meter,
        "images": traits.images,
        "stores": dict(traits.stores),
        "secrets": traits.secrets.forms,
        "irreplaceable": traits.irreplaceable,
        "shares_computer": traits.shares_computer,
        "log_service": traits.log_service or None,
        "places": _places_json(provider),
    }


def _places_json(provider: Provider) -> list[Json]:
    """Zones in the order of preference, each with its shapes in the same order."""
    shapes: dict[tuple[str, str], dict[str, None]] = {}
    for offer in provider.offers():
        place = offer.placement
        shapes.setdefault((place.region, place.zone), {})[place.shape] = None
    return [{"region": region, "zone": zone, "shapes": list(offered)} for (region, zone), offered in shapes.items()]


def _listing_json(name: str, loop: LoopStatus, oldest_s: float) -> Json:
    age_s, is_open = loop.listing_ages.get(name), loop.breakers_open.get(name)
    return {
        "listing_age_s": None if age_s is None else round(age_s, 1),
        "listing_read": None if is_open is None else age_s is not None and age_s <= oldest_s,
        "breaker": None if is_open is None else "open" if is_open else "closed",
    }
