"""Which offer to ask for next: other zones of the shape, then the next shape, then on-demand where it is allowed.

Offers that are cooling after a stock-out are left out; the zone that was just lost comes last, so it is asked again
only when nothing else is good.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from supervisor.domain.causes import Cause
from supervisor.domain.placement import Offer, ZoneRecord, offer_key
from supervisor.domain.run import Run
from supervisor.domain.world import World


@dataclass(frozen=True, slots=True)
class NoOffer:
    """Nothing can be asked for before `until`; `cause` and `detail` are those of the offer that is free soonest."""

    until: float
    cause: Cause
    detail: str


def ladder(run: Run, world: World) -> list[Offer]:
    """Every offer this run may use, in the order of its wishes, whatever its zone's state."""
    offers = world.offers.get(run.provider, ())
    policy = run.policy
    shapes = policy.shapes or tuple(dict.fromkeys(offer.placement.shape for offer in offers))[:1]
    zones = policy.zones or tuple(dict.fromkeys(offer.placement.zone for offer in offers))
    markets = [policy.spot]
    if policy.spot and policy.allow_on_demand:
        markets.append(False)
    by_place = {(o.placement.zone, o.placement.shape, o.placement.spot): o for o in offers}
    wished = ((zone, shape, spot) for spot in markets for shape in shapes for zone in zones)
    return [by_place[place] for place in wished if place in by_place]


def choose(run: Run, world: World, now: float) -> Offer | NoOffer:
    """The first offer that is not cooling, the avoided zone last; else when the next one is free."""
    offers = ladder(run, world)
    good = [
        offer for offer in offers if not _cooling(world.zones.get(offer_key(offer.placement)), world, now)
    ]
    if good:
        return min(good, key=lambda offer: offer.placement.zone == run.avoid_zone)
    return _soonest(offers, world, now)


def longest_pause_s(world: World) -> float:
    """No pause is longer: what lies further ahead was written before the wall clock was set back, and is over."""
    knobs = world.knobs
    return max(knobs.cooldown_max_s, knobs.quota_retry_s, 1.2 * knobs.recovery_backoff_max_s)


def _cooling(record: ZoneRecord | None, world: World, now: float) -> bool:
    return record is not None and now < record.cool_until <= now + longest_pause_s(world)


def _soonest(offers: Iterable[Offer], world: World, now: float) -> NoOffer:
    records = [
        record for offer in offers if (record := world.zones.get(offer_key(offer.placement))) is not None
    ]
    if not records:
        return NoOffer(
            now + world.knobs.quota_retry_s, Cause.NO_CAPACITY, "no zone of the settings offers this shape"
        )
    first = min(records, key=lambda record: record.cool_until)
    return NoOffer(first.cool_until, Cause(first.cause), first.detail)


def run_pause_s(tries: int, world: World) -> float:
    """Until a run that was refused for itself asks again: from the recovery's backoff, doubled up to the shortest
    cool-down of a zone."""
    return min(world.knobs.recovery_backoff_s * 2.0 ** min(tries - 1, 10), world.knobs.cooldown_min_s)


def after_failure(
    record: ZoneRecord | None, cause: Cause, detail: str, world: World, now: float
) -> ZoneRecord:
    """What a definite failure teaches: cool-downs double from 3 to 30 minutes; quota has its own pace."""
    failures = 1 if record is None else record.failures + 1
    knobs = world.knobs
    if cause == Cause.NO_CAPACITY:
        pause_s = min(knobs.cooldown_min_s * 2 ** min(failures - 1, 10), knobs.cooldown_max_s)
    else:
        pause_s = knobs.quota_retry_s
    return ZoneRecord(failures, now + pause_s, cause, detail)
