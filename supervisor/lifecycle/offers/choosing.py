"""Which offer to ask for next: other zones of the shape, then the next shape, then on-demand where it is allowed, then
the next of the run's providers.

Offers that are cooling after a refusal are left out, and so are zones that cannot be read now. At each provider the
zone that was just lost comes last, so it is asked again only when nothing else there is good; among the zones of one
shape those come later that have lost more machines lately.

When a run asks for another kind of machine than it began with: after some preemptions, or near its deadline.

Off unless the run's policy says so. Nothing is remembered but when it was preempted: what follows from that is worked
out anew for each placement, so that a run goes back to its first wish when the preemptions lie far enough behind.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from supervisor.domain.causes import Cause
from supervisor.domain.machines import Offer, OfferKey, Placement, ZoneRecord, offer_key
from supervisor.domain.observation import CreateFailed, World
from supervisor.domain.policies import Policy
from supervisor.domain.run import Refusal, Run

NEXT_SHAPE, ON_DEMAND, NEXT_PROVIDER = "next_shape", "on_demand", "next_provider"
KEPT = 32  # preemptions that are remembered


def markets_of(run: Run, now: float) -> tuple[bool, ...]:
    """Spot (True) and on-demand (False) in the order in which they are asked for."""
    policy = run.policy
    if not policy.spot:
        return (False,)
    if _to_on_demand(run, now):
        return (False, True)
    return (True, False) if policy.allow_on_demand else (True,)


def shapes_of(run: Run, shapes: tuple[str, ...], now: float) -> tuple[str, ...]:
    """These shapes in the order in which they are asked for."""
    return _led_on(shapes, _steps(run, now) if run.policy.escalate_to == NEXT_SHAPE else 0)


def providers_of(run: Run, now: float) -> tuple[str, ...]:
    """The run's providers in the order in which they are asked."""
    steps = _steps(run, now) if run.policy.escalate_to == NEXT_PROVIDER else 0
    if _is_near_deadline(run, run.policy.next_provider_before_deadline_s, now):
        steps = max(steps, 1)
    return _led_on(run.providers, steps)


def _led_on(ladder: tuple[str, ...], steps: int) -> tuple[str, ...]:
    """So many rungs further, those that were passed at the end."""
    first = max(0, min(steps, len(ladder) - 1))
    return (*ladder[first:], *ladder[:first])


