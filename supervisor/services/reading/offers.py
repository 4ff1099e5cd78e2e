"""What the providers offer: what each provider can do, the record of each offer (a shape in a zone), and prices.

Traits, places and offers come from the settings. The record of an offer comes from the database: capacity, refusals and
preemptions, which the next placement goes by. Only a refresh of the prices calls the cloud. Only the supervisor that
leads reads listings, so to another supervisor they are not known (null). An unknown price is null, never 0; a price of
the settings has no day, and so no age.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime
from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from supervisor.domain.callers import Caller
from supervisor.domain.errors import NotSupportedHere, Unavailable
from supervisor.domain.events import Event, EventKind
from supervisor.domain.machines import Away, Offer, OfferKey, ZoneRecord, offer_key
from supervisor.domain.observation import World, gap_s
from supervisor.lifecycle.offers.choosing import is_cooling
from supervisor.lifecycle.offers.lessons import LOST_WINDOW_S, lost_lately
from supervisor.lifecycle.rungs.survival import CALLS_READ, NOTHING_KNOWN
from supervisor.lifecycle.rungs.survival import outlooks as outlooks_of
from supervisor.ports.platform import OLD_PRICE_DAYS, ShapePrice
from supervisor.ports.provider import NotSupported, Provider, ProviderUnavailable
from supervisor.services.parts import Parts
from supervisor.services.reading.health import LoopStatus
from supervisor.services.reading.profiles import ProfileShown, provider_profile
from supervisor.services.views import formats
from supervisor.services.views.formats import usd
from supervisor.services.views.run_view import GpuOf, PlacementJson, placement_json
from supervisor.wording.figures import plural

COOLING, REFUSED, GOOD, UNKNOWN, NO_CONTACT = "cooling", "refused", "good", "unknown", "no_contact"
CHANGES_IN_EVENT = 100
NO_RECORD = ZoneRecord(failures=0, cool_until=0.0, cause="", detail="")
MachinePrice = Annotated[
    float | None,
    Field(description="Of the whole machine: its type, GPUs, boot disk and external address. Null: unknown, never 0."),
]


class ZoneShown(PlacementJson):
    """One offer of the provider: a shape in a zone, spot or on-demand. `machines`: of your runs there now (for an
    admin: of all runs). `failures`: refused requests in a row, with the `cause` and `detail` of the last one; a
    request that brings a machine ends the row. Where there is no contact, `detail` says why."""

    price_usd_per_h: Annotated[float | None, Field(description="null: unknown")]
    state: Annotated[
        str,
        Field(
            description="good, unknown (no result yet), cooling (no request before cool_until), refused (the last "
            "request was refused, and its backoff is over) or no_contact (its machines cannot be read since "
            "no_contact_since, so nothing is started there); clients must accept other words"
        ),
    ]
    machines: int
    failures: int
    cause: str | None
    detail: str | None
    cool_until: Annotated[formats.Time | None, Field(description="null: requests may go there now")]
    preemptions: Annotated[int, Field(description="machines that were preempted within window_s, 8 at most")]
    lives: Annotated[int, Field(description="machines that runs had there, as far as their rows are kept")]
    lives_lost: Annotated[int, Field(description="machines of these that the platform took")]
    returns_after_s: Annotated[
        float | None,
        Field(
            description="when a zone that refused usually has capacity again; null: not measured by own requests yet"
        ),
    ]
    last_stock_out_at: formats.Time | None
    last_preemption_at: formats.Time | None
    no_contact_since: Annotated[formats.Time | None, Field(description="null: it is read, or another supervisor leads")]


class ZoneList(TypedDict):
    zones: list[ZoneShown]
    window_s: float


class Price(TypedDict):
    """`dated`: the day of its oldest part; null: it has none, such as a price of the settings. `old`: older than
    `old_after_days`. `source`: null where nothing is known."""

    shape: str
    region: str
    spot_usd_per_h: MachinePrice
    on_demand_usd_per_h: MachinePrice
    saved_percent: float | None
    source: str | None
    dated: str | None
    age_days: int | None
    old: bool


class PriceChange(TypedDict):
    """`market`: spot or on_demand. Null: not known."""

    shape: str
    region: str
    market: str
    from_usd_per_h: float | None
    to_usd_per_h: float | None


class PriceList(TypedDict):
    provider: str
    prices: list[Price]
    old_after_days: int
    setting: Annotated[str | None, Field(description="the setting for prices of one's own; null: there is none")]


class RefreshedPrices(PriceList):
    changed: list[PriceChange]


class ProviderPlace(TypedDict):
    """A zone with the shapes that are offered there, in the order of preference."""

    region: str
    zone: str
    shapes: list[str]
    profile: Annotated[ProfileShown | None, Field(description="where it differs from that of the provider")]


class ProviderShown(TypedDict):
    """One provider. `name`: in the settings, in specs and placements. `meter`: what stops the bill. `irreplaceable`:
    a released machine cannot be obtained again, so a person approves each release."""

    name: str
    kind: Annotated[str, Field(description="as in the settings; clients must accept words that they do not know")]
    title: str
    meter: str
    images: Annotated[bool, Field(description="commands run in a container image; false: on the machine as it is")]
    stores: Annotated[dict[str, str], Field(description="scheme of an object store -> how machines reach it")]
    secrets: Annotated[str, Field(description="references of secrets that its machines can read, in words")]
    irreplaceable: bool
    profile: Annotated[ProfileShown, Field(description="of its machines, at the price of its first offer")]
    shares_computer: Annotated[bool, Field(description="machines are processes of the supervisor's own computer")]
    log_service: Annotated[
        str | None, Field(description="keeps consoles of machines that are gone; null: there is none")
    ]
    places: list[ProviderPlace]
    listing_age_s: Annotated[
        float | None,
        Field(description="of the last complete listing of its machines; null: none yet, or another supervisor leads"),
    ]
    listing_read: Annotated[
        bool | None, Field(description="the last listings could be read; null: another supervisor leads")
    ]
    breaker: Annotated[
        str | None,
        Field(
            description="open: many machines looked dead at once, so no attempt is ended by inference; or closed; "
            "null: another supervisor leads"
        ),
    ]


class ProviderList(TypedDict):
    providers: Annotated[list[ProviderShown], Field(description="the first one is that of a run that names none")]


def providers_json(parts: Parts, loop: LoopStatus) -> ProviderList:
    """In the order of preference."""
    oldest_s = gap_s(parts.knobs.poll_interval_s)
    return {"providers": [_provider(parts, name, loop, oldest_s) for name in parts.providers]}


def _provider(parts: Parts, name: str, loop: LoopStatus, oldest_s: float) -> ProviderShown:
    provider = parts.providers[name]
    traits = provider.traits
    age_s, is_open = loop.listing_ages.get(name), loop.breakers_open.get(name)
    return {
        "name": name,
        "kind": traits.kind,
        "title": traits.title,
        "meter": traits.meter,
        "images": traits.images,
        "stores": dict(traits.stores),
        "secrets": traits.secrets.forms,
        "irreplaceable": traits.irreplaceable,
        "profile": provider_profile(parts, provider),
        "shares_computer": traits.shares_computer,
        "log_service": traits.log_service or None,
        "places": _places(parts, provider),
        "listing_age_s": None if age_s is None else round(age_s, 1),
        "listing_read": None if is_open is None else age_s is not None and age_s <= oldest_s,
        "breaker": None if is_open is None else "open" if is_open else "closed",
    }


def _places(parts: Parts, provider: Provider) -> list[ProviderPlace]:
    """In the order of preference, and so are the shapes of each."""
    shapes: dict[tuple[str, str], dict[str, None]] = {}
    for offer in provider.offers():
        place = offer.placement
        shapes.setdefault((place.region, place.zone), {})[place.shape] = None
    general = provider.profile()
    return [
        {
            "region": region,
            "zone": zone,
            "shapes": list(offered),
            "profile": None if provider.profile(zone) == general else provider_profile(parts, provider, zone),
        }
        for (region, zone), offered in shapes.items()
    ]


def zones_json(parts: Parts, caller: Caller, loop: LoopStatus) -> ZoneList:
    """`machines`: of the caller's own runs; for an admin of all runs. Raises StoreDown."""
    now, owner = parts.clock.now(), caller.visible_owner(None)
    offers: list[ZoneShown] = []
    for name, provider in parts.providers.items():
        cell = parts.cells[name]
        outlooks = outlooks_of(parts.store.past_calls(cell, CALLS_READ), parts.clock.now())
        world = World(knobs=parts.knobs, zones=parts.store.zones(cell), outlooks=outlooks)
        machines = parts.store.machines(cell, owner)
        for offer in provider.offers():
            zone = _zone(offer, world, machines, now, parts.gpu)
            away = loop.away.get((name, offer.placement.zone))
            offers.append(zone if away is None else _without_contact(zone, away))
    return {"zones": offers, "window_s": LOST_WINDOW_S}


