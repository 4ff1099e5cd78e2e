"""A run that trains changes its rung at a verified checkpoint, only where the rule says so and spot is probably up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from supervisor.contract.baton import Baton, Holder, Pointer
from supervisor.domain.attempt import Moving
from supervisor.domain.causes import Cause
from supervisor.domain.events import EventKind
from supervisor.domain.machines import Offer, Outlook, Placement, ZoneRecord, offer_key
from supervisor.domain.observation import MACHINES, Observation, Seen, Unknown, World
from supervisor.domain.policies import KeepRule, Limits, Policy
from supervisor.domain.run import Run, StopRequest
from supervisor.domain.status import Status
from supervisor.lifecycle.decide import decide
from supervisor.lifecycle.decision import Decision, new_event
from supervisor.lifecycle.living.moving import Move
from supervisor.lifecycle.offers.ladder import ladder, market_rule
from supervisor.lifecycle.offers.paying import CHANGEOVER_S
from supervisor.lifecycle.phases import changing, running
from supervisor.lifecycle.phases.short_way import trains_on
from supervisor.lifecycle.rungs.numbers import FROZEN
from tests.lifecycle.sample_runs import NOW, WORLD, H, attempt, beat_of, machine_of, pulse, run_in
from tests.properties import examples

TOTAL, STEP = 100_000, 5_000
SPOT = Placement("gce", "us-east1", "us-east1-b", "g2-standard-8", True)
ON_DEMAND = replace(SPOT, zone="us-east1-d", spot=False)
OFFERS = {"gce": (Offer(SPOT, 1.0, 3.0), Offer(ON_DEMAND, 3.0, 3.0))}
LIVE = attempt(
    placement=ON_DEMAND, price_usd_per_h=3.0, step_from=0, requested_at=NOW - 5300, started_at=NOW - 5290,
    training_at=NOW - STEP,
)  # fmt: skip
UP = replace(
    WORLD, offers=OFFERS, sources={"gce": MACHINES}, outlooks={offer_key(SPOT): Outlook(6000.0, 2e-4, up_at=NOW)}
)
COOLING = {offer_key(SPOT): ZoneRecord(1, NOW + 300, "no_capacity", "none", stocked_out_at=NOW - 60)}
DOWN = {offer_key(SPOT): ZoneRecord(1, NOW - 1, "no_capacity", "none", stocked_out_at=NOW - 600)}


def trains(left_h: float = 6.0, slack_h: float = 3.0, live: Any = LIVE, **fields: Any) -> Run:
    """One step a second; a new checkpoint, and 120 s that are kept for leaving."""
    total = STEP + int(left_h * H)
    policy = Policy(
        zones=("us-east1-b", "us-east1-d"), shapes=("g2-standard-8",), allow_on_demand=True,
        limits=Limits(deadline=NOW + (left_h + slack_h) * H + 120.0),
    )  # fmt: skip
    told = pulse(
        step=STEP, total=total, steps_per_s=1.0, checkpoint_step=STEP - 10, checkpoint_at=NOW - 10,
        first_progress_at=NOW - 5000, progress_at=NOW - 8,
    )  # fmt: skip
    values = {"attempt": live, "pulse": told, "policy": policy, "reported": True, **fields}
    return run_in(Status.RUNNING, **values)


def saved_at(at: float) -> Run:
    run = trains()
    assert run.pulse is not None
    return replace(run, pulse=replace(run.pulse, checkpoint_at=at))


def with_policy(**fields: Any) -> Run:
    run = trains()
    return replace(run, policy=replace(run.policy, **fields))


def baton(step: int | None = STEP - 10, launch_id: str = "1.4.1") -> Baton:
    pointer = None if step is None else Pointer(step, "p", ())
    return Baton("the-supervisor", 1, None, Holder(4, launch_id, "m", False), pointer)


def seen(run: Run, **parts: Any) -> Observation:
    assert run.pulse is not None
    assert run.live_attempt is not None
    told: dict[str, Any] = {"step": run.pulse.step, "total": run.pulse.total, "steps_per_s": 1.0}
    beat = beat_of(run.live_attempt, run.pulse.sequence + 1, checkpoint_step=run.pulse.checkpoint_step, **told)
    base = Observation(Seen(machine_of(run.live_attempt), 1.0, "listing"), Seen(beat, 5.0, "push"), baton=Seen(baton()))
    return replace(base, **parts)


def decided(run: Run, world: World = UP, **parts: Any) -> Decision:
    return decide(run, seen(run, **parts), world, NOW)


def leaves(run: Run, world: World = UP, **parts: Any) -> bool:
    return decided(run, world, **parts).run.live_attempt is None


def test_it_goes_back_to_spot_at_a_checkpoint_and_says_why_with_the_figures() -> None:
    decision = decided(trains())
    after = decision.run
    assert after.attempt is not None
    assert (after.status, after.attempt.cause) == (Status.RECOVERING, Cause.SUPERSEDED)
    assert after.moving == Moving(rung_at=NOW, refused=1)
    assert after.counters == trains().counters, "that counts as no failure"
    [machine] = after.retiring
    assert machine.until == NOW + WORLD.knobs.notice_overlap_s, "it goes on until the next one claims the run"
    [event] = decision.events
    why = "moved at checkpoint 4,990: spot is the cheapest ($1.00 an hour, on-demand $3.00): slack "
    assert f"{why}3 h, remaining 5 h 59 min. " in event.text
    assert [offer.placement.spot for offer in ladder(after, UP, NOW)] == [True]


def test_it_does_not_leave_for_a_flex_start_request() -> None:
    """Where every spot zone refuses, such a request would wait without a machine."""
    flex = replace(ON_DEMAND, flex=True)
    outlooks = {offer_key(flex): UP.outlooks[offer_key(SPOT)]}
    offers = {"gce": (*OFFERS["gce"], Offer(flex, 1.0, 3.0))}
    world = replace(UP, zones=COOLING, offers=offers, outlooks=outlooks)
    assert not leaves(with_policy(allow_flex_start=True), world)


def test_it_does_not_leave_for_a_dear_zone_in_which_it_would_then_wait_for_a_cheaper_one() -> None:
    """Broken variant: it left its machine, and placing took no zone at twice the price of the cheapest."""
    dear = Offer(replace(SPOT, zone="us-east1-d"), 1.8, 3.0)
    outlooks = {key: UP.outlooks[offer_key(SPOT)] for key in (offer_key(SPOT), offer_key(dear.placement))}
    world = replace(UP, zones=COOLING, offers={"gce": (*OFFERS["gce"], dear)}, outlooks=outlooks)
    alike = replace(world, offers={"gce": (*OFFERS["gce"], replace(dear, price_usd_per_h=1.4))})
    assert not leaves(trains(), world)
    assert leaves(trains(), alike)
    assert any(offer.placement == dear.placement for offer in ladder(decided(trains(), alike).run, alike, NOW))


def test_what_was_found_in_the_same_tick_is_in_the_history(monkeypatch: pytest.MonkeyPatch) -> None:
    found = new_event(EventKind.FINDING, "it moves at its next checkpoint")
    monkeypatch.setattr(running, "follow_slow", lambda run, *_: Move(run, (found,)))
    decision = decided(trains())
    assert decision.run.live_attempt is None
    assert decision.events[0].text == found.text


def test_it_leaves_spot_near_the_deadline_and_then_stays() -> None:
    live = replace(LIVE, placement=SPOT)
    assert not leaves(trains(live=live)), "a healthy spot machine is left for no price"
    assert leaves(trains(slack_h=(600 + 5) / H, live=live)), "after the next loss it would be too late"
    assert not leaves(trains(slack_h=300 / H, live=live)), "only the machine that it has ends in time"
    after = decided(trains(slack_h=(600 + 5) / H, live=live)).run
    assert ladder(after, UP, NOW)[0].placement.spot is False
    assert not leaves(trains(slack_h=(600 + 5) / H))


STAYS: dict[str, Run] = {
    "the user asked for on-demand": with_policy(spot=False, optimize="cost"),
    "the spec says the earliest end": with_policy(optimize="deadline"),
    "nothing is due": with_policy(limits=Limits()),
    "its escalation asks for on-demand": with_policy(on_demand_before_deadline_s=20 * H),
    "its machine is kept": with_policy(keep=KeepRule(machine=True)),
    "it has just begun to train": with_policy(min_run_s=8000.0),
    "it has just changed": trains(moving=Moving(rung_at=NOW - FROZEN.change_pause_s + 1)),
    "little slack": trains(slack_h=0.3),
    "the work is nearly done": trains(left_h=0.2),
    "the deadline is lost": trains(slack_h=-1.0),
    "a stop": trains(stop=StopRequest("ann", NOW)),
}


@pytest.mark.parametrize("why", STAYS)
def test_it_stays(why: str) -> None:
    ended = decided(STAYS[why]).run.attempt
    assert ended is not None
    assert ended.cause != Cause.SUPERSEDED


def test_an_old_pause_is_over() -> None:
    assert leaves(trains(moving=Moving(rung_at=NOW - FROZEN.change_pause_s)))


@pytest.mark.parametrize(
    "world",
    [
        replace(UP, zones=COOLING),
        replace(UP, zones=DOWN, outlooks={}),
        replace(UP, unread=frozenset({UP.zone_of(SPOT)})),
        replace(UP, offers={"gce": (Offer(ON_DEMAND, 3.0, 3.0),)}),
        replace(UP, offers={"gce": (Offer(SPOT, None, 3.0), Offer(ON_DEMAND, 3.0, 3.0))}),
    ],
)
def test_a_machine_is_not_given_back_where_spot_is_probably_not_up(world: World) -> None:
    assert not leaves(trains(), world)


@pytest.mark.parametrize(
    "parts",
    [
        {"machine": Unknown("not read")},
        {"beat": Unknown("not read")},
        {"baton": Unknown("not read")},
        {"baton": Seen(baton(step=STEP - 300))},
        {"baton": Seen(baton(launch_id="1.5.1"))},
        {"baton": Seen(baton(step=None))},
    ],
)
def test_without_a_reading_or_a_verified_checkpoint_it_stays(parts: dict[str, Any]) -> None:
    """Broken variant: the agent's own word for its checkpoint was enough."""
    assert not leaves(trains(), **parts)