def bounds(
    policy: Policy, provider: str, offers: Mapping[str, Sequence[Offer]]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(zones, shapes) that a run asks one of its providers for; no zones = all. `offers`: those of all its providers;
    names that others alone know do not bind this one."""
    own = [offer.placement for offer in offers.get(provider, ())]
    offered = dict.fromkeys(place.shape for place in own)
    zones, shapes = policy.zones, policy.shapes
    if len(policy.providers) > 1:
        others = [name for name in policy.providers if name != provider]
        elsewhere = [offer.placement for name in others for offer in offers.get(name, ())]
        zones = _binding(zones, {place.zone for place in own}, {place.zone for place in elsewhere})
        shapes = _binding(shapes, offered, {place.shape for place in elsewhere})
    return zones, shapes or tuple(offered)[:1]


def _binding(wished: Sequence[str], mine: Collection[str], others: Collection[str]) -> tuple[str, ...]:
    own = tuple(name for name in wished if name in mine)
    return own or tuple(name for name in wished if name not in others)


def why(run: Run, now: float) -> str:
    """In words, for the history; "" = it asks for what it always did."""
    policy = run.policy
    wishes = {
        "on-demand first": policy.on_demand_before_deadline_s if policy.spot else None,
        "the next provider first": policy.next_provider_before_deadline_s,
    }
    near = [wish for wish, left_s in wishes.items() if _is_near_deadline(run, left_s, now)]
    if near:
        return f"{' and '.join(near)}, because its deadline is near"
    if _steps(run, now) == 0 or (policy.escalate_to == ON_DEMAND and not policy.spot):
        return ""
    wish = {ON_DEMAND: "on-demand", NEXT_SHAPE: "the next shape", NEXT_PROVIDER: "the next provider"}[
        policy.escalate_to
    ]
    count = len(_recent(run.counters.preempted_at, policy, now))
    return f"{wish} first, after {count} preemptions within {policy.escalate_window_s / 3600:g} h"


def with_preemption(known: tuple[float, ...], policy: Policy, now: float) -> tuple[float, ...]:
    """What is remembered after one more. Nothing where nobody counts them."""
    return (*_recent(known, policy, now), now)[-KEPT:] if policy.escalate_after > 0 else ()


def _to_on_demand(run: Run, now: float) -> bool:
    near = _is_near_deadline(run, run.policy.on_demand_before_deadline_s, now)
    return near or (run.policy.escalate_to == ON_DEMAND and _steps(run, now) > 0)


def _is_near_deadline(run: Run, left_s: float | None, now: float) -> bool:
    deadline = run.policy.limits.deadline
    return left_s is not None and deadline is not None and deadline - now <= left_s


def _steps(run: Run, now: float) -> int:
    """How many times the preemptions of the window are as many as the policy bears."""
    after = run.policy.escalate_after
    return len(_recent(run.counters.preempted_at, run.policy, now)) // after if after > 0 else 0


def _recent(known: tuple[float, ...], policy: Policy, now: float) -> tuple[float, ...]:
    """A time ahead of now was written before the wall clock was set back: it says nothing."""
    return tuple(at for at in known if now - policy.escalate_window_s < at <= now)


LOST_WINDOW_S = 21_600.0  # a machine that was taken away longer ago says nothing of its zone now
REFUSED_S = 3600.0  # so long a place whose GPUs did not work is not asked again by the same run
LOST_KEPT = 8  # of one offer
LACKING_RETRY_S = 60.0

Lessons = tuple[tuple[OfferKey, ZoneRecord | None], ...]


@dataclass(frozen=True, slots=True)
class NoOffer:
    """Nothing can be asked for before `until` (None: before something changes); `cause` and `detail` are those of the
    offer that is free soonest. `unread`: nothing was refused, but the zones that are left cannot be read. `lacking`:
    the settings name none of the run's providers."""

    until: float | None
    cause: Cause
    detail: str
    unread: bool = False
    lacking: bool = False


def ladder(run: Run, world: World, now: float) -> list[Offer]:
    """Every offer this run may use, in the order of its wishes, whatever its zone's state."""
    return [offer for name in providers_of(run, now) for offer in _rungs(run, name, world, now)]


def _rungs(run: Run, provider: str, world: World, now: float) -> list[Offer]:
    """Those of one provider. It may prefer other zones for each kind of machine; the run's own order of zones stands
    above that."""
    zones, shapes = bounds(run.policy, provider, world.offers)
    kinds: dict[tuple[bool, str], dict[str, Offer]] = {}
    for offer in world.offers.get(provider, ()):
        kinds.setdefault((offer.placement.spot, offer.placement.shape), {})[offer.placement.zone] = offer
    found = []
    for wish in _wishes(markets_of(run, now), shapes_of(run, shapes, now)):
        of_kind = kinds.get(wish, {})
        found += [of_kind[zone] for zone in zones or of_kind if zone in of_kind]
    return found


def lacks(run: Run, world: World) -> bool:
    """The settings do not name (any more) the provider of its machine; without a machine, any provider that it may
    use."""
    names = run.providers if run.open_try is None else (run.provider,)
    return all(world.lacks(name) for name in names)


def lacking(run: Run) -> str:
    if run.open_try is None and len(run.providers) > 1:
        names = ", ".join(run.providers)
        return f"none of its providers ({names}) is in the settings: put one back, or stop the run"
    return f"its provider {run.provider} is not in the settings: put it back, or stop the run"


def choose(run: Run, world: World, now: float) -> Offer | NoOffer:
    """The first offer that is not cooling and not held by our own machines, at each provider the avoided zone last;
    else when the next one is free."""
    if lacks(run, world):
        return NoOffer(now + LACKING_RETRY_S, Cause.NO_CAPACITY, lacking(run), lacking=True)
    whole = ladder(run, world, now)
    offers = _serving(whole, run, now)
    if whole and not offers:
        return _none_serves(run, world, now)
    good = [offer for offer in offers if not is_cooling(world.zones.get(offer_key(offer.placement)), world, now)]
    readable = good
    if world.unread:
        readable = [offer for offer in good if world.zone_of(offer.placement) not in world.unread]
    if readable:
        rank = _Ranking(run, offers, world, now)
        held = [_held(offer.placement, world) for offer in readable]
        free = [offer for offer, why in zip(readable, held, strict=True) if not why]
        if not free:
            return NoOffer(None, Cause.QUEUED, held[0])
        return min(free, key=rank)
    if good:
        return _unread(good, world, now)
    return _soonest(offers, world, now)


def _held(place: Placement, world: World) -> str:
    """By which of our own machines; "" = by none."""
    capacity = world.capacities.get(place.provider)
    return capacity.why_full(place.zone, place.shape) if capacity is not None else ""


def queue(run: Run, world: World, now: float) -> list[tuple[Offer, ZoneRecord | None]]:
    """Every offer this run may use in the order in which it would be asked for from now on, if each one said no; those
    that are cooling last, the soonest first, each with why. `choose` takes the first that is not cooling."""
    offers = _serving(ladder(run, world, now), run, now)
    records = [(offer, world.zones.get(offer_key(offer.placement))) for offer in offers]
    good = [offer for offer, record in records if not is_cooling(record, world, now)]
    good.sort(key=_Ranking(run, offers, world, now))
    later = [(offer, record) for offer, record in records if record and is_cooling(record, world, now)]
    later.sort(key=lambda item: item[1].cool_until)
    return [*((offer, None) for offer in good), *later]


def refused_lately(run: Run, now: float) -> tuple[Refusal, ...]:
    """A time ahead of now was written before the wall clock was set back: it says nothing."""
    return tuple(item for item in run.refusals if now - REFUSED_S < item.at <= now)


def _serving(offers: list[Offer], run: Run, now: float) -> list[Offer]:
    """Without those whose machine for this run had no GPU that works."""
    refused = {(item.provider, item.zone, item.shape, item.spot) for item in refused_lately(run, now)}
    return [o for o in offers if refused.isdisjoint(_names_of(o.placement))]


def _names_of(place: Placement) -> tuple[tuple[str, str, str, bool], ...]:
    """How refusals name this place, those of before too."""
    return tuple((name, place.zone, place.shape, place.spot) for name in (place.provider, ""))


def _none_serves(run: Run, world: World, now: float) -> NoOffer:
    refused = refused_lately(run, now)
    last = max(refused, key=lambda item: item.at)
    count = len({(item.provider, item.zone, item.shape, item.spot) for item in refused})
    detail = f"every place that this run may use was tried within the hour ({count}); the last: {last.evidence}"
    free_at = min(item.at for item in refused) + REFUSED_S
    return NoOffer(min(free_at, now + longest_pause_s(world)), last.cause, detail)


def _wishes(markets: tuple[bool, ...], shapes: tuple[str, ...]) -> list[tuple[bool, str]]:
    return [(spot, shape) for spot in markets for shape in shapes]


class _Ranking:
    """Smaller is better; equal ones keep the order of the settings."""

    def __init__(self, run: Run, offers: Iterable[Offer], world: World, now: float) -> None:
        places = [offer.placement for offer in offers]
        self._providers = list(dict.fromkeys(place.provider for place in places))
        self._wishes = list(dict.fromkeys((place.provider, place.spot, place.shape) for place in places))
        self._run, self._world, self._now = run, world, now

    def __call__(self, offer: Offer) -> tuple[int, bool, int, int]:
        place = offer.placement
        losses = lost_lately(self._world.zones.get(offer_key(place)), self._now)
        wish = self._wishes.index((place.provider, place.spot, place.shape))
        return self._providers.index(place.provider), self._is_avoided(place), wish, len(losses)

    def _is_avoided(self, place: Placement) -> bool:
        last = self._run.attempt
        there = last is None or last.placement.provider == place.provider
        return there and place.zone == self._run.avoid_zone


def lost_lately(record: ZoneRecord | None, now: float) -> tuple[float, ...]:
    """A time ahead of now was written before the wall clock was set back: it says nothing."""
    known = record.lost_at if record is not None else ()
    return tuple(at for at in known if now - LOST_WINDOW_S < at <= now)


def longest_pause_s(world: World) -> float:
    """No pause is longer: what lies further ahead was written before the wall clock was set back, and is over."""
    knobs = world.knobs
    return max(knobs.cooldown_max_s, knobs.quota_retry_s, 1.2 * knobs.recovery_backoff_max_s)


def is_paused(run: Run, world: World, now: float) -> bool:
    """Its own next look is not due yet."""
    return run.next_at is not None and now < run.next_at <= now + longest_pause_s(world)


def is_cooling(record: ZoneRecord | None, world: World, now: float) -> bool:
    return record is not None and now < record.cool_until <= now + longest_pause_s(world)


def _unread(good: Iterable[Offer], world: World, now: float) -> NoOffer:
    zones = ", ".join(dict.fromkeys(world.zone_of(offer.placement) for offer in good))
    detail = f"{zones} cannot be read now, so no machine is asked for there"
    return NoOffer(now + world.knobs.poll_interval_s, Cause.NO_CAPACITY, detail, unread=True)


def _soonest(offers: Iterable[Offer], world: World, now: float) -> NoOffer:
    known = (world.zones.get(offer_key(offer.placement)) for offer in offers)
    records = [record for record in known if record is not None and record.cause]
    if not records:
        return NoOffer(now + world.knobs.quota_retry_s, Cause.NO_CAPACITY, "no zone of the settings offers this shape")
    first = min(records, key=lambda record: record.cool_until)
    return NoOffer(first.cool_until, Cause(first.cause), first.detail)


def run_pause_s(tries: int, world: World) -> float:
    """Until a run that was refused for itself asks again: from the recovery's backoff, doubled up to the shortest
    cool-down of a zone."""
    return min(world.knobs.recovery_backoff_s * 2.0 ** min(tries - 1, 10), world.knobs.cooldown_min_s)


# --- what is learned --------------------------------------------------------------------------------------------------


def after_failure(record: ZoneRecord | None, cause: Cause, detail: str, world: World, now: float) -> ZoneRecord:
    """What a definite failure teaches: cool-downs double from 3 to 30 minutes; quota has its own pace."""
    failures = 1 if record is None else record.failures + 1
    knobs = world.knobs
    if cause == Cause.NO_CAPACITY:
        pause_s = min(knobs.cooldown_min_s * 2 ** min(failures - 1, 10), knobs.cooldown_max_s)
    else:
        pause_s = knobs.quota_retry_s
    before = 0.0 if record is None else record.stocked_out_at
    stocked_out_at = now if cause == Cause.NO_CAPACITY else before
    return ZoneRecord(failures, now + pause_s, cause, detail, lost_lately(record, now), stocked_out_at)


def lessons_of(failed: CreateFailed, place: Placement, world: World, now: float) -> Lessons:
    """Of the offer that was asked for, and where a quota reaches further, of all that it covers: the region's zones,
    or the whole project's, spot and on-demand."""
    offers = [offer.placement for offer in world.offers.get(place.provider, ())]
    covered = [one for one in offers if one != place and _covers(failed, place, one)]
    keys = [offer_key(one) for one in (place, *covered)]
    return tuple((key, after_failure(world.zones.get(key), failed.cause, failed.detail, world, now)) for key in keys)


def _covers(failed: CreateFailed, asked: Placement, other: Placement) -> bool:
    if failed.cause != Cause.QUOTA or asked.shape != other.shape:
        return False
    if failed.scope == "project":
        return True
    return failed.scope == "region" and (asked.region, asked.spot) == (other.region, other.spot)


def after_loss(place: Placement, world: World, now: float) -> Lessons:
    """A machine of this offer was taken away."""
    key = offer_key(place)
    record = world.zones.get(key) or ZoneRecord(0, 0.0, "", "")
    lost = (*lost_lately(record, now), now)[-LOST_KEPT:]
    return ((key, replace(record, lost_at=lost)),)


def gathered(lessons: Iterable[Lessons]) -> dict[OfferKey, ZoneRecord | None]:
    """What many runs have learned in one look, each of them from the same records: one for each offer. When a hundred
    machines of a zone are taken away at once, that is written down once."""
    found: dict[OfferKey, ZoneRecord | None] = {}
    for key, record in (lesson for one in lessons for lesson in one):
        known = found.get(key)
        found[key] = _both(known, record) if known is not None and record is not None else record
    return found


def _both(one: ZoneRecord, other: ZoneRecord) -> ZoneRecord:
    later = max((one, other), key=lambda record: record.cool_until)
    return replace(
        later,
        lost_at=max(one.lost_at, other.lost_at, key=len),
        stocked_out_at=max(one.stocked_out_at, other.stocked_out_at),
    )


def without_failures(record: ZoneRecord) -> ZoneRecord | None:
    """A machine was had: refusals count no more; when there were losses and no capacity stays known. None = there is
    nothing to remember."""
    kept = ZoneRecord(0, 0.0, "", "", record.lost_at, record.stocked_out_at)
    return kept if kept.lost_at or kept.stocked_out_at else None
