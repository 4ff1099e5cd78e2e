"""What was learned of each offer: where machines could be had lately, where not and why, where they were taken away.

All of it comes from the database; the cloud is not asked. It is the memory that the next placement goes by, told in
the order in which the provider prefers its zones, offers that nothing is known of included.
"""

from __future__ import annotations

from supervisor.domain.access.callers import Caller
from supervisor.domain.machines.placement import Offer, ZoneRecord, offer_key
from supervisor.domain.world import World
from supervisor.lifecycle.offers.choosing import LOST_WINDOW_S, is_cooling, lost_lately
from supervisor.services.parts import Parts
from supervisor.services.views import rfc3339
from supervisor.services.views.run_view import GpuOf, Json, placement_json, usd

COOLING, REFUSED, GOOD, UNKNOWN = "cooling", "refused", "good", "unknown"


def zones_json(parts: Parts, caller: Caller) -> Json:
    """`machines` are those of the caller's own runs, for an admin of all. Raises StoreDown."""
    now, owner = parts.clock.now(), caller.sees(None)
    told: list[Json] = []
    for name, provider in parts.providers.items():
        cell = parts.cells[name]
        world = World(knobs=parts.knobs, zones=parts.store.zones(cell))
        machines = parts.store.machines(cell, owner)
        for offer in provider.offers():
            key = offer_key(offer.placement)
            told.append(_offer_json(offer, world, machines.get(key, 0), now, parts.gpu))
    return {"zones": told, "window_s": LOST_WINDOW_S}


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