def _zone(
    offer: Offer, world: World, machines_by_offer: Mapping[OfferKey, int], now: float, gpu_of: GpuOf
) -> ZoneShown:
    key = offer_key(offer.placement)
    record, machines = world.zones.get(key, NO_RECORD), machines_by_offer.get(key, 0)
    cooling = is_cooling(record, world, now)
    lost = lost_lately(record, now)
    outlook = world.outlooks.get(key, NOTHING_KNOWN)
    return {
        **placement_json(offer.placement, gpu_of),
        "price_usd_per_h": usd(offer.price_usd_per_h),
        "state": _state(record, cooling, machines, bool(lost)),
        "machines": machines,
        "failures": record.failures,
        "cause": record.cause or None,
        "detail": record.detail or None,
        "cool_until": formats.time_text(record.cool_until) if cooling else None,
        "last_stock_out_at": formats.maybe_time(record.stocked_out_at or None),
        "preemptions": len(lost),
        "lives": outlook.lives,
        "lives_lost": outlook.lost,
        "returns_after_s": round(1.0 / outlook.return_per_s) if outlook.is_measured else None,
        "last_preemption_at": formats.maybe_time(lost[-1] if lost else None),
        "no_contact_since": None,
    }


def _without_contact(zone: ZoneShown, away: Away) -> ZoneShown:
    return {
        **zone,
        "state": NO_CONTACT,
        "cause": None,
        "detail": away.reason,
        "no_contact_since": formats.time_text(away.since),
    }


