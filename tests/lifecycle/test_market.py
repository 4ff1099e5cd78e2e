"""`optimize`: a run with a deadline waits for spot while that is cheaper, and takes on-demand in time, not before."""

from __future__ import annotations

from dataclasses import replace

from supervisor.domain.attempt import Chain
from supervisor.domain.causes import Cause
from supervisor.domain.events import EventKind
from supervisor.domain.machines import Offer, Outlook, Placement, ZoneRecord, offer_key
from supervisor.domain.observation import BEATS, Absent, Observation, World, sources_of
from supervisor.domain.policies import Knobs, Limits, Policy
from supervisor.domain.run import Files, Run
from supervisor.domain.status import Status
from supervisor.lifecycle.decide import decide
from supervisor.lifecycle.offers.choosing import NoOffer, choose
from supervisor.lifecycle.offers.ladder import ladder, market_rule
from tests.lifecycle.sample_runs import MIN, NOW, H, run_in

GCE = "gce"
TOTAL = 1_000_000
READ = Observation(beat=Absent(), baton=Absent(), stop=Absent())
# 36 min, 6 % of three hours, and 0.8 of the three changeovers of ten minutes that machines of an hour would have.
SCARCE_H = 1.18
GRACE_S = 120.0  # what a run may take to leave is no time of training


def offer(zone: str, usd: float | None, *, spot: bool) -> Offer:
    return Offer(Placement(GCE, "us", zone, "h100", spot), usd, usd)


SPOT, DEAR_SPOT, ON_DEMAND = (
    offer("us-a", 1.0, spot=True),
    offer("us-b", 4.0, spot=True),
    offer("us-a", 3.0, spot=False),
)


def world(*offers: Offer, **fields: object) -> World:
    base = World(
        Knobs("s"), offers={GCE: offers or (SPOT, ON_DEMAND)}, fresh=frozenset({BEATS}), sources=sources_of([GCE])
    )
    return replace(base, **fields)  # type: ignore[arg-type]


def refusing(*offers: Offer, for_s: float = 600.0) -> World:
    """No spot machine can be had in any zone."""
    record = ZoneRecord(1, NOW + for_s, "no_capacity", "no spot capacity")
    every = offers or (SPOT, ON_DEMAND)
    return world(*every, zones={offer_key(each.placement): record for each in every if each.placement.spot})


def run(left_h: float = 3.0, slack_h: float = 6.0, **policy: object) -> Run:
    """Between two machines; one step a second."""
    limits = Limits(deadline=NOW + (left_h + slack_h) * H + GRACE_S)
    chosen = replace(Policy(allow_on_demand=True, limits=limits), **policy)  # type: ignore[arg-type]
    files = Files(checkpoint_step=TOTAL - int(left_h * H))
    return run_in(Status.RECOVERING, provider=GCE, policy=chosen, files=files, chain=Chain(TOTAL, {GCE: 1.0}, {}))


def markets(run: Run, seen: World, now: float = NOW) -> list[bool]:
    return [each.placement.spot for each in ladder(run, seen, now)]


def test_with_slack_only_spot_is_requested_and_near_the_deadline_on_demand_follows_and_then_leads() -> None:
    assert markets(run(slack_h=6.0), world()) == [True]
    assert markets(run(slack_h=0.8), world()) == [True, False]
    assert markets(run(slack_h=0.2), world()) == [False, True], "a spot machine that is lost would miss it"


def test_a_run_that_waits_says_until_when_and_is_placed_again_then() -> None:
    choice = choose(run(slack_h=SCARCE_H + 1 / 12), refusing(), NOW)
    assert isinstance(choice, NoOffer)
    assert choice.until is not None
    assert abs(choice.until - (NOW + 5 * MIN)) < 1.0, "earlier than the zone is asked again"
    assert choice.held, "the limit of waiting for capacity does not count it"
    assert choice.detail == (
        "no spot capacity; waiting is cheaper: slack 1 h 15 min, remaining 3 h; on-demand at 12:05 UTC at the latest"
    )


