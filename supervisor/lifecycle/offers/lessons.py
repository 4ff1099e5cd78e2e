"""What create calls and preemptions teach about an offer, kept as its zone record.

A stock-out cools the offer, for longer each time. A preemption is remembered for some hours: among the zones of one
shape, those that lost more machines lately come later. A machine that was obtained clears the failures alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from supervisor.domain.causes import Cause
from supervisor.domain.machines import OfferKey, Placement, ZoneRecord, offer_key
from supervisor.domain.observation import CreateFailed, World
from supervisor.lifecycle.offers.ladder import recent

LOST_WINDOW_S = 21_600.0  # a machine that was lost longer ago says nothing about its zone now
LOST_KEPT = 8  # of one offer

Lessons = tuple[tuple[OfferKey, ZoneRecord | None], ...]


def lost_lately(record: ZoneRecord | None, now: float) -> tuple[float, ...]:
    return recent(record.lost_at, LOST_WINDOW_S, now) if record is not None else ()


def after_failure(record: ZoneRecord | None, cause: Cause, detail: str, world: World, now: float) -> ZoneRecord:
    """What a definite failure teaches. Cool-downs double from 3 to 30 minutes; a quota has its own pace."""
    failures = 1 if record is None else record.failures + 1
    knobs = world.knobs
    if cause == Cause.NO_CAPACITY:
        cooldown_s = min(knobs.cooldown_min_s * 2 ** min(failures - 1, 10), knobs.cooldown_max_s)
        stocked_out_at = now
    else:
        cooldown_s = knobs.quota_retry_s
        stocked_out_at = 0.0 if record is None else record.stocked_out_at
    return ZoneRecord(failures, now + cooldown_s, cause, detail, lost_lately(record, now), stocked_out_at)


def lessons_of(failed: CreateFailed, place: Placement, world: World, now: float) -> Lessons:
    """For the offer that was requested, and where a quota reaches further, for all that it covers: the zones of the
    region, or those of the whole project, spot and on-demand."""
    offered = [offer.placement for offer in world.offers.get(place.provider, ())]
    covered = [other for other in offered if other != place and _covers(failed, place, other)]
    keys = [offer_key(covered_place) for covered_place in (place, *covered)]
    return tuple((key, after_failure(world.zones.get(key), failed.cause, failed.detail, world, now)) for key in keys)


def _covers(failed: CreateFailed, requested: Placement, other: Placement) -> bool:
    if failed.cause != Cause.QUOTA or requested.shape != other.shape:
        return False
    if failed.scope == "project":
        return True
    return failed.scope == "region" and (requested.region, requested.spot) == (other.region, other.spot)


def after_loss(place: Placement, world: World, now: float) -> Lessons:
    """A machine of this offer was preempted."""
    key = offer_key(place)
    record = world.zones.get(key) or ZoneRecord(0, 0.0, "", "")
    lost = (*lost_lately(record, now), now)[-LOST_KEPT:]
    return ((key, replace(record, lost_at=lost)),)


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