def test_an_old_checkpoint_is_no_moment_to_leave() -> None:
    assert leaves(saved_at(NOW - changing.SAVED_S))
    assert not leaves(saved_at(NOW - changing.SAVED_S - 1))
    assert not leaves(saved_at(NOW + 60)), "a wrong clock wrote it"


def test_the_short_way_leaves_it_to_the_rules() -> None:
    run = trains()
    assert trains_on(run, replace(seen(run), baton=Unknown("")), UP, NOW) is None


def _in_time_though_refused(run: Run, world: World) -> None:
    """It left for spot: every request for spot is refused from now on, and on-demand still ends in time."""
    deadline = run.policy.limits.deadline
    assert deadline is not None
    after = decided(run, world).run
    if after.live_attempt is not None:
        return
    refusing = replace(UP, zones={offer_key(SPOT): ZoneRecord(1, NOW + 1e6, "no_capacity", "none", stocked_out_at=NOW)})
    total = run.pulse.total if run.pulse is not None else None
    assert total is not None
    now = NOW + FROZEN.refusals_s  # the requests in vain; no tick has placed it meanwhile
    rule = market_rule(after, refusing, now)
    assert rule is not None
    now = max(now, rule.until or now) + refusing.knobs.poll_interval_s  # the tick that notices it is late
    assert any(not offer.placement.spot for offer in ladder(after, refusing, now))
    ends_at = now + CHANGEOVER_S + (total - STEP + 10)
    assert ends_at <= deadline - 120.0 + 1.0, (now - NOW, deadline - ends_at)