def test_the_status_and_the_history_say_it_and_at_that_time_on_demand_is_requested() -> None:
    seen = refusing()
    waiting = decide(run(slack_h=SCARCE_H + 1 / 12), READ, seen, NOW)
    assert waiting.run.status == Status.WAITING
    assert waiting.run.cause == Cause.NO_CAPACITY
    assert "waiting is cheaper: slack 1 h 15 min, remaining 3 h; on-demand at 12:05 UTC" in waiting.run.detail
    assert any(waiting.run.detail in event.text for event in waiting.events)
    until = waiting.run.next_at
    assert until is not None
    before = decide(waiting.run, READ, seen, until - 1)
    assert before.run.status == Status.WAITING
    after = decide(waiting.run, READ, seen, until + 1)
    assert after.run.status == Status.LAUNCHING
    text = next(event.text for event in after.events if event.kind == EventKind.LAUNCHING)
    assert "Requesting h100 on-demand in us-a" in text
    assert "the deadline needs on-demand: slack 1 h 10 min, remaining 3 h" in text


def test_a_cool_down_that_ends_earlier_is_used() -> None:
    choice = choose(run(), refusing(for_s=600.0), NOW)
    assert isinstance(choice, NoOffer)
    assert choice.until == NOW + 600.0


def test_a_zone_at_four_times_the_price_is_left_while_there_is_slack() -> None:
    seen = world(SPOT, DEAR_SPOT, replace(ON_DEMAND, price_usd_per_h=9.0))
    assert [each.placement.zone for each in ladder(run(), seen, NOW)] == ["us-a"]
    hurried = ladder(run(slack_h=0.8), seen, NOW)
    assert [(each.placement.zone, each.placement.spot) for each in hurried] == [
        ("us-a", True),
        ("us-b", True),
        ("us-a", False),
    ]


def test_optimize_deadline_takes_on_demand_at_once_and_optimize_wait_never() -> None:
    assert markets(run(optimize="deadline"), world()) == [True, False]
    patient = run(slack_h=0.2, optimize="wait")
    assert markets(patient, world()) == [True]
    choice = choose(patient, refusing(), NOW)
    assert isinstance(choice, NoOffer)
    assert choice.detail == "no spot capacity; it waits for spot, as its spec says"


def test_without_a_deadline_or_a_known_rest_on_demand_follows_spot_as_before() -> None:
    assert markets(run(limits=Limits()), world()) == [True, False]
    assert markets(replace(run(), chain=Chain(None, {GCE: 1.0}, {})), world()) == [True, False]
    assert markets(run(allow_on_demand=False), world()) == [True]


def test_the_longest_changeover_and_the_repeated_steps_come_out_of_the_slack() -> None:
    usual, slow = market_rule(run(), world(), NOW), replace(run(), chain=Chain(TOTAL, {GCE: 1.0}, {GCE: 30 * MIN}))
    repeating = run(expect_checkpoint_every_s=20 * MIN)
    for each in (slow, repeating):
        rule = market_rule(each, world(), NOW)
        assert rule is not None
        assert usual is not None
        assert rule.until is not None
        assert usual.until is not None
        assert rule.until < usual.until - 30 * MIN


def test_the_escalation_that_a_spec_asks_for_stands_over_the_rule() -> None:
    assert markets(run(on_demand_before_deadline_s=24 * H), world()) == [False, True]


def test_runs_with_a_deadline_do_not_share_their_answer() -> None:
    seen = refusing()
    shared = replace(seen, choices={})
    hurried = replace(run(slack_h=0.8), key=run().key + 1)
    assert isinstance(choose(run(), shared, NOW), NoOffer)
    assert not isinstance(choose(hurried, shared, NOW), NoOffer)


def test_the_life_of_spot_machines_is_that_of_all_machines_in_its_zones() -> None:
    """Broken variant: the run's own attempts alone. Machines that live for ten minutes need slack for their restarts,
    also before this run has lost one."""
    short, long = (
        Outlook(600.0, 2e-4, lives=30, lost=29, held_s=30 * 600.0),
        Outlook(7200.0, 2e-4, lives=30, held_s=30 * 7200.0),
    )
    known = [{offer_key(SPOT.placement): outlook} for outlook in (short, long)]
    assert markets(run(slack_h=1.5), world()) == [True]
    assert markets(run(slack_h=1.5), world(outlooks=known[0])) == [True, False]
    assert markets(run(slack_h=1.0), world()) == [True, False]
    assert markets(run(slack_h=1.0), world(outlooks=known[1])) == [True]
    elsewhere = {offer_key(replace(SPOT.placement, zone="us-z")): short}
    assert markets(run(slack_h=1.5), world(outlooks=elsewhere)) == [True], "a zone that it may not use"
