"""What create calls and preemptions teach about an offer, kept as its zone record.

A stock-out cools the offer: for as long as zones of this shape usually take to come back, as own requests have measured
it, within the bounds of a cool-down. Before that is measured, it cools for longer each time. Where it is measured, a
preemption cools the offer too, because the next request would be refused; a zone that comes back sooner than the
shortest cool-down is requested at once. A preemption is also remembered for some hours, for the rank of the zone. A
machine that was obtained clears the failures alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from supervisor.domain.causes import Cause
from supervisor.domain.machines import OfferKey, Outlook, Placement, ZoneRecord, offer_key
from supervisor.domain.observation import CreateFailed, World
from supervisor.lifecycle.offers.ladder import recent

LOST_WINDOW_S = 21_600.0  # a machine that was lost longer ago says nothing about its zone now
LOST_KEPT = 8  # of one offer
RETURNED = 0.33  # a zone that is down is asked again when it is up with this chance (tuned in `make policy`, replay)

Lessons = tuple[tuple[OfferKey, ZoneRecord | None], ...]


def lost_lately(record: ZoneRecord | None, now: float) -> tuple[float, ...]:
    return recent(record.lost_at, LOST_WINDOW_S, now) if record is not None else ()


def return_s(outlook: Outlook | None) -> float | None:
    """When a zone that is down is worth a request again; None = not measured."""
    if outlook is None or not outlook.is_measured:
        return None
    return -math.log(1.0 - RETURNED) / outlook.return_per_s


def after_failure(
    record: ZoneRecord | None, cause: Cause, detail: str, world: World, now: float, *, outlook: Outlook | None = None
) -> ZoneRecord:
    """What a definite failure teaches. Cool-downs last as long as measured returns say, within 3 to 30 minutes; without
    measured returns they double. A quota has its own pace."""
    failures = 1 if record is None else record.failures + 1
    knobs = world.knobs
    if cause == Cause.NO_CAPACITY:
        measured_s = return_s(outlook)
        doubled_s = knobs.cooldown_min_s * 2 ** min(failures - 1, 10)
        cooldown_s = doubled_s if measured_s is None else max(measured_s, knobs.cooldown_min_s)
        cooldown_s = min(cooldown_s, knobs.cooldown_max_s)
        stocked_out_at = now
    else:
        cooldown_s = knobs.quota_retry_s
        stocked_out_at = 0.0 if record is None else record.stocked_out_at
    return ZoneRecord(failures, now + cooldown_s, cause, detail, lost_lately(record, now), stocked_out_at)


def lessons_of(failed: CreateFailed, place: Placement, world: World, now: float, *, is_second: bool = False) -> Lessons:
    """For the offer that was requested, and where a quota reaches further, for all that it covers: the zones of the
    region, or those of the whole project, spot and on-demand. `is_second`: the call was the second one of a race. It
    shows that its zone was down, and neither begins a cool-down nor makes one longer: where capacity is scarce, a race
    would else leave two zones cooling where one request leaves one. Its quota may be what the first call had taken."""
    if is_second and failed.cause == Cause.QUOTA:
        return ()
    if is_second and failed.cause == Cause.NO_CAPACITY:
        record = world.zones.get(offer_key(place)) or ZoneRecord(0, 0.0, "", "")
        return ((offer_key(place), replace(record, stocked_out_at=now)),)
    offered = [offer.placement for offer in world.offers.get(place.provider, ())]
    covered = [other for other in offered if other != place and _covers(failed, place, other)]
    keys = [offer_key(covered_place) for covered_place in (place, *covered)]
    cause, detail = failed.cause, failed.detail
    return tuple(
        (key, after_failure(world.zones.get(key), cause, detail, world, now, outlook=world.outlooks.get(key)))
        for key in keys
    )


def _covers(failed: CreateFailed, requested: Placement, other: Placement) -> bool:
    if failed.cause != Cause.QUOTA or requested.shape != other.shape:
        return False
    if failed.scope == "project":
        return True
    return failed.scope == "region" and (requested.region, requested.market) == (other.region, other.market)


def after_loss(place: Placement, world: World, now: float) -> Lessons:
    """A machine of this offer was preempted."""
    key = offer_key(place)
    record = world.zones.get(key) or ZoneRecord(0, 0.0, "", "")
    record = replace(record, lost_at=(*lost_lately(record, now), now)[-LOST_KEPT:])
    back_s = return_s(world.outlooks.get(key))
    if back_s is not None and back_s >= world.knobs.cooldown_min_s:
        until = max(record.cool_until, now + min(back_s, world.knobs.cooldown_max_s))
        detail = "a machine there was just preempted, and zones of this shape take a while to come back"
        record = replace(
            record, cool_until=until, cause=record.cause or Cause.NO_CAPACITY, detail=record.detail or detail
        )
    return ((key, record),)


def without_failures(record: ZoneRecord) -> ZoneRecord | None:
    """A machine was obtained: failures count no more, losses and the last stock-out are kept. None = there is nothing
    to remember."""
    kept = ZoneRecord(0, 0.0, "", "", record.lost_at, record.stocked_out_at)
    return kept if kept.lost_at or kept.stocked_out_at else None


def merged(lessons: Iterable[Lessons]) -> dict[OfferKey, ZoneRecord | None]:
    """One record for each offer, from what many runs have learned in one tick from the same records. When a hundred
    machines of a zone are preempted at once, one record is written."""
    records: dict[OfferKey, ZoneRecord | None] = {}
    for key, record in (lesson for run_lessons in lessons for lesson in run_lessons):
        earlier = records.get(key)
        records[key] = record if earlier is None or record is None else _both(earlier, record)
    return records


def _both(left: ZoneRecord, right: ZoneRecord) -> ZoneRecord:
    later = max((left, right), key=lambda record: record.cool_until)
    return replace(
        later,
        lost_at=max(left.lost_at, right.lost_at, key=len),
        stocked_out_at=max(left.stocked_out_at, right.stocked_out_at),
    )
