"""What the table of causes needs to know of an end beyond its cause, and what may follow only once.

A repeat that no evidence speaks for is never added: without a verdict, or with one that is a guess, no condition of
this module holds, except those that make an end milder for the user's money.
"""

from __future__ import annotations

from supervisor.contract import beat_telemetry
from supervisor.domain.causes import (
    DELIVERED_AGAIN,
    DRIVER_MISFIT,
    EXPLAINED,
    FIRST_SIGNAL,
    KNOWN_ERROR,
    LARGER_SHAPE,
    MACHINE_WAS_THERE,
    MAY_END,
    MORE_MEMORY,
    OTHER_DRIVER,
    REPAIRED,
    Cause,
    CauseRule,
)
from supervisor.domain.diagnosis.verdict import Certainty, Retry, Verdict
from supervisor.domain.events import Event, EventKind
from supervisor.domain.observation import World
from supervisor.domain.policies import leaving_s
from supervisor.domain.run import Refusal, Run
from supervisor.lifecycle.offers.ladder import ladder
from supervisor.wording.figures import age_text, gib_text

KEPT = 8  # of the newest, in `Run.once`
ONCE = frozenset({DELIVERED_AGAIN, FIRST_SIGNAL, LARGER_SHAPE, OTHER_DRIVER, REPAIRED})  # conditions that hold once
IN_GENERATION = frozenset({LARGER_SHAPE, OTHER_DRIVER})  # of these; the others once for each newest checkpoint


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
    if verdict.cause == Cause.KILLED and verdict.retry == Retry.FREE_SAME:
        holds |= {FIRST_SIGNAL, EXPLAINED} if is_certain else {FIRST_SIGNAL}
    if verdict.cause == Cause.DISK_FULL:
        holds |= {REPAIRED, EXPLAINED} if freed else {EXPLAINED}
    if verdict.cause == Cause.GPU_UNAVAILABLE and verdict.retry == Retry.NEVER and is_certain:
        holds |= {OTHER_DRIVER, DRIVER_MISFIT}
    if verdict.cause == Cause.LAUNCH_REJECTED and verdict.retry == Retry.ONCE_AFTER_REPAIR:
        holds.add(DELIVERED_AGAIN)
    if verdict.cause == Cause.SETUP_FAILED and verdict.goes_on:
        holds.add(MAY_END)
    is_own = verdict.cause in (Cause.USER_ERROR, Cause.SETUP_FAILED)
    if is_own and verdict.retry == Retry.NEVER and verdict.goes_on is False:
        holds.add(KNOWN_ERROR)
    return frozenset(each for each in holds if each not in ONCE or _key(each, step) not in run.once)


def with_once(run: Run, rule: CauseRule, step: int | None) -> tuple[str, ...]:
    """`Run.once` after an end by this row."""
    if rule.only_if not in ONCE:
        return run.once
    return tuple(dict.fromkeys((*run.once, _key(rule.only_if, step))))[-KEPT:]


def _key(condition: str, step: int | None) -> str:
    return condition if step is None or condition in IN_GENERATION else f"{condition} @{step}"


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


def used_memory(run: Run, cause: Cause, measured: float | None) -> float | None:
    """The most memory of the live attempt that ended as host_oom, in bytes: as the platform has measured it, else as
    its agent read it last. Of any other end: as it was known before."""
    if cause != Cause.HOST_OOM:
        return run.counters.memory_bytes
    return measured if measured is not None else _read_memory(run)


def _read_memory(run: Run) -> float | None:
    attempt, pulse = run.attempt, run.pulse
    if attempt is None or pulse is None or pulse.launch_id != attempt.launch_id:
        return None
    telemetry = beat_telemetry.decode(pulse.telemetry)
    return telemetry.cgroup.memory_bytes if telemetry is not None and telemetry.cgroup is not None else None


def changes_of_the_next(
    before: Run, after: Run, measured: float | None, rule: CauseRule, world: World
) -> tuple[Event, ...]:
    """What the next machine of this provider gets more of: the repairs that its launch makes by what is on record.
    `before`: with the live attempt that ends; `measured`: of its memory, by the platform."""
    attempt = before.attempt
    assert attempt is not None
    provider, texts = attempt.placement.provider, []
    if rule.only_if == MORE_MEMORY:
        used = after.counters.memory_bytes
        than = "the settings gave this one; nobody has measured what it used"
        if used is not None:
            who = "its agent read last" if measured is None else "the platform measured"
            than = f"the {gib_text(used)} GiB that {who}"
        texts.append((f"The next machine gets at least a fifth more memory than {than}.", {"memory_bytes": used}))
    least_s, save_s = world.warnings_s.get(provider), after.files.checkpoint_s
    if least_s is not None:
        wanted_s, had_s = (max(least_s, leaving_s(run.files.checkpoint_s)) for run in (after, before))
        is_cut_off = after.counters.timed_out > before.counters.timed_out
        if is_cut_off or wanted_s > had_s:
            why = "the time limit cut this one off" if is_cut_off else f"a checkpoint takes {age_text(save_s or 0.0)}"
            text = f"The next machine is warned earlier before its end, because {why}."
            texts.append((text, {"save_s": save_s}))
    return tuple(Event(EventKind.REPAIRED, text, data=data) for text, data in texts)
