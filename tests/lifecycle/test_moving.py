"""A run that names several providers: the first comes first, and the next one where it has no capacity."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.domain.actions import Launch
from supervisor.domain.causes import Cause
from supervisor.domain.machines import Capacity, Offer, OfferKey, Placement, ZoneRecord, offer_key
from supervisor.domain.observation import Absent, Observation, World, sources_of
from supervisor.domain.policies import Knobs, Limits, Policy
from supervisor.domain.run import Counters, Refusal, Run
from supervisor.domain.status import Status
from supervisor.lifecycle.decide import decide
from supervisor.lifecycle.offers.choosing import NoOffer, choose, queue
from supervisor.lifecycle.offers.ladder import escalation_text, providers_of
from supervisor.lifecycle.offers.queueing import place_of, with_queue
from tests.lifecycle.sample_runs import attempt, open_try, run_in
from tests.lifecycle.worlds import NOW

CLOUD, LAB = "cloud", "lab"
SHARED = "east"  # a zone that both have


def offers(provider: str, shape: str, *zones: str) -> tuple[Offer, ...]:
    return tuple(
        Offer(Placement(provider, "r", zone, shape, spot), 0.1, 0.3) for spot in (True, False) for zone in zones
    )


OFFERS = {CLOUD: offers(CLOUD, "t4", "west", SHARED), LAB: offers(LAB, "cpu", "bench", SHARED)}
BOTH = Policy(providers=(CLOUD, LAB))
COOLING = ZoneRecord(1, NOW + 100.0, Cause.NO_CAPACITY, "none left")


def world(zones: dict[OfferKey, ZoneRecord] | None = None, **fields: object) -> World:
    base = World(Knobs("s"), offers=OFFERS, zones=zones or {}, sources=sources_of([CLOUD, LAB]))
    return replace(base, **fields)


def run_with(policy: Policy = BOTH, **fields: object) -> Run:
    return run_in(Status.RECOVERING, policy=policy, provider=CLOUD, **fields)


def cooling(*providers: str) -> dict[OfferKey, ZoneRecord]:
    return {offer_key(offer.placement): COOLING for name in providers for offer in OFFERS[name]}


def requested(run: Run, seen: World, now: float = NOW) -> tuple[str, str]:
    choice = choose(run, seen, now)
    assert isinstance(choice, Offer), choice
    return choice.placement.provider, choice.placement.zone


# --- the ladder ---------------------------------------------------------------------------------------------------


def test_the_next_provider_follows_where_every_offer_of_the_first_cools() -> None:
    assert requested(run_with(), world()) == (CLOUD, "west")
    assert requested(run_with(), world(cooling(CLOUD))) == (LAB, "bench")
    assert requested(run_with(), world(cooling(CLOUD)), COOLING.cool_until) == (CLOUD, "west"), "it returns by itself"
    neither = choose(run_with(), world(cooling(CLOUD, LAB)), NOW)
    assert isinstance(neither, NoOffer)
    assert neither.until == COOLING.cool_until


def test_the_next_provider_follows_where_the_first_cannot_be_read() -> None:
    blind = world(unread=frozenset({f"west of {CLOUD}", f"{SHARED} of {CLOUD}"}))
    assert requested(run_with(), blind) == (LAB, "bench")


def test_the_next_provider_follows_where_our_own_machines_fill_the_first() -> None:
    assert requested(run_with(), world(capacities={CLOUD: Capacity(machines=0)})) == (LAB, "bench")


def test_the_zone_just_lost_comes_last_at_its_own_provider_alone() -> None:
    lost = attempt(zone="west")
    run = run_with(attempt=replace(lost, placement=replace(lost.placement, provider=CLOUD)), avoid_zone="west")
    assert requested(run, world()) == (CLOUD, SHARED)
    there = replace(run, attempt=replace(lost, placement=replace(lost.placement, provider=LAB)))
    assert requested(there, world()) == (CLOUD, "west"), "it was lost elsewhere"
    alone = {CLOUD: offers(CLOUD, "t4", "west"), LAB: OFFERS[LAB]}
    assert requested(run, world(offers=alone)) == (CLOUD, "west"), "one loss moves no run to another provider"


def test_names_of_another_provider_do_not_restrict_this_one() -> None:
    named = run_with(replace(BOTH, zones=("west",), shapes=("t4",)))
    assert requested(named, world(cooling(CLOUD))) == (LAB, "bench")
    both = run_with(replace(BOTH, zones=("west", SHARED)))
    assert requested(both, world(cooling(CLOUD))) == (LAB, SHARED), "its own zone name restricts it"
    unknown = run_with(replace(BOTH, zones=("moon",)))
    assert isinstance(choose(unknown, world(), NOW), NoOffer), "an unknown name restricts both"


def test_a_refusal_counts_for_one_provider() -> None:
    refused = tuple(
        Refusal(zone, "t4", spot, NOW - 60, Cause.GPU_UNAVAILABLE, "no GPU", CLOUD)
        for zone in ("west", SHARED)
        for spot in (True, False)
    )
    same = {CLOUD: OFFERS[CLOUD], LAB: offers(LAB, "t4", "west", SHARED)}
    run = run_with(replace(BOTH, shapes=("t4",)), refusals=refused)
    assert requested(run, world(offers=same)) == (LAB, "west")
    of_before = tuple(replace(item, provider="") for item in refused)
    assert isinstance(choose(replace(run, refusals=of_before), world(offers=same), NOW), NoOffer)


def test_the_plan_has_every_offer_in_the_order_of_the_tries() -> None:
    order = [(offer.placement.provider, offer.placement.zone) for offer, _ in queue(run_with(), world(), NOW)]
    assert order == [(CLOUD, "west"), (CLOUD, SHARED), (LAB, "bench"), (LAB, SHARED)]


# --- what moves it ------------------------------------------------------------------------------------------------


def preempted(count: int, **policy: object) -> Run:
    policy_ = replace(BOTH, escalate_after=2, escalate_to="next_provider", **policy)
    return run_with(policy_, counters=Counters(preempted_at=tuple(NOW - 60.0 * n for n in range(count))))


@pytest.mark.parametrize(("count", "first"), [(0, CLOUD), (1, CLOUD), (2, LAB), (5, LAB)])
def test_preemptions_move_the_run_and_it_returns_after_the_window(count: int, first: str) -> None:
    run = preempted(count)
    assert providers_of(run, NOW)[0] == first
    assert set(providers_of(run, NOW)) == {CLOUD, LAB}
    assert requested(run, world())[0] == first
    assert ("the next provider first, after" in escalation_text(run, NOW)) == (first == LAB)
    assert requested(run, world(), NOW + run.policy.escalate_window_s)[0] == CLOUD


def test_a_near_deadline_moves_the_run() -> None:
    policy = replace(BOTH, limits=Limits(deadline=NOW + 7200.0), next_provider_before_deadline_s=3600.0)
    assert requested(run_with(policy), world(), NOW + 3599.0)[0] == CLOUD
    assert requested(run_with(policy), world(), NOW + 3600.0)[0] == LAB
    assert escalation_text(run_with(policy), NOW + 3600.0) == "the next provider first, because its deadline is near"


# --- rows and events ----------------------------------------------------------------------------------------------

READ = Observation(beat=Absent(), baton=Absent(), stop=Absent())


def test_the_row_and_the_history_name_the_requested_provider() -> None:
    decision = decide(run_with(), READ, world(cooling(CLOUD)), NOW)
    assert (decision.run.status, decision.run.provider) == (Status.LAUNCHING, LAB)
    assert [action.try_.placement.provider for action in decision.actions if isinstance(action, Launch)] == [LAB]
    assert any("in bench of lab" in event.text for event in decision.events)


def test_a_provider_that_left_the_settings_is_skipped() -> None:
    left = world(sources=sources_of([LAB]), offers={LAB: OFFERS[LAB]})
    assert decide(run_with(), READ, left, NOW).run.provider == LAB
    none = decide(run_with(), READ, world(sources=sources_of(["other"]), offers={}), NOW).run
    assert none.status == Status.RECOVERING
    assert none.hold.startswith("none of its providers (cloud, lab) is in the settings")


def test_a_machine_of_a_provider_that_left_the_settings_is_shown() -> None:
    run = run_in(Status.RUNNING, policy=BOTH, provider=CLOUD, attempt=attempt(running_at=NOW), try_=open_try())
    seen = replace(READ, machine=Absent())
    after = decide(run, seen, world(sources=sources_of([LAB]), offers={LAB: OFFERS[LAB]}), NOW).run
    assert after.hold.startswith("its provider cloud is not in the settings")


# --- the queue ----------------------------------------------------------------------------------------------------


def pending(key: int, policy: Policy = BOTH) -> Run:
    own = policy.providers[0] if policy.providers else LAB
    return run_in(Status.PENDING, key=key, run_id=f"r-{key}", policy=policy, provider=own, generation_at=NOW + key)


def test_runs_with_another_provider_go_there_and_the_others_are_queued() -> None:
    """Capacity for one at the lab: the first run uses it, the second moves to the cloud, the third has no other."""
    capacity = Capacity(machines=1)
    first, second = (pending(key, replace(BOTH, providers=(LAB, CLOUD))) for key in (1, 2))
    third = pending(3, Policy())
    seen = with_queue(world(), [first, second, third], {LAB: capacity}, lambda try_: False, NOW)
    places = [place_of(run, seen, NOW) for run in (first, second, third)]
    assert [place.placement.provider for place in places[:2] if isinstance(place, Offer)] == [LAB, CLOUD]
    assert isinstance(places[2], NoOffer)
    assert places[2].cause == Cause.QUEUED


def test_a_try_elsewhere_takes_no_capacity_here() -> None:
    """A run of both with a request at the cloud now: the lab's capacity is still free."""
    there = replace(open_try(), placement=OFFERS[CLOUD][0].placement)
    asking = run_in(Status.LAUNCHING, key=1, policy=BOTH, provider=CLOUD, try_=there)
    capacity = Capacity(machines=1)
    seen = with_queue(world(), [asking, pending(2, Policy())], {LAB: capacity}, lambda try_: False, NOW)
    assert isinstance(place_of(pending(2, Policy()), seen, NOW), Offer)