@settings(max_examples=examples(60, 600), deadline=None)
@given(st.floats(0.1, 20.0), st.floats(-0.5, 8.0), st.floats(0.1, 5.0))
def test_a_run_that_left_keeps_its_deadline_though_spot_refuses_everywhere(
    left_h: float, slack_h: float, usd: float
) -> None:
    offers = {"gce": (Offer(SPOT, usd, 3.0), Offer(ON_DEMAND, 3.0, 3.0))}
    _in_time_though_refused(trains(left_h=left_h, slack_h=slack_h), replace(UP, offers=offers))


Broken = Callable[..., Any]


@pytest.mark.parametrize(
    ("name", "broken", "run", "world", "parts"),
    [
        ("chance_at", lambda *_: 1.0, trains(), replace(UP, zones=DOWN, outlooks={}), {}),
        ("_is_verified", lambda *_: True, trains(), UP, {"baton": Seen(baton(step=STEP - 300))}),
        ("may_yield", lambda *_: True, STAYS["its machine is kept"], UP, {}),
        ("_unsaved_s", lambda *_: 0.0, saved_at(1.0), UP, {}),
    ],
)
def test_without_one_of_its_conditions_it_would_leave(
    monkeypatch: pytest.MonkeyPatch, name: str, broken: Broken, run: Run, world: World, parts: dict[str, Any]
) -> None:
    assert not leaves(run, world, **parts)
    monkeypatch.setattr(changing, name, broken)
    assert leaves(run, world, **parts)
