"""Which offer of its ladder a run requests next, or why it can request none now.

Offers that cool down after a failure are left out, and so are zones that cannot be read now. At each provider the zone
that was just lost comes last, so it is requested again only when nothing else there is good. Among the zones of one
shape, those that lost more machines lately come later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from supervisor.domain.causes import Cause
from supervisor.domain.machines import Offer, Placement, ZoneRecord, offer_key
from supervisor.domain.observation import World
from supervisor.domain.run import Refusal, Run
from supervisor.lifecycle.offers.ladder import ladder
from supervisor.lifecycle.offers.lessons import lost_lately

REFUSED_S = 3600.0  # for so long a run does not request an offer again whose GPUs did not work
LACKING_RETRY_S = 60.0


@dataclass(frozen=True, slots=True)
class NoOffer:
    """Nothing can be requested before `until` (None: before something changes). `cause` and `detail` are those of the
    offer that is free soonest. `unread`: nothing failed, but the zones that are left cannot be read. `lacking`: the
    settings contain none of the run's providers."""

    until: float | None
    cause: Cause
    detail: str
    unread: bool = False
    lacking: bool = False


def choose(run: Run, world: World, now: float) -> Offer | NoOffer:
    """The best offer that is not cooling and not held by our own machines; else when the next one is free."""
    if lacks(run, world):
        return NoOffer(now + LACKING_RETRY_S, Cause.NO_CAPACITY, lacking(run), lacking=True)
    good, cooling = _sorted_offers(run, world, now)
    if not good and not cooling:
        return _none_serves(run, world, now)
    readable = [offer for offer in good if world.zone_of(offer.placement) not in world.unread]
    for offer in readable:
        if not _full_text(offer.placement, world):
            return offer
    if readable:
        return NoOffer(None, Cause.QUEUED, _full_text(readable[0].placement, world))
    if good:
        zones = ", ".join(dict.fromkeys(world.zone_of(offer.placement) for offer in good))
        detail = f"{zones} cannot be read now, so no machine is requested there"
        return NoOffer(now + world.knobs.poll_interval_s, Cause.NO_CAPACITY, detail, unread=True)
    record = cooling[0][1]
    return NoOffer(record.cool_until, Cause(record.cause), record.detail)


def queue(run: Run, world: World, now: float) -> list[tuple[Offer, ZoneRecord | None]]:
    """Every offer that this run may use, in the order in which it would be requested from now on if each request
    failed. Those that cool down come last, the soonest first, each with its record."""
    good, cooling = _sorted_offers(run, world, now)
    return [*((offer, None) for offer in good), *cooling]


def _sorted_offers(run: Run, world: World, now: float) -> tuple[list[Offer], list[tuple[Offer, ZoneRecord]]]:
    """(offers that are not cooling, the best first; those that are, the soonest first, with their records)."""
    offers = _serving(ladder(run, world, now), run, now)
    good: list[Offer] = []
    cooling: list[tuple[Offer, ZoneRecord]] = []
    for offer in offers:
        record = world.zones.get(offer_key(offer.placement))
        if record is not None and is_cooling(record, world, now):
            cooling.append((offer, record))
        else:
            good.append(offer)
    good.sort(key=_ranking(run, offers, world, now))
    cooling.sort(key=lambda item: item[1].cool_until)
    return good, cooling


def lacks(run: Run, world: World) -> bool:
    """The settings do not contain the provider of its machine; for a run without a machine, any provider that it may
    use."""
    names = run.providers if run.open_try is None else (run.provider,)
    return all(world.lacks(name) for name in names)


def lacking(run: Run) -> str:
    if run.open_try is None and len(run.providers) > 1:
        names = ", ".join(run.providers)
        return f"none of its providers ({names}) is in the settings: put one back, or stop the run"
    return f"its provider {run.provider} is not in the settings: put it back, or stop the run"


def longest_pause_s(world: World) -> float:
    """A pause that ends further ahead was written before the wall clock was set back, and is over."""
    knobs = world.knobs
    return max(knobs.cooldown_max_s, knobs.quota_retry_s, 1.2 * knobs.recovery_backoff_max_s)


def is_paused(run: Run, world: World, now: float) -> bool:
    """The time of its next try has not come yet."""
    return run.next_at is not None and now < run.next_at <= now + longest_pause_s(world)


def is_cooling(record: ZoneRecord | None, world: World, now: float) -> bool:
    return record is not None and now < record.cool_until <= now + longest_pause_s(world)


def refused_pause_s(tries: int, world: World) -> float:
    """How long a run waits whose request was refused for a reason of its own: the backoff of a recovery, doubled up to
    the shortest cool-down of a zone."""
    return min(world.knobs.recovery_backoff_s * 2.0 ** min(tries - 1, 10), world.knobs.cooldown_min_s)


def refused_lately(run: Run, now: float) -> tuple[Refusal, ...]:
    """A time ahead of now was written before the wall clock was set back: it is left out."""
    return tuple(item for item in run.refusals if now - REFUSED_S < item.at <= now)


def _serving(offers: list[Offer], run: Run, now: float) -> list[Offer]:
    """Without those whose machine had no working GPU for this run. Old refusals name no provider."""
    refused = {(item.provider, item.zone, item.shape, item.spot) for item in refused_lately(run, now)}

    def serves(place: Placement) -> bool:
        return all((name, place.zone, place.shape, place.spot) not in refused for name in (place.provider, ""))

    return [offer for offer in offers if serves(offer.placement)] if refused else offers


def _none_serves(run: Run, world: World, now: float) -> NoOffer:
    """The ladder is empty, or every offer of it was refused."""
    if not ladder(run, world, now):
        retry_at = now + world.knobs.quota_retry_s
        return NoOffer(retry_at, Cause.NO_CAPACITY, "no zone of the settings offers this shape")
    refused = refused_lately(run, now)
    last = max(refused, key=lambda item: item.at)
    count = len({(item.provider, item.zone, item.shape, item.spot) for item in refused})
    detail = (
        f"every zone and shape that this run may use was tried within the hour ({count}); the last: {last.evidence}"
    )
    free_at = min(item.at for item in refused) + REFUSED_S
    return NoOffer(min(free_at, now + longest_pause_s(world)), last.cause, detail)


def _full_text(place: Placement, world: World) -> str:
    """By which of our own machines; "" = by none."""
    capacity = world.capacities.get(place.provider)
    return capacity.why_full(place.zone, place.shape) if capacity is not None else ""


def _ranking(
    run: Run, offers: Iterable[Offer], world: World, now: float
) -> Callable[[Offer], tuple[int, bool, int, int]]:
    """Smaller is better; equal offers keep the order of the ladder."""
    places = [offer.placement for offer in offers]
    providers = list(dict.fromkeys(place.provider for place in places))
    kinds = list(dict.fromkeys((place.provider, place.spot, place.shape) for place in places))
    last = run.attempt

    def rank(offer: Offer) -> tuple[int, bool, int, int]:
        place = offer.placement
        own = last is None or last.placement.provider == place.provider
        kind = kinds.index((place.provider, place.spot, place.shape))
        losses = len(lost_lately(world.zones.get(offer_key(place)), now))
        return providers.index(place.provider), own and place.zone == run.avoid_zone, kind, losses

    return rank