def _state(record: ZoneRecord, cooling: bool, machines: int, lost: bool) -> str:
    """`refused`: the last request failed, and the backoff after it is over."""
    if cooling:
        return COOLING
    if record.failures > 0:
        return REFUSED
    return GOOD if machines or lost else UNKNOWN


def prices_json(parts: Parts) -> PriceList:
    """Without a call to the platform. Raises NotSupportedHere."""
    return _price_list(parts, _prices(parts))


def refreshed_json(parts: Parts, caller: Caller) -> RefreshedPrices:
    """Read the prices from the platform now, which takes up to a minute. Raises NotSupportedHere, and Unavailable where
    the platform did not respond; then nothing has changed."""
    before = _prices(parts)
    try:
        after = parts.platform.refresh_prices()
    except NotSupported as error:
        raise NotSupportedHere(f"There is nothing to refresh: {error}.") from error
    except ProviderUnavailable as error:
        raise Unavailable(f"The prices were not refreshed: {error}.") from error
    changes = _changes(before, after)
    parts.store.add_events(None, [_event(changes, caller)], parts.clock.now())
    return {**_price_list(parts, after), "changed": changes}


def _prices(parts: Parts) -> tuple[ShapePrice, ...]:
    try:
        return parts.platform.prices()
    except NotSupported as error:
        raise NotSupportedHere(f"There are no prices here: {error}.") from error


def _price_list(parts: Parts, prices: Sequence[ShapePrice]) -> PriceList:
    today = datetime.fromtimestamp(parts.clock.now(), UTC).date()
    return {
        "provider": parts.own_provider,
        "prices": [_price(price, today) for price in prices],
        "old_after_days": OLD_PRICE_DAYS,
        "setting": parts.traits(parts.own_provider).price_setting or None,
    }


def _price(price: ShapePrice, today: date) -> Price:
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
    """Percent of the on-demand price; None where one of the two prices is not known."""
    spot, on_demand = price.spot_usd_per_h, price.on_demand_usd_per_h
    if spot is None or not on_demand:
        return None
    return round(100.0 * (1.0 - spot / on_demand), 1)


def _event(changes: Sequence[PriceChange], caller: Caller) -> Event:
    names = [f"{change['shape']} {change['region']} {change['market']}" for change in changes]
    named = list(zip(names, changes, strict=True))[:CHANGES_IN_EVENT]
    return caller.changed(
        EventKind.PRICES_REFRESHED,
        f"Prices refreshed by {caller.actor}: {plural(len(changes), 'price')} changed.",
        {name: change["from_usd_per_h"] for name, change in named},
        {name: change["to_usd_per_h"] for name, change in named},
        {"changed": len(changes)},
    )


def _changes(before: Sequence[ShapePrice], after: Sequence[ShapePrice]) -> list[PriceChange]:
    earlier = {(price.shape, price.region): price for price in before}
    changes: list[PriceChange] = []
    for price in after:
        was = earlier.get((price.shape, price.region))
        for market, old, new in (
            ("spot", was.spot_usd_per_h if was else None, price.spot_usd_per_h),
            ("on_demand", was.on_demand_usd_per_h if was else None, price.on_demand_usd_per_h),
        ):
            if old != new:
                changes.append(
                    {
                        "shape": price.shape,
                        "region": price.region,
                        "market": market,
                        "from_usd_per_h": usd(old),
                        "to_usd_per_h": usd(new),
                    }
                )
    return changes
