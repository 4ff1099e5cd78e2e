"""Flex-start: one request waits where the run would do nothing, and never past the last moment for on-demand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.contract.baton import Baton, Next
from supervisor.domain.actions import Launch, Release
from supervisor.domain.attempt import CREATE_SETTLED_S, Try
from supervisor.domain.causes import Cause
from supervisor.domain.machines import Machine, MachineState, Offer, Placement, offer_key
from supervisor.domain.observation import Absent, CreateFailed, Seen
from supervisor.domain.policies import KeepRule, Limits
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.lifecycle.decide import decide
from supervisor.lifecycle.decision import Decision
from supervisor.lifecycle.offers.choosing import NoOffer, choose
from supervisor.lifecycle.offers.ladder import ladder, market_rule
from supervisor.lifecycle.phases import launching
from supervisor.lifecycle.rungs.rule import LONGEST_FLEX_START_S, Rung, Situation, flex_start_s
from supervisor.lifecycle.rungs.rule import choose as choose_rung
from supervisor.wording.figures import clock_text
from tests.lifecycle.sample_runs import NOW, H
from tests.lifecycle.test_market import GCE, GRACE_S, ON_DEMAND, READ, SCARCE_H, SPOT, refusing, run

FLEX = Offer(Placement(GCE, "us", "us-a", "h100", spot=False, flex=True), 3.0, 3.0)
EVERY = (SPOT, ON_DEMAND, FLEX)
SEEN = refusing(*EVERY)
WITHDRAWAL_S = CREATE_SETTLED_S + 2 * SEEN.knobs.poll_interval_s


def waiting(slack_h: float = 2.0, **policy: object) -> Decision:
    """A request waits since now."""
    return decide(run(slack_h=slack_h, allow_flex_start=True, **policy), READ, SEEN, NOW)


def try_of(decision: Decision) -> Try:
    assert decision.run.open_try is not None
    return decision.run.open_try


def machine(try_: Try, state: MachineState = MachineState.ASKED) -> Seen[Machine]:
    return Seen(Machine("m", try_.machine_name, try_.placement.zone, state, "s", "digits-7", try_.launch_id))


def test_it_is_off_unless_the_spec_allows_it() -> None:
    assert isinstance(choose(run(), SEEN, NOW), NoOffer)
    assert FLEX not in ladder(run(slack_h=0.8), SEEN, NOW)
    assert choose(run(allow_flex_start=True), SEEN, NOW) == FLEX


@pytest.mark.parametrize("slack_h", [0.2, 0.8, SCARCE_H + 0.05])
def test_near_the_last_moment_no_request_waits(slack_h: float) -> None:
    assert FLEX not in ladder(run(slack_h=slack_h, allow_flex_start=True), SEEN, NOW)


def test_spot_comes_first_and_kept_machines_and_optimize_wait_have_none() -> None:
    assert ladder(run(allow_flex_start=True), SEEN, NOW) == [SPOT, FLEX]
    assert ladder(run(allow_flex_start=True, optimize="wait"), SEEN, NOW) == [SPOT]
    assert ladder(run(allow_flex_start=True, keep=KeepRule(machine=True)), SEEN, NOW) == [SPOT]


def test_without_on_demand_it_waits_as_long_as_the_platform_lets_it() -> None:
    decision = waiting(allow_on_demand=False, limits=Limits())
    assert try_of(decision).waits_s == LONGEST_FLEX_START_S


@pytest.mark.parametrize(("waited_s", "most_s"), [(0.0, 1800.0), (600.5, 1199.0), (1710.0, 90.0), (1711.0, 0.0)])
def test_without_on_demand_it_keeps_the_limit_of_the_wait(waited_s: float, most_s: float) -> None:
    """Broken variant: a run that gives up after half an hour waited for two."""
    limits = Limits(wait_for_capacity_s=1800.0)
    one = run(allow_flex_start=True, allow_on_demand=False, limits=limits)
    one = replace(one, waiting=replace(one.waiting, since=NOW - waited_s))
    placed = decide(one, READ, SEEN, NOW).run.open_try
    assert (0.0 if placed is None else placed.waits_s) == most_s


def test_with_a_budget_it_needs_a_known_price() -> None:
    unpriced = refusing(SPOT, ON_DEMAND, replace(FLEX, price_usd_per_h=None))
    limits = replace(run().policy.limits, budget_usd=100.0)
    assert ladder(run(allow_flex_start=True, limits=limits), unpriced, NOW) == [SPOT]


@pytest.mark.parametrize("slack_h", [1.0, 1.3, 1.5, 2.0, 4.0, 9.0])
def test_the_request_ends_in_time_for_the_last_moment(slack_h: float) -> None:
    left_s, change_s = 3 * H, 600.0
    situation = Situation(NOW, left_s, NOW + left_s + slack_h * H, change_s, 30.0, None, False, 1.0, 3.0)
    choice = choose_rung(situation)
    waits_s = flex_start_s(choice, WITHDRAWAL_S)
    if choice.rung is not Rung.WAIT:
        assert waits_s == 0.0
        return
    assert choice.until is not None
    assert waits_s == 0.0 or 90.0 <= waits_s <= 7200.0
    assert NOW + waits_s + WITHDRAWAL_S <= choice.until or waits_s == 0.0


def test_it_waits_longer_than_other_requests_and_says_until_when() -> None:
    decision = waiting()
    try_ = try_of(decision)
    assert try_.placement == FLEX.placement
    assert try_.waits_s > SEEN.knobs.launch_timeout_s, "else the test shows nothing"
    late = NOW + SEEN.knobs.launch_timeout_s + 60.0
    later = decide(decision.run, replace(READ, machine=machine(try_)), SEEN, late)
    assert [type(action) for action in later.actions] == [Launch], "it is not deleted, and the very same is requested"
    assert later.run.open_try == try_
    ends, last = clock_text(NOW + try_.waits_s, late), market_rule(run(slack_h=2.0), SEEN, NOW)
    assert last is not None
    assert last.until is not None
    waits = f"a flex-start request waits in us-a until {ends} at most, and no machine is billed"
    assert later.run.hold == f"{waits}; on-demand at {clock_text(last.until, late)} at the latest"


def test_without_on_demand_it_names_none() -> None:
    decision = waiting(allow_on_demand=False, limits=Limits())
    later = decide(decision.run, replace(READ, machine=machine(try_of(decision))), SEEN, NOW + 600.0)
    assert later.run.hold == "a flex-start request waits in us-a until 14:00 UTC at most, and no machine is billed"


def test_a_normal_timeout_would_delete_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The broken variant of the test above."""
    decision = waiting()
    try_ = replace(try_of(decision), waits_s=0.0)
    late = NOW + SEEN.knobs.launch_timeout_s + 60.0
    later = decide(replace(decision.run, try_=try_), replace(READ, machine=machine(try_)), SEEN, late)
    assert [type(action) for action in later.actions] == [Release]


