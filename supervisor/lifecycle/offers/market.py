"""Spot, on-demand or waiting, for one run: what the rule of rungs needs is put together here, and asked for.

With a deadline and with on-demand allowed, the goal of a run is the least money that keeps the deadline
(`optimize: cost`, which is also what an empty `optimize` means then). On-demand machines are then no part of its ladder
until the rule says so; its sentence is in the run's status, and the run is placed again at the moment that it names.
`optimize: deadline` asks for the earliest end: on-demand wherever spot cannot be had. `optimize: wait` is spot alone.

While nothing tells how much work is left, nobody can say what the deadline needs. On-demand then follows spot at once.

Whether spot can be had is not known before it was requested. So the rule is asked twice. If it took on-demand although
spot is up, on-demand comes first; if it took on-demand where spot is not up, on-demand comes after spot; else spot is
the only market.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from supervisor.domain.attempt import CREATE_SETTLED_S
from supervisor.domain.machines import Offer, offer_key
from supervisor.domain.observation import World
from supervisor.domain.policies import FOR_COST, FOR_SPOT, Policy
from supervisor.domain.run import Run
from supervisor.lifecycle.offers.paying import CHANGEOVER_S
from supervisor.lifecycle.rungs.numbers import FROZEN
from supervisor.lifecycle.rungs.rule import (
    Choice,
    Rung,
    Situation,
    choose,
    choose_return,
    flex_start_s,
    flex_start_within,
    life_s,
    waits_for_cheaper,
)
from supervisor.wording.forecast import leaving_s
from supervisor.wording.sessions import changeover_s, work_of

SPOT_ONLY, SPOT_FIRST, ON_DEMAND_FIRST = (True,), (True, False), (False, True)


@dataclass(frozen=True, slots=True)
class MarketRule:
    """`markets`: spot (True) and on-demand (False) in the order in which they are tried. `choice` None: the spec itself
    says to wait for spot."""

    markets: tuple[bool, ...]
    choice: Choice | None
    cheapest_usd_per_h: float | None = None

    @property
    def waits(self) -> bool:
        return self.markets == SPOT_ONLY

    @property
    def until(self) -> float | None:
        """When the deadline needs on-demand, if no spot machine is obtained until then; None = never."""
        return self.choice.until if self.waits and self.choice is not None else None

    @property
    def why(self) -> str:
        """One clause with the figures."""
        return "it waits for spot, as its spec says" if self.choice is None else self.choice.why

    def worth_taking(self, offers: list[Offer]) -> list[Offer]:
        """Without the spot offers of zones that cost far more than the cheapest, while waiting for that one is
        cheaper."""
        if not self.waits or self.choice is None or self.cheapest_usd_per_h is None:
            return offers
        situation, cheapest = self.choice.situation, self.cheapest_usd_per_h
        return [
            offer
            for offer in offers
            if not waits_for_cheaper(replace(situation, spot_usd_per_h=offer.price_usd_per_h), cheapest)
        ]


def goal_of(policy: Policy) -> str:
    """cost, deadline or wait; "" = the spec does not say, and there is nothing to choose between."""
    if policy.optimize or not policy.spot:
        return policy.optimize
    return FOR_COST if policy.allow_on_demand and policy.limits.deadline is not None else ""


def rule_of(run: Run, offers: Iterable[Offer], world: World, now: float) -> MarketRule | None:
    """None: nothing is held back. `offers`: all that the run may use."""
    policy, goal = run.policy, goal_of(run.policy)
    if goal == FOR_SPOT:
        return MarketRule(SPOT_ONLY, None)
    if goal != FOR_COST or not policy.allow_on_demand or policy.limits.deadline is None:
        return None
    situation = _situation(run, list(offers), world, now)
    if situation is None:
        return None
    with_spot, without_spot = choose(replace(situation, spot_is_up=True), FROZEN), choose(situation, FROZEN)
    if with_spot.rung is Rung.ON_DEMAND:
        return MarketRule(ON_DEMAND_FIRST, with_spot)
    if without_spot.rung is Rung.ON_DEMAND:
        return MarketRule(SPOT_FIRST, without_spot)
    return MarketRule(SPOT_ONLY, without_spot, situation.spot_usd_per_h)


def rule_while_held(
    run: Run, offers: Iterable[Offer], world: World, now: float, *, spot: Offer | None, unsaved_s: float
) -> Choice | None:
    """What the rule says to a run that trains; None: no rule of costs has placed it. `spot`: a spot machine that it can
    have now. `unsaved_s`: what it would train again after a change."""
    live, situation = run.live_attempt, _situation(run, list(offers), world, now)
    if live is None or situation is None or goal_of(run.policy) != FOR_COST:
        return None
    held = Rung.SPOT if live.placement.spot else Rung.ON_DEMAND
    situation = replace(situation, held=held, left_s=situation.left_s + unsaved_s, spot_is_up=held is Rung.SPOT)
    if held is Rung.SPOT or spot is None:
        return choose(situation, FROZEN)
    up = replace(situation, spot_is_up=True, spot_usd_per_h=spot.price_usd_per_h)
    cheapest = situation.spot_usd_per_h
    if cheapest is not None and waits_for_cheaper(replace(up, held=None), cheapest):
        return choose(situation, FROZEN)  # without its machine it would not take that one
    return choose_return(up, FROZEN) or choose(situation, FROZEN)


def flex_wait_s(run: Run, rule: MarketRule | None, world: World, now: float) -> float:
    """For how long a flex-start request may wait now; 0 = not at all. Where nothing else comes, it is the run's wait
    for capacity and keeps its limit. One whose machines are kept, or whose spec says that it waits for spot, requests
    none."""
    policy = run.policy
    if not policy.allow_flex_start or not policy.spot or policy.keep.machine or goal_of(policy) == FOR_SPOT:
        return 0.0
    if rule is None or rule.choice is None:
        # On-demand is not held back: it would be requested first. With a deadline, nobody knows what may wait.
        return 0.0 if policy.allow_on_demand else flex_start_within(_patience_s(run, now))
    return flex_start_s(rule.choice, _withdrawal_s(world)) if rule.waits else 0.0


def _patience_s(run: Run, now: float) -> float:
    """How much longer it may wait for capacity."""
    since = run.waiting.since
    return run.policy.limits.wait_for_capacity_s - (0.0 if since is None else now - since)


def flex_wait_is_over(rule: MarketRule | None, world: World, now: float) -> bool:
    """Whether a request that waits must be withdrawn now, so that on-demand is taken at the rule's last moment. Where
    no rule is known it is not: its own end bounds it."""
    if rule is None or rule.choice is None:
        return False
    return not rule.waits or (rule.until is not None and now >= rule.until - _withdrawal_s(world))


def _withdrawal_s(world: World) -> float:
    """From the end of a wait until another machine can be requested, at the most."""
    return CREATE_SETTLED_S + 2 * world.knobs.poll_interval_s


def reason_text(rule: MarketRule | None, *, spot: bool) -> str:
    """Why a run requests on-demand, for the history; "" = it requests spot, or no rule was asked."""
    return "" if rule is None or spot else rule.why


def _situation(run: Run, offers: list[Offer], world: World, now: float) -> Situation | None:
    """Of a run without a machine, where spot cannot be had. None = nobody knows how much work is left, or there are not
    both kinds of machines."""
    if run.policy.limits.deadline is None or len({offer.placement.spot for offer in offers}) < 2:
        return None
    providers = {offer.placement.provider for offer in offers}
    works_s = [work_of(run, provider, now).left_s for provider in providers]
    known_s = [left_s for left_s in works_s if left_s is not None]
    if not known_s:
        return None
    return Situation(
        now=now,
        left_s=max(known_s),
        deadline=run.policy.limits.deadline - world.wall_ahead_s - leaving_s(run),
        changeover_s=worst_changeover_s(run, providers),
        tick_s=world.knobs.poll_interval_s,
        held=None,
        spot_is_up=False,
        spot_usd_per_h=_least(offers, spot=True),
        on_demand_usd_per_h=_least(offers, spot=False),
        spot_life_s=_spot_life_s(run, offers, world),
    )


def _spot_life_s(run: Run, offers: Iterable[Offer], world: World) -> float:
    """How long spot machines live in the zones that it may use: all that runs of the cell had there, as far as they are
    remembered. Where none is, its own attempts say it."""
    nearby = [world.outlooks.get(offer_key(offer.placement)) for offer in offers if offer.placement.spot]
    seen = [outlook for outlook in nearby if outlook is not None and outlook.lives]
    if not seen:
        return life_s(run.training_s, run.counters.preemptions)
    return life_s(sum(outlook.held_s for outlook in seen), sum(outlook.lost for outlook in seen))


def worst_changeover_s(run: Run, providers: Iterable[str]) -> float:
    """What the rule counts for a changeover on one of them, with the steps that are repeated."""
    starts_s = [changeover_s(run, provider) or 0.0 for provider in providers]
    return max(CHANGEOVER_S, *starts_s) + (run.policy.expect_checkpoint_every_s or 0.0)


def _least(offers: Iterable[Offer], *, spot: bool) -> float | None:
    prices = [offer.price_usd_per_h for offer in offers if offer.placement.spot is spot]
    return min((price for price in prices if price is not None), default=None)
