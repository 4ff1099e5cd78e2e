"""What is known of a run for its forecast: each fact with its source, measured, given by the spec or the settings, or
assumed.

A fact that nobody knows and nothing can stand for (the work that is left, a price) is not guessed: then there is no
forecast, or none of that figure, and the reason is named.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from math import exp, log, sqrt
from statistics import fmean, median
from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from supervisor.domain.attempt import Attempt, training_s
from supervisor.domain.causes import OWN_WAITS
from supervisor.domain.machines import Call, Offer, OfferKey, ZoneRecord, offer_key
from supervisor.domain.observation import World
from supervisor.domain.policies import FOR_COST, FOR_SPOT
from supervisor.domain.run import Run, run_cost_usd
from supervisor.domain.status import PLACING, Status
from supervisor.lifecycle.living.drilling import verdict_of
from supervisor.lifecycle.offers.market import goal_of, worst_changeover_s
from supervisor.lifecycle.offers.paying import CHANGEOVER_S, lent_by
from supervisor.lifecycle.rungs.futures import (
    PRIOR_SIGMA,
    UP_SHARE,
    Course,
    HeldMachine,
    Lifetimes,
    Rule,
    SpotPlace,
    Spread,
    first_that_is_there,
    keeping_deadline,
    only_on_demand,
    only_spot,
)
from supervisor.lifecycle.rungs.rule import Rung
from supervisor.lifecycle.rungs.survival import NOTHING_KNOWN, PRIOR_LIVES, PRIOR_RETURN_PER_S, curve_of, surviving
from supervisor.ports.store import Sample
from supervisor.services.parts import Parts
from supervisor.wording.figures import age_text, money_text, plural, rate_text
from supervisor.wording.forecast import SURVIVES, leaving_s, needs_person
from supervisor.wording.sessions import Work, work_of

MEASURED, GIVEN, ASSUMED = "measured", "given", "assumed"
PACE_BLOCK_S = 600.0
PACE_SIGMA, PACE_LEAST_SIGMA, EXPECTED_SIGMA = 0.10, 0.03, 0.15
CHANGEOVER_SIGMA, LOCAL_CHANGEOVER_S = 0.4, 20.0
SAVE_EVERY_S = 600.0
STARTS_WEIGHT = 2.0  # the assumed spread counts as so many measured starts
_GOES_ON = (*PLACING, Status.LAUNCHING, Status.RUNNING)
_RULES: Mapping[Rule, str] = {
    only_on_demand: "on-demand machines only",
    only_spot: "spot only: it waits where there is none",
    first_that_is_there: "spot, and on-demand at once where there is none",
    keeping_deadline: "spot while the slack allows it, on-demand when the deadline needs it",
}

Order = Sequence[tuple[Offer, ZoneRecord | None]]


class AssumptionShown(TypedDict):
    name: str
    text: str
    source: Annotated[str, Field(description="measured, given (by the spec or the settings) or assumed")]


@dataclass(slots=True)
class Basis:
    """`course` None: nothing can be simulated, and `unknown` says why."""

    course: Course | None = None
    unknown: list[str] = field(default_factory=list)
    assumes: list[AssumptionShown] = field(default_factory=list)

    def assume(self, name: str, text: str, source: str) -> None:
        self.assumes.append({"name": name, "text": text, "source": source})


@dataclass(frozen=True, slots=True)
class History:
    """What was measured of this run and of others. `starts_s`: provider -> seconds from the request of a machine to its
    training. `calls`: create calls of all runs, with the lives of their machines."""

    samples: Sequence[Sample] = ()
    attempts: Sequence[Attempt] = ()
    starts_s: Mapping[str, Sequence[float]] = field(default_factory=dict)
    calls: Sequence[Call] = ()


def start_s(attempt: Attempt) -> float | None:
    if attempt.training_at is None:
        return None
    return max(1.0, attempt.training_at - attempt.requested_at - attempt.drift_s)


def basis_of(parts: Parts, run: Run, world: World, order: Order, *, history: History, now: float) -> Basis:
    """`order`: of the offers that it may use, as they would be tried."""
    basis = Basis(unknown=_why_none(run, world))
    live = run.live_attempt
    provider = live.placement.provider if live is not None else order[0][0].placement.provider if order else ""
    left_s = _left(basis, run, provider, history, now)
    if not order and live is None:
        basis.unknown.append("no offer fits it")
    if basis.unknown or left_s is None:
        return basis
    places, on_demand = _places(basis, run, order)
    lifetimes, return_per_s = _of_spot(basis, _spot_keys(run, order), world, history, now)
    rule = _rule_of(run)
    basis.assume("rule", _RULES[rule], GIVEN)
    basis.course = Course(
        now=now,
        left_s=left_s,
        changeover_s=_changeover(basis, parts, provider, history),
        save_every_s=_save_every_s(basis, run, history) if places else 0.0,
        lifetimes=lifetimes,
        return_per_s=return_per_s,
        tick_s=world.knobs.poll_interval_s,
        rule=rule,
        places=places,
        on_demand_usd_per_h=on_demand,
        deadline=_deadline(run),
        held=_held(run, now),
        spent_usd=run_cost_usd(run, now),
        hazard_sigma=PRIOR_SIGMA,
        machine_max_s=run.policy.limits.machine_max_s,
        trained_s=run.training_s + training_s(run.live_attempt, now),
        losses=run.counters.preemptions,
        rule_changeover_s=worst_changeover_s(run, {provider, *(offer.placement.provider for offer, _ in order)}),
    )
    return basis


def _deadline(run: Run) -> float | None:
    """The work must end before: a run leaves its machine in time."""
    deadline = run.policy.limits.deadline
    return None if deadline is None else deadline - leaving_s(run)


def _why_none(run: Run, world: World) -> list[str]:
    if run.terminal:
        return ["it has ended"]
    if run.status not in _GOES_ON or run.stop is not None:
        return [f"it is {run.status}, and trains no more"]
    if needs_person(run):
        return ["a person must act first, and nobody knows when"]
    if run.status is Status.WAITING and run.cause in OWN_WAITS:
        return ["it waits for other runs first, and nobody knows how long"]
    lends = next((name for name in run.providers if lent_by(run, name, world) is not None), None)
    return [] if lends is None else [f"{lends} lends its machines for some hours: its sessions are counted instead"]


def _left(basis: Basis, run: Run, provider: str, history: History, now: float) -> Spread | None:
    """The time of training that is left."""
    work = work_of(run, provider, now)
    if work.left_s is None:
        hint = "" if run.policy.expect_runtime_s is not None else "; expect_runtime_s in the spec would say it"
        basis.unknown.append(f"nobody knows how much work is left: {work.why}{hint}")
        return None
    if work.expected or work.pace is None:
        basis.assume("work", f"{age_text(work.left_s)} of training are left, by the expected runtime", GIVEN)
        return Spread(work.left_s, EXPECTED_SIGMA)
    return Spread(work.left_s, _pace_sigma(basis, work, history.samples))


def _pace_sigma(basis: Basis, work: Work, samples: Sequence[Sample]) -> float:
    """How far the pace of the rest may be from the pace so far."""
    rates = list(_rates(samples))
    text = f"{age_text(work.left_s or 0.0)} of training are left, at {rate_text(work.pace or 0.0)}"
    if len(rates) < 3:
        basis.assume("work", f"{text}, give or take {100 * PACE_SIGMA:.0f} %", MEASURED)
        return PACE_SIGMA
    logs = [log(rate) for rate in rates]
    mean = fmean(logs)
    sigma = sqrt(PACE_LEAST_SIGMA**2 + sum((each - mean) ** 2 for each in logs) / len(logs) / len(logs))
    basis.assume("work", f"{text}, give or take {100 * sigma:.0f} %", MEASURED)
    return sigma


def _rates(samples: Sequence[Sample]) -> Iterable[float]:
    """Steps a second in each span of ten minutes of one attempt."""
    first: Sample | None = None
    for sample in samples:
        if sample.pulse.step is None:
            continue
        if first is None or first.attempt != sample.attempt:
            first = sample
        elif sample.at - first.at >= PACE_BLOCK_S:
            steps = sample.pulse.step - (first.pulse.step or 0)
            if steps > 0:
                yield steps / (sample.at - first.at)
            first = sample


def _changeover(basis: Basis, parts: Parts, provider: str, history: History) -> Spread:
    """From the request of a machine to its training."""
    own = [found_s for each in history.attempts if (found_s := start_s(each)) is not None]
    starts_s, whose = (own, "its own") if own else (history.starts_s.get(provider, ()), "other runs'")
    if not starts_s:
        local = provider in parts.providers and parts.providers[provider].traits.shares_computer
        guess = Spread(LOCAL_CHANGEOVER_S if local else CHANGEOVER_S, CHANGEOVER_SIGMA)
        basis.assume("changeover", f"{age_text(guess.p50)} from the request of a machine to its training", ASSUMED)
        return guess
    logs = [log(each) for each in starts_s]
    mean = fmean(logs)
    squares = STARTS_WEIGHT * CHANGEOVER_SIGMA**2 + sum((each - mean) ** 2 for each in logs)
    spread = Spread(median(starts_s), sqrt(squares / (STARTS_WEIGHT + len(logs))))
    text = f"{age_text(spread.p50)} from the request of a machine to its training"
    basis.assume("changeover", f"{text}, by {whose} {plural(len(logs), 'start')}", MEASURED)
    return spread


def _save_every_s(basis: Basis, run: Run, history: History) -> float:
    """0 = a notice saves all."""
    verdict = verdict_of(run.drills)
    if verdict is not None and verdict.word == SURVIVES and verdict.notices and verdict.notices[0][1]:
        basis.assume("saves", "nothing is lost with a machine: its drill has saved within the notice", MEASURED)
        return 0.0
    seen = dict[int, float]()  # checkpoint -> when it was first reported
    for sample in history.samples:
        if sample.pulse.checkpoint_step is not None:
            seen.setdefault(sample.pulse.checkpoint_step, sample.at)
    if len(seen) > 3:
        times = sorted(seen.values())[1:]
        every_s, source = (times[-1] - times[0]) / (len(times) - 1), MEASURED
    elif run.policy.expect_checkpoint_every_s is not None:
        every_s, source = run.policy.expect_checkpoint_every_s, GIVEN
    else:
        every_s, source = SAVE_EVERY_S, ASSUMED
    basis.assume("saves", f"a checkpoint every {age_text(every_s)}; what comes after it is lost with a machine", source)
    return every_s


def _rule_of(run: Run) -> Rule:
    policy, goal = run.policy, goal_of(run.policy)
    if not policy.spot:
        return only_on_demand
    if not policy.allow_on_demand or goal == FOR_SPOT:
        return only_spot
    is_kept = goal == FOR_COST and policy.limits.deadline is not None
    return keeping_deadline if is_kept else first_that_is_there


def _places(basis: Basis, run: Run, order: Order) -> tuple[list[SpotPlace], float | None]:
    """(the zones with spot machines of the first shape, the price of an on-demand machine)."""
    live = run.live_attempt
    spots = [(offer, record) for offer, record in order if offer.placement.spot] if run.policy.spot else []
    if spots:
        first = spots[0][0].placement
        kind = (first.provider, first.shape)
        spots = [item for item in spots if (item[0].placement.provider, item[0].placement.shape) == kind]
    places = [SpotPlace(offer.price_usd_per_h, UP_SHARE, record is not None) for offer, record in spots]
    if live is not None and live.placement.spot:  # its own zone is the first, and is one of them perhaps
        others = [each for each, (offer, _) in zip(places, spots, strict=True) if offer.placement != live.placement]
        places = [SpotPlace(live.price_usd_per_h, UP_SHARE), *others]
    on_demand = next((offer.price_usd_per_h for offer, _ in order if offer.placement.market == "on-demand"), None)
    if on_demand is None:
        prices = [live.on_demand_usd_per_h] if live is not None else [offer.on_demand_usd_per_h for offer, _ in spots]
        on_demand = next(iter(prices), None)
    _assume_prices(basis, [offer for offer, _ in spots], on_demand)
    return places, on_demand


def _assume_prices(basis: Basis, spots: Sequence[Offer], on_demand: float | None) -> None:
    alone = "on-demand at a price that is not known" if on_demand is None else f"on-demand {money_text(on_demand)}/h"
    if not spots:
        basis.assume("machines", f"{alone}; such a machine is not lost", GIVEN)
        return
    first = spots[0]
    price = "an unknown price" if first.price_usd_per_h is None else f"{money_text(first.price_usd_per_h)}/h"
    zones = plural(len(spots), "zone")
    basis.assume("machines", f"spot {first.placement.shape} in {zones}, the first at {price}; {alone}", GIVEN)


def _spot_keys(run: Run, order: Order) -> list[OfferKey]:
    """Of the zones whose spot machines it may get, its own first. All are of one provider and shape."""
    live = run.live_attempt
    own = [] if live is None else [live.placement]
    others = [offer.placement for offer, _ in order] if run.policy.spot else []
    spots = dict.fromkeys(place for place in (*own, *others) if place.spot)
    kinds = [(place.provider, place.shape) for place in spots]
    return [offer_key(place) for place, kind in zip(spots, kinds, strict=True) if kind == kinds[0]]


def _of_spot(
    basis: Basis, keys: Sequence[OfferKey], world: World, history: History, now: float
) -> tuple[Lifetimes, float]:
    """(how long its spot machines live, at which rate one of its zones has some again): own calls with the prior."""
    if not keys:
        return Lifetimes(), PRIOR_RETURN_PER_S
    curve, lives = curve_of(history.calls, keys[0], now)
    first, second = (surviving(curve, hours * 3600.0) for hours in (1, 2))
    lost = f"{100 * (1.0 - first):.0f} % of spot machines are lost in their first hour, {100 * (first - second):.0f} %"
    by_own = f", by {plural(lives, 'own machine')} and those of others" if lives else ", then fewer"
    basis.assume("losses", f"{lost} in the second{by_own}", MEASURED if lives >= PRIOR_LIVES else ASSUMED)
    outlooks = [world.outlooks.get(key, NOTHING_KNOWN) for key in keys]
    rate, is_measured = fmean(each.return_per_s for each in outlooks), any(each.is_measured for each in outlooks)
    text = f"a zone has a machine in {100 * UP_SHARE:.0f} % of the time; without one, it has one again 10 minutes later"
    chance = f"{100 * (1.0 - exp(-600.0 * rate)):.0f} %{', by own requests' if is_measured else ''}"
    basis.assume("waits", f"{text} with a chance of {chance}", MEASURED if is_measured else ASSUMED)
    return Lifetimes(curve), rate


def _held(run: Run, now: float) -> HeldMachine | None:
    live = run.live_attempt
    if live is None:
        return None
    rung = Rung.SPOT if live.placement.spot else Rung.ON_DEMAND
    age_s = max(0.0, now - live.started_at - live.drift_s)
    return HeldMachine(rung, age_s, 0, None if live.training_at is not None else max(0.0, now - live.requested_at))