def test_at_its_end_it_is_withdrawn_not_repeated_and_on_demand_follows_at_the_last_moment() -> None:
    decision = waiting()
    try_ = try_of(decision)
    last = market_rule(run(slack_h=2.0), SEEN, NOW)
    assert last is not None
    ends = NOW + try_.waits_s
    asked = decide(decision.run, replace(READ, machine=machine(try_)), SEEN, ends)
    assert [type(action) for action in asked.actions] == [Release]
    sent = Seen(Baton("s", 1, Next(1, 1, try_.launch_id, "nonce")))
    none = replace(READ, machine=Absent(), lookup=Absent(), baton=sent)
    gone = decide(asked.run, none, SEEN, ends + 60.0)
    assert not any(isinstance(action, Launch) for action in gone.actions), "a second insert could make a second machine"
    unsent = decide(asked.run, replace(none, baton=Absent()), SEEN, ends + 60.0)
    assert unsent.run.open_try is None, "its time does not begin again"
    settled = decide(asked.run, none, SEEN, ends + CREATE_SETTLED_S)
    assert settled.run.open_try is None, "no answer came, and none can come any more"
    assert last.until is not None
    assert ends + WITHDRAWAL_S <= last.until
    placed = settle(asked.run, last.until + 1.0)
    assert placed.run.open_try is not None
    assert placed.run.open_try.placement == ON_DEMAND.placement


