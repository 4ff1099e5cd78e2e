"""What the table of causes needs to know of an end beyond its cause, and what may follow only once.

A repeat that no evidence speaks for is never added: without a verdict, or with one that is a guess, no condition of
this module holds, except those that make an end milder for the user's money.
"""

from __future__ import annotations

from supervisor.domain.causes import (
    DELIVERED_AGAIN,
    FIRST_SIGNAL,
    KNOWN_ERROR,
    LARGER_SHAPE,
    MACHINE_WAS_THERE,
    MORE_MEMORY,
    REPAIRED,
    Cause,
    CauseRule,
)
from supervisor.domain.diagnosis.verdict import Certainty, Retry, Verdict
from supervisor.domain.observation import World
from supervisor.domain.run import Refusal, Run
from supervisor.lifecycle.offers.ladder import ladder

KEPT = 8  # of the newest, in `Run.once`
ONCE = frozenset({DELIVERED_AGAIN, FIRST_SIGNAL, LARGER_SHAPE, REPAIRED})  # conditions that hold once


def conditions(
    run: Run, verdict: Verdict | None, step: int | None, world: World, now: float, *, freed: bool = False
) -> frozenset[str]:
    """The conditions of the table that hold for this end of the live attempt. `run`: before the end is recorded;
    `step`: of its newest checkpoint. `freed`: its agent has made space on the full disk."""
    attempt = run.attempt
    assert attempt is not None
    holds = {MACHINE_WAS_THERE}
    if attempt.placement.provider in world.memory_grows:
        holds.add(MORE_MEMORY)
    if verdict is None or verdict.certainty == Certainty.HINT:
        return frozenset(holds)
    is_certain = verdict.certainty == Certainty.CERTAIN
    if verdict.cause == Cause.HOST_OOM and larger_shapes(run, world, now):
        holds.add(LARGER_SHAPE)
    if verdict.cause == Cause.KILLED and is_certain:
        holds.add(FIRST_SIGNAL)
    if verdict.cause == Cause.DISK_FULL and freed:
        holds.add(REPAIRED)
    if verdict.cause == Cause.LAUNCH_REJECTED and verdict.retry == Retry.ONCE_AFTER_REPAIR:
        holds.add(DELIVERED_AGAIN)
    if verdict.cause == Cause.USER_ERROR and verdict.retry == Retry.NEVER and is_certain:
        holds.add(KNOWN_ERROR)
    return frozenset(each for each in holds if each not in ONCE or _key(each, step) not in run.once)


def with_once(run: Run, rule: CauseRule, step: int | None) -> tuple[str, ...]:
    """`Run.once` after an end by this row."""
    if rule.only_if not in ONCE:
        return run.once
    return tuple(dict.fromkeys((*run.once, _key(rule.only_if, step))))[-KEPT:]


def _key(condition: str, step: int | None) -> str:
    """A larger shape is tried once in a generation; the others once for each newest checkpoint."""
    return condition if step is None or condition == LARGER_SHAPE else f"{condition} @{step}"


def larger_shapes(run: Run, world: World, now: float) -> frozenset[str]:
    """The run's own shapes that cost more on demand than the one of its attempt, at the same provider: that price is
    the only measure of a shape's size that every provider gives."""
    attempt = run.attempt
    assert attempt is not None
    place = attempt.placement
    prices: dict[str, float] = {}
    for offer in ladder(run, world, now):
        price = offer.on_demand_usd_per_h
        if offer.placement.provider == place.provider and price is not None:
            prices[offer.placement.shape] = max(price, prices.get(offer.placement.shape, 0.0))
    had = prices.get(place.shape)
    return frozenset(shape for shape, price in prices.items() if had is not None and price > had)


def too_small(run: Run, world: World, now: float, detail: str) -> tuple[Refusal, ...]:
    """Refusals of every offer whose shape is not larger than the one that ran out of memory."""
    larger = larger_shapes(run, world, now)
    places = [offer.placement for offer in ladder(run, world, now) if offer.placement.shape not in larger]
    return tuple(
        Refusal(place.zone, place.shape, place.spot, now, Cause.HOST_OOM, detail, place.provider) for place in places
    )
