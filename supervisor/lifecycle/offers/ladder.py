"""The ladder of a run: every offer that it may use, in the order in which it prefers them.

Other zones of the shape come first, then the next shape, then on-demand where it is allowed, then the next of the run's
providers. A provider that takes money, after one that lends its machines for nothing, comes when the deadline needs it
(`paying`). With a deadline, on-demand comes when the deadline needs it (`market`), after the spot machines of every
provider. A policy may escalate: after some preemptions, or near the deadline, the run begins further down the ladder.
Only the times of its preemptions are stored. What follows from them is computed for each placement, so a run returns
to its first choice when the preemptions lie far enough behind.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from supervisor.domain.machines import Offer
from supervisor.domain.observation import World
from supervisor.domain.policies import FOR_COST, Policy
from supervisor.domain.run import Run
from supervisor.lifecycle.offers.market import MarketRule, flex_wait_s, goal_of, rule_of, rule_while_held
from supervisor.lifecycle.offers.paying import Ruling, ruling
from supervisor.lifecycle.rungs.rule import Choice

NEXT_SHAPE, ON_DEMAND, NEXT_PROVIDER = "next_shape", "on_demand", "next_provider"
PREEMPTIONS_KEPT = 32


def ladder(run: Run, world: World, now: float) -> list[Offer]:
    """Every offer that this run may use, whatever the state of its zone."""
    names, rule = _providers_now(run, world, now), market_rule(run, world, now)
    if rule is None:
        markets = _markets_of(run, now)
        offers = [offer for name in names for offer in _rungs(run, name, world, markets, now)]
        return offers + _flex_start(run, names, world, rule, now)
    offers = [offer for spot in rule.markets for name in names for offer in _rungs(run, name, world, (spot,), now)]
    return rule.worth_taking(offers) + _flex_start(run, names, world, rule, now)


def _flex_start(run: Run, names: Sequence[str], world: World, rule: MarketRule | None, now: float) -> list[Offer]:
    """After everything else: these requests wait where the run would do nothing."""
    if not flex_wait_s(run, rule, world, now):
        return []
    return [offer for name in names for offer in _rungs(run, name, world, (False,), now, flex=True)]


def market_rule(run: Run, world: World, now: float) -> MarketRule | None:
    """None: no rule of costs holds on-demand machines back, or the policy itself asks for on-demand first."""
    if _markets_of(run, now)[0] is False:
        return None
    return rule_of(run, _both_markets(run, world, now), world, now)


def rule_in_place(run: Run, world: World, now: float, *, spot: Offer | None, unsaved_s: float) -> Choice | None:
    """What the rule says to a run that trains, see `rule_while_held`."""
    if _markets_of(run, now)[0] is False:
        return None
    return rule_while_held(run, _both_markets(run, world, now), world, now, spot=spot, unsaved_s=unsaved_s)


def _both_markets(run: Run, world: World, now: float) -> list[Offer]:
    return [offer for name in providers_of(run, now) for offer in _rungs(run, name, world, (True, False), now)]


def _providers_now(run: Run, world: World, now: float) -> tuple[str, ...]:
    """Those that it may use now, in the order in which they are tried."""
    names, rule = providers_of(run, now), pay_rule(run, world, now)
    if rule is None:
        return names
    others = tuple(name for name in names if name not in rule.payees)
    return (*(name for name in names if name in rule.payees), *others) if rule.pays else others


def pay_rule(run: Run, world: World, now: float) -> Ruling | None:
    """None: no rule of the ladder holds a paid provider back, or the policy itself has moved the run to the next
    provider."""
    return None if _provider_steps(run, now) else ruling(run, world, now)


def request_key(run: Run) -> tuple[object, ...]:
    """Everything that decides which offers a run may use. A run that escalates is like no other."""
    policy = run.policy
    near_deadline = (policy.on_demand_before_deadline_s, policy.next_provider_before_deadline_s)
    if policy.escalate_after or any(left_s is not None for left_s in near_deadline):
        return (run.key,)
    decides = len(run.providers) > 1 or goal_of(policy) == FOR_COST  # its own work decides whether it pays
    if decides and policy.limits.deadline is not None:
        return (run.key,)
    place = None if run.kept is None else run.kept[1].placement  # such a run requests nothing else
    return (
        run.providers,
        policy.pay,
        policy.zones,
        policy.shapes,
        policy.spot,
        policy.allow_on_demand,
        policy.allow_flex_start,
        policy.keep.machine,
        policy.optimize,
        policy.limits.budget_usd is None,
        run.refusals,
        place,
    )


def _rungs(
    run: Run, provider: str, world: World, markets: tuple[bool, ...], now: float, *, flex: bool = False
) -> list[Offer]:
    """The offers of one provider. It may prefer other zones for each kind of machine; the run's own order of zones
    comes before that. A budget cannot end what has no price, so a price that was lost since the submit counts."""
    zones, shapes = bounds(run.policy, provider, world.offers)
    by_kind: dict[tuple[bool, str], dict[str, Offer]] = {}
    for offer in world.offers.get(provider, ()):
        if offer.price_usd_per_h is None and run.policy.limits.budget_usd is not None:
            continue
        if offer.placement.flex is not flex:
            continue
        by_kind.setdefault((offer.placement.spot, offer.placement.shape), {})[offer.placement.zone] = offer
    rungs = []
    for spot in markets:
        for shape in _shapes_of(run, shapes, now):
            by_zone = by_kind.get((spot, shape), {})
            rungs += [by_zone[zone] for zone in zones or by_zone if zone in by_zone]
    return rungs


def bounds(
    policy: Policy, provider: str, offers: Mapping[str, Sequence[Offer]]
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(zones, shapes) that a run requests from one of its providers; no zones = all. `offers`: those of all its
    providers. Names that only another provider knows do not bind this one."""
    own = [offer.placement for offer in offers.get(provider, ())]
    offered = dict.fromkeys(place.shape for place in own)
    zones, shapes = policy.zones, policy.shapes
    if len(policy.providers) > 1:
        others = [name for name in policy.providers if name != provider]
        elsewhere = [offer.placement for name in others for offer in offers.get(name, ())]
        zones = _binding(zones, {place.zone for place in own}, {place.zone for place in elsewhere})
        shapes = _binding(shapes, offered, {place.shape for place in elsewhere})
    return zones, shapes or tuple(offered)[:1]