def settle(asked: Run, at: float) -> Decision:
    """The request has ended and on-demand is due: every spot zone refuses."""
    try_ = asked.open_try
    assert try_ is not None
    failed = CreateFailed(try_.launch_id, Cause.NO_CAPACITY, "no capacity within the time")
    ended = decide(asked, replace(READ, create=Seen(failed)), SEEN, at)
    (lesson,) = ended.lessons
    assert lesson[0] == offer_key(FLEX.placement) != offer_key(ON_DEMAND.placement)
    still = refusing(*EVERY, for_s=at + 600.0 - NOW)
    zones = {**still.zones, **{key: record for key, record in ended.lessons if record is not None}}
    return decide(ended.run, READ, replace(still, zones=zones), at)


def test_the_limit_of_waiting_does_not_count_a_wait_before_on_demand() -> None:
    """Broken variant: the run failed at the end of the request, and on-demand was never requested."""
    limits = replace(run(slack_h=2.0).policy.limits, wait_for_capacity_s=1800.0)
    decision = waiting(limits=limits)
    assert try_of(decision).waits_s > limits.wait_for_capacity_s, "else the test shows nothing"
    last = market_rule(run(slack_h=2.0), SEEN, NOW)
    assert last is not None
    assert last.until is not None
    placed = settle(decision.run, last.until + 1.0)
    assert placed.run.open_try is not None
    assert placed.run.open_try.placement == ON_DEMAND.placement
    assert not waiting(allow_on_demand=False, limits=Limits()).run.waiting.held, "nothing else comes: it counts"


def test_a_machine_that_is_granted_is_used_even_at_the_end() -> None:
    decision = waiting()
    try_ = try_of(decision)
    seen = replace(READ, machine=machine(try_, MachineState.STARTING))
    granted = decide(decision.run, seen, SEEN, NOW + try_.waits_s + 1.0)
    assert granted.run.live_attempt is not None
    assert granted.run.live_attempt.placement == FLEX.placement
    assert granted.run.status == Status.LAUNCHING


def moved_earlier(run: Run, slack_h: float) -> Run:
    """Its deadline leaves so much slack."""
    deadline = NOW + (3.0 + slack_h) * H + GRACE_S
    return replace(run, policy=replace(run.policy, limits=replace(run.policy.limits, deadline=deadline)))


def test_a_deadline_that_is_moved_earlier_ends_the_wait_at_once_where_on_demand_is_due() -> None:
    decision = waiting(slack_h=9.0)
    at, asked = NOW + 600.0, replace(READ, machine=machine(try_of(decision)))
    assert [type(action) for action in decide(decision.run, asked, SEEN, at).actions] == [Launch]
    hurried = decide(moved_earlier(decision.run, 0.9), asked, SEEN, at)
    assert [type(action) for action in hurried.actions] == [Release]
    assert try_of(hurried).waits_s == 600.0
    back = decide(replace(hurried.run, policy=decision.run.policy), asked, SEEN, at + 30.0)
    assert [type(action) for action in back.actions] == [Release], "what is being withdrawn does not wait again"
    stopping = replace(READ, machine=machine(try_of(hurried), MachineState.ENDING))
    assert decide(back.run, stopping, SEEN, at + 60.0).run.live_attempt is None


def test_it_ends_in_time_for_a_last_moment_that_has_become_earlier() -> None:
    decision = waiting(slack_h=9.0)
    asked = replace(READ, machine=machine(try_of(decision)))
    earlier = moved_earlier(decision.run, 2.0)
    last = market_rule(earlier, SEEN, NOW)
    assert last is not None
    assert last.until is not None
    ends = last.until - WITHDRAWAL_S
    assert ends < NOW + try_of(decision).waits_s, "else the test shows nothing"
    assert [type(action) for action in decide(earlier, asked, SEEN, ends - 1.0).actions] == [Launch]
    assert [type(action) for action in decide(earlier, asked, SEEN, ends).actions] == [Release]


def test_a_rule_that_nobody_can_ask_ends_no_wait() -> None:
    """Without the offers nobody knows the last moment: the end of the request itself bounds it."""
    decision = waiting(slack_h=9.0)
    asked = replace(READ, machine=machine(try_of(decision)))
    unknown = decide(moved_earlier(decision.run, 0.9), asked, replace(SEEN, offers={}), NOW + 600.0)
    assert [type(action) for action in unknown.actions] == [Launch]


def test_the_wait_is_the_requests_own(monkeypatch: pytest.MonkeyPatch) -> None:
    try_ = try_of(waiting())
    assert launching._overdue_at(run(), try_, READ, SEEN, NOW) == NOW + try_.waits_s
