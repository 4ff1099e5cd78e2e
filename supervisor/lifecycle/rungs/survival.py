"""How long machines of a zone live, and how soon a zone that refused has capacity again: own launches, with a prior.

Lives are judged by Kaplan-Meier: a machine that its user stopped, or that still lives, shows only that it lived so
long. Without that, half of the machines of the prior would count as lost when their users stopped them. A zone with few
machines of its own leans on the prior, which weighs as much as `PRIOR_LIVES` machines. Losses come early: a machine
that has lived for some hours is safer than a new one.

A zone that refused a request or took a machine back is down until a request shows that it is not. The rate of its
return is the number of returns divided by the time that was waited for them. All zones of one shape share what they
show, in part, because each alone sees few returns. Requests that lie far apart say little about the time between them,
so they do not count.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from supervisor.domain.machines import Call, OfferKey, Outlook

# Lives are counted up to so much. Losses come early; a longer time would hide them behind the few machines that live
# for days. This number, and the others without another source, were chosen with the replay of `make policy`: its result
# is flat around them (1.50 to 1.57 create calls per relocation in us-central1).
HORIZON_S = 7200.0
PRIOR_END_S = 86_400.0  # the platform of the prior took each machine after a day at the latest
# Of 1,442 preemptible machines of 2019: (age, the share that still lived), by Kaplan-Meier. tools/policy/data has the
# table and its source; a test computes these figures from it.
PRIOR = (
    (300.0, 0.9609),
    (600.0, 0.9357),
    (1_800.0, 0.8968),
    (3_600.0, 0.8513),
    (7_200.0, 0.8038),
    (14_400.0, 0.7447),
    (28_800.0, 0.7108),
    (43_200.0, 0.683),
    (64_800.0, 0.6434),
    (82_800.0, 0.6183),
)
PRIOR_LIVES = 4.0  # the prior weighs as much as so many machines
# P(up in 10 min | down) = 0.13, over 13 zones of H100 machines in October 2025 (tools/policy/data).
PRIOR_RETURN_PER_S = -math.log(1.0 - 0.13) / 600.0
PRIOR_RETURNS = 2.0  # the prior weighs as much as so many returns
SHARED_RETURNS = 30.0  # what all zones of the shape show weighs as much as so many returns of one zone
LONGEST_PAIR_S = 3600.0  # twice the longest cool-down of a zone
CALLS_READ = 1000  # of each kind: bounds what a reading costs, 20 ms
LEAST_PAIRS = 2  # fewer measured waits say nothing


@dataclass(frozen=True, slots=True)
class Life:
    """A machine: how long it lived, and whether the platform took it. False: its user ended it, or it still lives.
    `weight`: it counts as so many machines."""

    age_s: float
    lost: bool
    weight: float = 1.0


Curve = tuple[tuple[float, float], ...]  # (age in seconds, the share that still lives from then on), ages rise


def kaplan_meier(lives: Iterable[Life]) -> Curve:
    """The share of machines that outlive each age at which one was lost. A machine that was stopped at that age was
    still at risk."""
    ordered = sorted(lives, key=lambda life: life.age_s)
    at_risk, share = sum(life.weight for life in ordered), 1.0
    curve = []
    for age_s, group in groupby(ordered, key=lambda life: life.age_s):
        same = list(group)
        lost = sum(life.weight for life in same if life.lost)
        if lost > 0:
            share *= max(0.0, 1.0 - lost / at_risk)
            curve.append((age_s, share))
        at_risk -= sum(life.weight for life in same)
    return tuple(curve)


def surviving(curve: Curve, age_s: float) -> float:
    """The share that outlives this age."""
    return next((share for at_s, share in reversed(curve) if at_s <= age_s), 1.0)


def expected_life_s(curve: Curve, age_s: float = 0.0) -> float:
    """How much longer a machine of this age lives, until `HORIZON_S` at most."""
    alive = surviving(curve, age_s)
    if alive <= 0.0:
        return 0.0
    steps = [(at_s, share) for at_s, share in curve if age_s < at_s < HORIZON_S]
    area, at_s, share = 0.0, age_s, alive
    for next_s, next_share in (*steps, (max(HORIZON_S, age_s), 0.0)):
        area += share * (next_s - at_s)
        at_s, share = next_s, next_share
    return area / alive


def prior_lives() -> tuple[Life, ...]:
    """The prior as a few machines with weights."""
    lives, before = [], 1.0
    for age_s, share in PRIOR:
        lives.append(Life(age_s, lost=True, weight=PRIOR_LIVES * (before - share)))
        before = share
    return (*lives, Life(PRIOR_END_S, lost=True, weight=PRIOR_LIVES * before))


_PRIOR_LIVES = prior_lives()
NOTHING_KNOWN = Outlook(expected_life_s(kaplan_meier(_PRIOR_LIVES)), PRIOR_RETURN_PER_S)


# --- from own calls ---------------------------------------------------------------------------------------------------


@dataclass(slots=True)
class _Waits:
    """Measured waits of zones that were down. `down_s`: the time until the next request, of all of them."""

    count: int = 0
    returns: int = 0
    down_s: float = 0.0
    by_zone: dict[OfferKey, tuple[int, float]] = field(default_factory=dict)  # returns and time, of each

    def rate(self) -> float:
        """Of all zones together, per second."""
        return (self.returns + PRIOR_RETURNS) / (self.down_s + PRIOR_RETURNS / PRIOR_RETURN_PER_S)

    def rate_of(self, key: OfferKey) -> float:
        returns, down_s = self.by_zone.get(key, (0, 0.0))
        return (returns + SHARED_RETURNS) / (down_s + SHARED_RETURNS / self.rate())


def outlooks(calls: Iterable[Call], now: float) -> dict[OfferKey, Outlook]:
    """By offer, what its own calls say. Times ahead of now were written before the clock was set back: they are left
    out."""
    by_offer: dict[OfferKey, list[Call]] = {}
    for call in calls:
        if call.at <= now:
            by_offer.setdefault(call.offer, []).append(call)
    for own in by_offer.values():
        own.sort(key=lambda call: call.at)
    waits = _measured_waits(by_offer)
    return {key: _outlook(key, own, waits[_kind(key)], now) for key, own in by_offer.items()}


def curve_of(calls: Iterable[Call], like: OfferKey, now: float) -> tuple[Curve, int]:
    """(how long machines like this one live, how many own ones say so): of its provider, shape and market in all
    zones, with the prior. Only at the ages of the prior: between two losses that lie close together the hazard of a few
    machines would be without bounds."""
    lives = _lives([call for call in calls if _kind(call.offer) == _kind(like) and call.at <= now], now)
    whole = kaplan_meier((*_PRIOR_LIVES, *lives))
    return tuple((age_s, surviving(whole, age_s)) for age_s, _ in PRIOR), len(lives)


def _lives(calls: Iterable[Call], now: float) -> list[Life]:
    return [
        Life(max(0.0, (now if call.ended_at is None else call.ended_at) - call.at), call.lost)
        for call in calls
        if call.obtained
    ]


def _kind(key: OfferKey) -> tuple[str, str, bool]:
    provider, _, shape, spot = key
    return provider, shape, spot


def _measured_waits(by_offer: Mapping[OfferKey, Sequence[Call]]) -> dict[tuple[str, str, bool], _Waits]:
    """By provider, shape and market."""
    waits: dict[tuple[str, str, bool], _Waits] = {}
    for key, own in by_offer.items():
        shared = waits.setdefault(_kind(key), _Waits())
        returns, down_s = 0, 0.0
        for wait_s, is_up in _pairs(own):
            shared.count += 1
            returns, down_s = returns + is_up, down_s + wait_s
        shared.returns, shared.down_s = shared.returns + returns, shared.down_s + down_s
        shared.by_zone[key] = (returns, down_s)
    return waits


def _pairs(own: Sequence[Call]) -> Iterable[tuple[float, bool]]:
    """(time from the moment at which the zone was down to the next call, whether that one brought a machine)."""
    down_at: float | None = None
    for call in own:
        if down_at is not None and 0.0 <= call.at - down_at <= LONGEST_PAIR_S:
            yield call.at - down_at, call.obtained
        lost_at = call.ended_at if call.lost else None
        down_at = lost_at if call.obtained else call.at


def _outlook(key: OfferKey, own: Sequence[Call], waits: _Waits, now: float) -> Outlook:
    lives = _lives(own, now)
    seen = [min(now, call.ended_at or now) for call in own if call.obtained and not call.lost]
    return Outlook(
        life_s=expected_life_s(kaplan_meier((*_PRIOR_LIVES, *lives))),
        return_per_s=waits.rate_of(key),
        is_measured=waits.count >= LEAST_PAIRS and waits.returns > 0,
        up_at=max(seen, default=0.0),
        lives=len(lives),
        lost=sum(life.lost for life in lives),
        held_s=sum(life.age_s for life in lives),
    )