def _binding(requested: Sequence[str], own: Collection[str], elsewhere: Collection[str]) -> tuple[str, ...]:
    known_here = tuple(name for name in requested if name in own)
    return known_here or tuple(name for name in requested if name not in elsewhere)


# --- escalation -------------------------------------------------------------------------------------------------------


def providers_of(run: Run, now: float) -> tuple[str, ...]:
    """The run's providers in the order in which they are tried."""
    return _rotated(run.providers, _provider_steps(run, now))


def _provider_steps(run: Run, now: float) -> int:
    steps = _steps(run, now) if run.policy.escalate_to == NEXT_PROVIDER else 0
    return max(steps, 1) if _is_near_deadline(run, run.policy.next_provider_before_deadline_s, now) else steps


def _shapes_of(run: Run, shapes: tuple[str, ...], now: float) -> tuple[str, ...]:
    return _rotated(shapes, _steps(run, now) if run.policy.escalate_to == NEXT_SHAPE else 0)


def _markets_of(run: Run, now: float) -> tuple[bool, ...]:
    """Spot (True) and on-demand (False) in the order in which they are tried."""
    policy = run.policy
    if not policy.spot:
        return (False,)
    escalated = policy.escalate_to == ON_DEMAND and _steps(run, now) > 0
    if escalated or _is_near_deadline(run, policy.on_demand_before_deadline_s, now):
        return (False, True)
    return (True, False) if policy.allow_on_demand else (True,)


def _rotated(names: tuple[str, ...], steps: int) -> tuple[str, ...]:
    """`steps` names further, at most to the last; the names before it follow at the end."""
    first = max(0, min(steps, len(names) - 1))
    return (*names[first:], *names[:first])


def escalation_text(run: Run, now: float) -> str:
    """Why the run begins further down its ladder, for the history; "" = it does not."""
    policy = run.policy
    limits_s = {
        "on-demand first": policy.on_demand_before_deadline_s if policy.spot else None,
        "the next provider first": policy.next_provider_before_deadline_s,
    }
    near = [change for change, left_s in limits_s.items() if _is_near_deadline(run, left_s, now)]
    if near:
        return f"{' and '.join(near)}, because its deadline is near"
    if _steps(run, now) == 0 or (policy.escalate_to == ON_DEMAND and not policy.spot):
        return ""
    names = {ON_DEMAND: "on-demand", NEXT_SHAPE: "the next shape", NEXT_PROVIDER: "the next provider"}
    count = len(recent(run.counters.preempted_at, policy.escalate_window_s, now))
    window_h = policy.escalate_window_s / 3600
    return f"{names[policy.escalate_to]} first, after {count} preemptions within {window_h:g} h"


def with_preemption(preempted_at: tuple[float, ...], policy: Policy, now: float) -> tuple[float, ...]:
    """The times to store after one more preemption; none where the policy does not escalate."""
    kept = (*recent(preempted_at, policy.escalate_window_s, now), now)
    return kept[-PREEMPTIONS_KEPT:] if policy.escalate_after > 0 else ()


def _is_near_deadline(run: Run, left_s: float | None, now: float) -> bool:
    deadline = run.policy.limits.deadline
    return left_s is not None and deadline is not None and deadline - now <= left_s


def _steps(run: Run, now: float) -> int:
    """How many times the preemptions of the window reach the number that the policy allows."""
    policy = run.policy
    preempted_at = recent(run.counters.preempted_at, policy.escalate_window_s, now)
    return len(preempted_at) // policy.escalate_after if policy.escalate_after > 0 else 0


def recent(times: tuple[float, ...], window_s: float, now: float) -> tuple[float, ...]:
    """Those within the window. A time ahead of now was written before the wall clock was set back: it is left out."""
    return tuple(at for at in times if now - window_s < at <= now)
