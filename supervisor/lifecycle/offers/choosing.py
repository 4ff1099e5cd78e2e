"""Which offer of its ladder a run requests next, or why it can request none now.

Offers that cool down after a failure are left out, and so are zones that cannot be read now. At each provider the zone
that was just lost comes last, so it is requested again only when nothing else there is good. Zones of one shape and
price are ranked by how long machines live there and how soon one is obtained (`ranking`). An offer whose place fails a
check of the gates G0 or G1 is passed over until that is fixed or waived; what was not read there stops nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

from supervisor.domain.causes import Cause
from supervisor.domain.gates.verdicts import Verdict
from supervisor.domain.machines import Offer, Placement, ZoneRecord, offer_key
from supervisor.domain.observation import World
from supervisor.domain.run import Refusal, Run
from supervisor.lifecycle.gates.places import PASSING, failure_text, restore_s, stopping
from supervisor.lifecycle.offers.ladder import ladder, market_rule, pay_rule, request_key
from supervisor.lifecycle.offers.paying import is_spent, least_s
from supervisor.lifecycle.offers.ranking import lane_of, ranking
from supervisor.wording.sessions import used_up_text

REFUSED_S = 3600.0  # for so long a run does not request an offer again whose GPUs did not work
LACKING_RETRY_S = 60.0


@dataclass(frozen=True, slots=True)
class NoOffer:
    """Nothing can be requested before `until` (None: before something changes). `cause` and `detail` are those of the
    offer that is free soonest. `unread`: nothing failed, but the zones that are left cannot be read. `stopped`: the
    code of the gate that stops the best place that is left, whose readings change with each tick. `lacking`: the
    settings contain none of the run's providers. `held`: a paid provider is left out until the deadline needs it.
    `note`: why, for the history."""

    until: float | None
    cause: Cause
    detail: str
    unread: bool = False
    stopped: str = ""
    lacking: bool = False
    held: bool = False
    note: str = ""


def choose(run: Run, world: World, now: float) -> Offer | NoOffer:
    """The best offer that is not cooling and not held by our own machines; else when the next one is free. Many runs
    that request the same get one answer, where the world keeps it."""
    if lacks(run, world):
        return NoOffer(now + LACKING_RETRY_S, Cause.NO_CAPACITY, lacking(run), lacking=True)
    if world.choices is None:
        return _choose(run, world, now)
    request = choice_key(run, world)
    if request not in world.choices:
        world.choices[request] = _choose(run, world, now)
    choice: Offer | NoOffer = world.choices[request]
    return choice


def choice_key(run: Run, world: World) -> tuple[object, ...]:
    """Everything of a run that decides what it gets in one world."""
    last = None if run.attempt is None else run.attempt.placement.provider
    freed, lane = world.freed.get(run.key), lane_of(run)
    return *request_key(run), run.counters.preempted_at, run.avoid_zone, last, freed, lane, *_expected(run, world)


def _choose(run: Run, world: World, now: float) -> Offer | NoOffer:
    choice = _choose_in_ladder(run, world, now)
    if isinstance(choice, Offer):
        return choice
    rule = pay_rule(run, world, now)
    if rule is None or rule.pays:
        return _until_on_demand(run, choice, world, now)
    until = choice.until  # a cool-down may last longer than the deadline allows
    if rule.turns_at is not None and until is not None and choice.cause != Cause.QUOTA_HOURS:
        until = min(until, rule.turns_at)
    return replace(choice, until=until, held=rule.turns_at is not None, note=rule.text)


def _until_on_demand(run: Run, choice: NoOffer, world: World, now: float) -> NoOffer:
    """A run that waits for spot is placed again when the deadline needs on-demand."""
    market = market_rule(run, world, now)
    if market is None or not market.waits or choice.until is None or choice.stopped:
        return choice
    until = choice.until if market.until is None else min(choice.until, market.until)
    detail = f"{choice.detail.rstrip('.')}; {market.why}"
    return replace(choice, until=until, detail=detail, held=market.until is not None)


def _choose_in_ladder(run: Run, world: World, now: float) -> Offer | NoOffer:
    good, cooling = _sorted_offers(run, world, now)
    if not good and not cooling:
        return _none_serves(run, world, now)
    every = (*good, *(offer for offer, _ in cooling)) if world.quotas else ()
    spent = [offer for offer in every if is_spent(run, offer.placement, world, now)]
    places = _Places([], [], [], [item for item in cooling if item[0] not in spent], spent)
    for offer in good:
        is_read = world.zone_of(offer.placement) not in world.unread
        if offer in spent:
            continue
        if is_read and (why_full := _full_text(offer.placement, world)):
            places.full.append(why_full)
        elif stops := stops_of(run, offer, world, now):
            places.stopped.append((offer, stops))
        elif is_read:
            return offer
        else:
            places.unread.append(world.zone_of(offer.placement))
    return _no_offer(places, world, now)


class _Places(NamedTuple):
    """Why no offer can be requested: full of our own machines (in words), stopped by a gate, not read (their zones),
    cooling, without hours that their platform lends."""

    full: list[str]
    stopped: list[tuple[Offer, tuple[Verdict, ...]]]
    unread: list[str]
    cooling: list[tuple[Offer, ZoneRecord]]
    spent: list[Offer]


def _no_offer(places: _Places, world: World, now: float) -> NoOffer:
    """What changes soonest decides: our own machines, a zone that is read again, a cool-down, a gate."""
    if places.full:
        return NoOffer(None, Cause.QUEUED, places.full[0])
    stopped, text = places.stopped, _stopped_text(places.stopped)
    code = stopped[0][1][0].code if stopped else ""
    if places.unread:
        zones = dict.fromkeys(places.unread)
        why = "is given back" if world.closing.issuperset(zones) else "cannot be read"
        detail = f"{', '.join(zones)} {why} now, so no machine is requested there"
        return NoOffer(now + world.knobs.poll_interval_s, Cause.NO_CAPACITY, _both(detail, text), unread=True)
    if places.cooling:
        record = places.cooling[0][1]
        until = None if stopped else record.cool_until
        return NoOffer(until, Cause(record.cause), _both(record.detail, text), stopped=code)
    if places.spent:
        return _without_hours(places.spent, text, world, now)
    passes = any(all(verdict.check in PASSING for verdict in stops) for _, stops in stopped)
    return NoOffer(None, Cause.NO_CAPACITY if passes else Cause.LAUNCH_REJECTED, text, stopped=code)


def _without_hours(spent: list[Offer], text: str, world: World, now: float) -> NoOffer:
    """Until the first of these platforms lends hours again."""
    quotas = [(offer.placement.provider, quota) for offer in spent if (quota := world.quota_of(offer.placement))]
    name, quota = min(quotas, key=lambda item: (item[1].resets_at is None, item[1].resets_at))
    return NoOffer(quota.resets_at, Cause.QUOTA_HOURS, _both(used_up_text(quota, name, now), text))


def stops_of(run: Run, offer: Offer, world: World, now: float) -> tuple[Verdict, ...]:
    """The verdicts of G0 and G1 that stop a launch there; () = none, or nothing is known of the place. The same for all
    runs that ask the same of it, so it is judged once a tick."""
    place = offer.placement
    profile = world.profile_of(place)
    if profile is None:
        return ()
    key = place.provider, place.zone, place.shape, *_expected(run, world)
    if key not in world.judged:
        world.judged[key] = stopping(run, place, profile, world, now)
    stops: tuple[Verdict, ...] = world.judged[key]
    return stops


def _expected(run: Run, world: World) -> tuple[object, ...]:
    """Everything of a run that the gates compare with a place, or with what incidents stop."""
    policy, waived = run.policy, tuple(waiver.check for waiver in run.waivers)
    least = tuple(least_s(run, name) for name in run.providers) if world.quotas else ()
    expected = policy.needs, policy.expect_checkpoint_gb, policy.expect_checkpoint_every_s, policy.limits.machine_max_s
    failure = failure_text(run, world.blocked) if world.blocked else ""
    return *expected, waived, run.files.checkpoint_bytes, restore_s(run), failure, least


def _stopped_text(stopped: list[tuple[Offer, tuple[Verdict, ...]]]) -> str:
    """Of the best offer, with its first verdict whole; "" = none is stopped."""
    if not stopped:
        return ""
    offer, verdicts = stopped[0]
    first, more = verdicts[0], dict.fromkeys(verdict.code for verdict in verdicts[1:])
    also = f" Also: {', '.join(more)}." if more else ""
    zones = len({each.placement.zone for each, _ in stopped})
    elsewhere = f" {zones - 1} more of its zones are stopped too." if zones > 1 else ""
    return f"{offer.placement.zone}: {first.code} ({first.check}): {first.fact}. {first.fix}{also}{elsewhere}"


def _both(text: str, other: str) -> str:
    return f"{text}; {other}" if other else text


def queue(run: Run, world: World, now: float) -> list[tuple[Offer, ZoneRecord | None]]:
    """Every offer that this run may use, in the order in which it would be requested from now on if each request
    failed. Those that cool down come last, the soonest first, each with its record."""
    good, cooling = _sorted_offers(run, world, now)
    return [*((offer, None) for offer in good), *cooling]


def _sorted_offers(run: Run, world: World, now: float) -> tuple[list[Offer], list[tuple[Offer, ZoneRecord]]]:
    """(offers that are not cooling, the best first; those that are, the soonest first, with their records)."""
    offers = _serving(ladder(run, world, now), run, now)
    if run.kept is not None:
        offers = [offer for offer in offers if offer.placement == run.kept[1].placement]
    good: list[Offer] = []
    cooling: list[tuple[Offer, ZoneRecord]] = []
    for offer in offers:
        record = world.zones.get(offer_key(offer.placement))
        is_freed = run.key in world.freed and world.freed[run.key] == offer_key(offer.placement)
        if record is not None and is_cooling(record, world, now) and not is_freed:
            cooling.append((offer, record))
        else:
            good.append(offer)
    good.sort(key=ranking(run, offers, world, now))
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
    """The time of its next try has not come yet. A machine that was yielded to it ends the pause."""
    if run.key in world.freed:
        return False
    return run.next_at is not None and now < run.next_at <= now + longest_pause_s(world)


def is_cooling(record: ZoneRecord | None, world: World, now: float) -> bool:
    return record is not None and now < record.cool_until <= now + longest_pause_s(world)


def refused_pause_s(tries: int, world: World) -> float:
    """How long a run waits whose request was refused for a reason of its own: the backoff of a recovery, doubled up to
    the shortest cool-down of a zone."""
    return min(world.knobs.recovery_backoff_s * 2.0 ** min(tries - 1, 10), world.knobs.cooldown_min_s)


def start_pause_s(tries: int, world: World) -> float:
    """How long a run waits that wants its kept machine and no other, and whose start was refused for good: as long as a
    zone without capacity cools down."""
    return min(world.knobs.cooldown_min_s * 2.0 ** min(tries - 1, 10), world.knobs.cooldown_max_s)


def refused_lately(run: Run, now: float) -> tuple[Refusal, ...]:
    """A time ahead of now was written before the wall clock was set back: it is left out. A shape whose memory did not
    suffice is too small for as long as the generation lasts."""
    return tuple(item for item in run.refusals if item.of_memory or now - REFUSED_S < item.at <= now)


def _serving(offers: list[Offer], run: Run, now: float) -> list[Offer]:
    """Without those whose machine had no working GPU or too little memory for this run. Old refusals name no
    provider."""
    refused = {(item.provider, item.zone, item.shape, item.spot) for item in refused_lately(run, now)}

    def serves(place: Placement) -> bool:
        return all((name, place.zone, place.shape, place.spot) not in refused for name in (place.provider, ""))

    return [offer for offer in offers if serves(offer.placement)] if refused else offers


def _none_serves(run: Run, world: World, now: float) -> NoOffer:
    """The ladder is empty, or every offer of it was refused."""
    retry_at = now + world.knobs.quota_retry_s
    priced = "" if run.policy.limits.budget_usd is None else " at a known price, which its budget needs"
    if run.kept is not None:
        place = run.kept[1].placement
        detail = f"{place.zone} does not offer {place.shape}, its kept machine, now{priced}"
        return NoOffer(retry_at, Cause.NO_CAPACITY, detail)
    if not ladder(run, world, now):
        return NoOffer(retry_at, Cause.NO_CAPACITY, f"no zone of the settings offers this shape{priced}")
    refused = refused_lately(run, now)
    last = max(refused, key=lambda item: item.at)
    count = len({(item.provider, item.zone, item.shape, item.spot) for item in refused})
    detail = (
        f"every zone and shape that this run may use was tried within the hour ({count}); the last: {last.evidence}"
    )
    free_at = [item.at + REFUSED_S for item in refused if not item.of_memory]
    return NoOffer(min([*free_at, now + longest_pause_s(world)]), last.cause, detail)


def _full_text(place: Placement, world: World) -> str:
    """By which of our own machines; "" = by none."""
    capacity = world.capacities.get(place.provider)
    return capacity.why_full(place.zone, place.shape) if capacity is not None else ""
