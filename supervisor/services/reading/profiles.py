"""The profile of a provider's machines as the API shows it: values for programs, and beside them the words for people.

A profile sends no request. Its danger clocks need a price and the dead-man switch of the run (`machine_max_s`), so they
are made for one offer: the first one of the provider, or the one that a run has or gets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field
from typing_extensions import TypedDict

from supervisor.domain.machines import Offer, Placement
from supervisor.domain.policies import Limits
from supervisor.domain.profile import NO_LIMIT, Clock, End, Fact, Profile, Source, Tier, Verb, danger_clocks, day_of
from supervisor.domain.run import Run
from supervisor.lifecycle.offers.choosing import queue
from supervisor.ports.provider import Provider
from supervisor.services.parts import Parts
from supervisor.services.reading.sessions import lending_world
from supervisor.services.views.formats import usd
from supervisor.wording import profile as wording

Value = str | float | bool | None


class FactShown(TypedDict):
    """One value with its source. Null: unknown. `text`: the value in words. `source`: measured, documented or user;
    clients must accept other words. `date`: YYYY-MM-DD. `note`: where it comes from; of an unknown value why, or how to
    measure it."""

    value: Annotated[Value, Field(description="null: unknown; the text `no limit` for a limit that does not exist")]
    text: str
    source: str | None
    date: str | None
    note: str | None


class NamedFactShown(FactShown):
    """`label`: the field in words."""

    name: str
    label: str


class SurvivalShown(TypedDict):
    """What happens to files of a tier: yes, no, `verify first`, or null for unknown."""

    end_of_process: FactShown
    requeue_elsewhere: FactShown
    machine_stop: FactShown
    machine_destroy: FactShown


class TierShown(TypedDict):
    """One storage tier. `paths`: each covers a folder and all below it; `*` is one folder of any name, `~` the home.
    The sizes are of the machine: measured there, else unknown."""

    name: str
    paths: list[str]
    survives: SurvivalShown
    bytes_cap: FactShown
    inodes_cap: FactShown


class VerbShown(TypedDict):
    """One way to give a machine back. `end`: the column of the survival matrix that says what is left. `by`: who does
    it. `leaves`: the tiers that are left; a question mark: verify first. `undo`: the machine can be had back."""

    verb: str
    end: str | None
    by: str | None
    command: str | None
    stops_meter: FactShown
    undo: FactShown
    left_usd_per_gb_month: FactShown
    leaves: list[str]


class ClockShown(TypedDict):
    """What happens to money or data if nobody acts. `after_s` null: never, or unknown; `text` says which."""

    danger: Annotated[str, Field(description="such as bills or no_undo; clients must accept other words")]
    text: str
    usd_per_h: float | None
    after_s: float | None
    verb: str | None


class ProfileShown(TypedDict):
    """The profile of machines. `zone` null: of all zones. `offer`: the shape and zone whose price the clocks have."""

    kind: str
    title: str
    zone: str | None
    offer: str | None
    facts: list[NamedFactShown]
    tiers: list[TierShown]
    verbs: list[VerbShown]
    clocks: Annotated[list[ClockShown], Field(description="danger clocks, the most expensive first")]


def provider_profile(parts: Parts, provider: Provider, zone: str = "") -> ProfileShown:
    """Of all its zones, or of one, at the price of the first offer there."""
    offers = (offer for offer in provider.offers() if zone in ("", offer.placement.zone))
    limit = _limit(parts.defaults.limits, parts.clock.now(), "machine_max_s of the settings")
    return profile_json(with_limit(provider.profile(zone), limit), next(offers, None), zone)


def run_profile(parts: Parts, run: Run, now: float) -> ProfileShown | None:
    """Of the machine that the run has, else of the next one that it would request. None: its provider is not in the
    settings, or no offer fits it."""
    offers = _offers(parts, run)
    machine = run.live_attempt or run.try_
    place = None if machine is None else machine.placement
    offer = next((offer for each in offers.values() for offer in each if offer.placement == place), None)
    if offer is None:
        offer = _next_offer(parts, run, offers, now)
    return None if offer is None else offer_profile(parts, offer, run)


def next_place(parts: Parts, run: Run) -> Placement | None:
    """Where the run would request its next machine now; None: its provider is not in the settings, or no offer fits."""
    offer = _next_offer(parts, run, _offers(parts, run), parts.clock.now())
    return None if offer is None else offer.placement


def _offers(parts: Parts, run: Run) -> Mapping[str, tuple[Offer, ...]]:
    return {name: parts.providers[name].offers() for name in run.providers if name in parts.providers}


def _next_offer(parts: Parts, run: Run, offers: Mapping[str, tuple[Offer, ...]], now: float) -> Offer | None:
    world = replace(lending_world(parts, run), offers=offers, zones=parts.store.zones(run.cell))
    order = queue(run, world, now)
    return order[0][0] if order else None


def offer_profile(parts: Parts, offer: Offer, run: Run) -> ProfileShown:
    """Of a machine of this offer for this run."""
    place = offer.placement
    return profile_json(placed_profile(parts.providers[place.provider], run, place), offer, place.zone)


def placed_profile(provider: Provider, run: Run, place: Placement | None) -> Profile:
    """Of a machine there for this run; of all zones where no place is known yet."""
    limit = _limit(run.policy.limits, run.generation_at, "machine_max_s of the run")
    profile = with_limit(provider.profile("" if place is None else place.zone), limit)
    spot = run.policy.spot if place is None else place.spot
    return profile if spot else _not_preempted(profile)


def _not_preempted(profile: Profile) -> Profile:
    """A machine that is not spot is not preempted."""
    fact = profile.preemptible
    return replace(profile, preemptible=replace(fact, value=False)) if fact.value else profile


def _limit(limits: Limits, at: float, note: str) -> Fact[float]:
    return Fact(limits.machine_max_s, Source.USER, day_of(at), note)


def with_limit(profile: Profile, limit: Fact[float]) -> Profile:
    """The dead-man switch is a limit of the run, where the provider has one at all, and no session ends before."""
    fact, cap_s = profile.dead_man_s, profile.session_cap_s.value
    if not fact.is_known or fact.value == NO_LIMIT:
        return profile
    if cap_s is not None and cap_s != NO_LIMIT and limit.value is not None and cap_s <= limit.value:
        return profile
    return replace(profile, dead_man_s=replace(limit, note=f"{limit.note}; {fact.note}"))


def profile_json(profile: Profile, offer: Offer | None, zone: str = "") -> ProfileShown:
    if offer is not None and not offer.placement.spot:
        profile = _not_preempted(profile)
    usd_per_h = None if offer is None else offer.price_usd_per_h
    return {
        "kind": profile.kind,
        "title": profile.title,
        "zone": zone or None,
        "offer": None if offer is None else _offer_text(offer),
        "facts": [
            {"name": name, "label": wording.LABELS[name], **_fact(fact, wording.fact_text(name, fact.value))}
            for name, fact in wording.shown_facts(profile).items()
        ],
        "tiers": list(map(_tier, profile.tiers)),
        "verbs": [verb_json(profile, verb) for verb in profile.verbs],
        "clocks": [_clock(profile, clock) for clock in danger_clocks(profile, usd_per_h)],
    }


def _offer_text(offer: Offer) -> str:
    place = offer.placement
    return f"{place.shape} {place.market} in {place.zone}"


def _fact(fact: Fact[Any], text: str) -> FactShown:
    value = fact.value
    return {
        "value": wording.NO_LIMIT_TEXT if value == NO_LIMIT else value,
        "text": text,
        "source": fact.source,
        "date": fact.on or None,
        "note": fact.note or None,
    }


def _tier(tier: Tier) -> TierShown:
    answers = {end: _fact(tier.survives(end), wording.survival_text(tier.survives(end))) for end in End}
    return {
        "name": tier.name,
        "paths": list(tier.paths),
        "survives": {
            "end_of_process": answers[End.PROCESS],
            "requeue_elsewhere": answers[End.REQUEUE],
            "machine_stop": answers[End.STOP],
            "machine_destroy": answers[End.DESTROY],
        },
        "bytes_cap": _fact(tier.bytes_cap, wording.cap_text(tier.bytes_cap, is_bytes=True)),
        "inodes_cap": _fact(tier.inodes_cap, wording.cap_text(tier.inodes_cap, is_bytes=False)),
    }


def verb_json(profile: Profile, verb: Verb) -> VerbShown:
    return {
        "verb": verb.verb,
        "end": verb.end,
        "by": verb.by,
        "command": verb.command or None,
        "stops_meter": _fact(verb.stops_meter, wording.fact_text("stops_meter", verb.stops_meter.value)),
        "undo": _fact(verb.undo, wording.fact_text("undo", verb.undo.value)),
        "left_usd_per_gb_month": _fact(verb.left_usd_per_gb_month, wording.left_price_text(verb)),
        "leaves": wording.leaves(profile, verb),
    }


def _clock(profile: Profile, clock: Clock) -> ClockShown:
    return {
        "danger": clock.danger,
        "text": wording.clock_text(profile, clock),
        "usd_per_h": usd(clock.usd_per_h),
        "after_s": None if clock.after_s in (None, NO_LIMIT) else clock.after_s,
        "verb": clock.verb or None,
    }
