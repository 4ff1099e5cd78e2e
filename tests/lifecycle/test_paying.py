"""`providers: [free, paid]`: a paid machine is rented when the deadline needs it, in time for it, and not before."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.domain.actions import Launch
from supervisor.domain.attempt import Chain
from supervisor.domain.causes import Cause
from supervisor.domain.events import EventKind
from supervisor.domain.machines import Offer, Placement, ZoneRecord, offer_key
from supervisor.domain.observation import Absent, Observation, World
from supervisor.domain.profile import Profile
from supervisor.domain.run import Counters, Run, Waiting
from supervisor.domain.status import Status
from supervisor.lifecycle.decide import decide
from supervisor.lifecycle.decision import Decision
from supervisor.lifecycle.offers import paying
from supervisor.lifecycle.offers.choosing import NoOffer, choose
from supervisor.lifecycle.offers.ladder import ladder, pay_rule
from supervisor.lifecycle.offers.paying import least_s
from tests.lifecycle.lending import (
    CAP_S,
    DAY,
    FREE,
    PAID,
    POLICY,
    SATURDAY,
    TOTAL,
    chained,
    place,
    profile,
    quota,
    with_deadline,
    world,
)
from tests.lifecycle.sample_runs import MIN, NOW, H

READ = Observation(beat=Absent(), baton=Absent(), stop=Absent())
RESERVE_S = 10 * MIN + 120.0  # one changeover, and the time that is kept for leaving


def providers(run: Run, seen: World, now: float = NOW) -> list[str]:
    return [offer.placement.provider for offer in ladder(run, seen, now)]


def refusing(provider: str = FREE, for_s: float = 600.0, **fields: Any) -> World:
    """Its platform has no capacity now."""
    record = ZoneRecord(1, NOW + for_s, "no_capacity", "all GPUs are in use")
    return world(zones={offer_key(place(provider)): record}, **fields)


def no_offer(run: Run, seen: World, now: float = NOW) -> NoOffer:
    choice = choose(run, seen, now)
    assert isinstance(choice, NoOffer), choice
    return choice


# --- when it pays -----------------------------------------------------------------------------------------------------


def test_without_a_deadline_nothing_is_paid() -> None:
    run = chained(20)
    assert providers(run, world(quota())) == [FREE]
    waits = no_offer(run, refusing())
    assert (waits.cause, waits.held) == (Cause.NO_CAPACITY, False)
    assert waits.note == "it does not pay for gce, because without a deadline nothing is paid"


def test_it_pays_exactly_when_the_forecast_misses_the_deadline() -> None:
    """20 h in sessions of 9 h: done in 20 h 30 min; one changeover and the grace are the reserve."""
    ends_at = NOW + 20 * H + 3 * 10 * MIN
    run = with_deadline(chained(20), ends_at + RESERVE_S)
    assert providers(run, world()) == [FREE]
    assert providers(run, world(), NOW + 1.0) == [PAID, FREE]
    rule = pay_rule(run, world(), NOW + 1.0)
    assert rule is not None
    assert rule.text == (
        "it pays for gce, because kaggle alone would miss the deadline Sat 08:42 UTC: the 20 h of training that are "
        "left would be done there at about Sat 09:00 UTC, with 12 min of reserve"
    )


def test_hours_that_end_before_are_a_reason_to_pay() -> None:
    """15 h of work until Saturday evening: the lent hours that are left give one session before Saturday."""
    run = with_deadline(chained(15), NOW + 24 * H)
    assert providers(run, world(quota(30.0))) == [FREE]
    assert providers(run, world(quota(9.0, resets_at=NOW + 3 * DAY))) == [PAID, FREE]
    assert providers(run, world(quota(0.0, resets_at=None))) == [FREE], "it can still be paid in time"
    assert providers(run, world(quota(0.0, resets_at=None)), NOW + 9 * H) == [PAID, FREE]


def test_the_spec_may_say_otherwise() -> None:
    always = chained(20, policy=replace(POLICY, pay="always"))
    assert providers(always, world()) == [FREE, PAID]
    counted = replace(POLICY, escalate_after=1, escalate_to="next_provider")
    moved = chained(20, policy=counted, counters=Counters(preempted_at=(NOW - 60.0,)))
    assert providers(moved, world()) == [PAID, FREE]
    near = with_deadline(chained(1, policy=replace(POLICY, next_provider_before_deadline_s=2 * DAY)), NOW + DAY)
    assert providers(near, world()) == [PAID, FREE]


@pytest.mark.parametrize(
    ("seen", "names"),
    [
        (world(profiles={(FREE, "kaggle-a"): profile(cap_s=float("inf"))}), [FREE, PAID]),  # an own host
        (world(offers={FREE: (Offer(place(), 0.1, 0.1),), PAID: (Offer(place(PAID), 0.5, 0.5),)}), [FREE, PAID]),
        (world(offers={FREE: (Offer(place(), 0.0, 0.0),), PAID: (Offer(place(PAID), 0.0, 0.0),)}), [FREE, PAID]),
        (world(offers={FREE: (Offer(place(), 0.0, 0.0),), PAID: (Offer(place(PAID), None, None),)}), [FREE]),
    ],
)
def test_only_free_sessions_hold_a_payee_back(seen: World, names: list[str]) -> None:
    """Own machines without a cap, two that take money, and two that take none are as ever. An unknown price is one."""
    assert providers(chained(20), seen) == names


def test_a_payee_before_the_free_one_is_the_users_wish() -> None:
    assert providers(chained(20, policy=replace(POLICY, providers=(PAID, FREE))), world()) == [PAID, FREE]


@pytest.mark.parametrize("chain", [Chain(), Chain(TOTAL), Chain(None, {FREE: 1.0})])
def test_while_the_work_is_unknown_each_has_half_of_the_time(chain: Chain) -> None:
    run = with_deadline(chained(5, chain=chain, generation_at=NOW), NOW + 10 * DAY)
    assert providers(run, world(quota()), NOW + 5 * DAY - 1.0) == [FREE]
    assert providers(run, world(quota()), NOW + 5 * DAY) == [PAID, FREE]
    rule = pay_rule(run, world(quota()), NOW + 5 * DAY)
    assert rule is not None
    assert "nobody knows how much is left" in rule.text
    assert "half of the time until the deadline" in rule.text


def test_an_expected_runtime_is_enough_to_judge() -> None:
    run = with_deadline(chained(0, chain=Chain(), policy=replace(POLICY, expect_runtime_s=10 * H)), NOW + 13 * H)
    assert providers(run, world()) == [FREE]
    assert providers(run, world(), NOW + 3 * H) == [PAID, FREE]


# --- for all ----------------------------------------------------------------------------------------------------------


def first_paid_at(run: Run, seen: World, until: float) -> float | None:
    """A free platform that never has capacity: the first look, one in five minutes, at which the run pays."""
    looks = (NOW + n * 5 * MIN for n in range(int((until - NOW) // (5 * MIN)) + 1))
    return next((at for at in looks if providers(run, seen, at)[0] == PAID), None)


def in_time(left_h: float, spare_h: float, hours: float | None) -> None:
    """The free platform refuses for days: the paid machine still ends the work before the deadline, where the deadline
    allows it at all, and is not rented while there is more spare time than the free sessions ever need."""
    deadline = NOW + left_h * H + 10 * MIN + spare_h * H + RESERVE_S
    run, seen = with_deadline(chained(left_h), deadline), world(quota(hours))
    paid_at = first_paid_at(run, seen, deadline)
    assert paid_at is not None, "the deadline passes without a paid machine"
    assert paid_at + 10 * MIN + left_h * H <= deadline, "it pays too late"


LEFT, SPARE = st.floats(0.5, 60), st.floats(0, 100)


@given(left_h=LEFT, spare_h=SPARE, hours=st.one_of(st.none(), st.floats(0, 30)))
def test_a_near_deadline_is_paid_for_in_time(left_h: float, spare_h: float, hours: float | None) -> None:
    in_time(left_h, spare_h, hours)


@given(left_h=LEFT, hours=st.floats(0, 30))
def test_a_far_deadline_is_never_paid_for(left_h: float, hours: float) -> None:
    """A week for each 20 h of work, and one more: the lent hours of a week are 30."""
    far = NOW + (2 + left_h // 20) * 7 * DAY
    assert providers(with_deadline(chained(left_h), far), world(quota(hours))) == [FREE]


@pytest.mark.parametrize("broken", ["late", "deaf"])
def test_a_rule_that_pays_too_late_is_caught(broken: str, monkeypatch: pytest.MonkeyPatch) -> None:
    true = paying.forecast

    def hopeful(run: Run, lent: Any, now: float) -> Any:
        found = true(run, lent, now)
        return replace(found, ends_at=now) if broken == "deaf" else replace(found, ends_at=found.ends_at - 5 * H)

    monkeypatch.setattr(paying, "forecast", hopeful)
    with pytest.raises(AssertionError):
        in_time(20.0, 3.0, None)


def test_a_rule_that_pays_at_once_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paying, "CHANGEOVER_S", 10 * DAY)
    far = with_deadline(chained(20, chain=Chain(TOTAL, {FREE: 1.0})), NOW + 7 * DAY)
    with pytest.raises(AssertionError):
        assert providers(far, world()) == [FREE]


# --- rows and events --------------------------------------------------------------------------------------------------


def decided(run: Run, seen: World, now: float = NOW) -> Decision:
    return decide(run, READ, seen, now)


def launched(decision: Decision) -> Placement:
    [launch] = [action for action in decision.actions if isinstance(action, Launch)]
    return launch.try_.placement


def test_each_request_says_why_it_is_paid_or_free() -> None:
    run = with_deadline(chained(20), NOW + 20 * H)
    paid = decided(run, world())
    assert launched(paid).provider == PAID
    assert "it pays for gce, because kaggle alone would miss the deadline" in paid.events[-1].text
    free = decided(with_deadline(chained(20), NOW + 7 * DAY), world())
    assert launched(free).provider == FREE
    assert "it does not pay for gce, because kaggle alone keeps the deadline" in free.events[-1].text
    assert "20 h of training" in free.events[-1].text


def test_a_wait_for_the_free_platform_has_no_limit_while_the_deadline_can_pay() -> None:
    """Days of refusals: the limit of a wait does not count, and begins when the paid platform may be requested."""
    waits = {"status": Status.WAITING, "waiting": Waiting(since=NOW - 3 * DAY), "cause": Cause.NO_CAPACITY}
    held = with_deadline(chained(20, **waits), NOW + 7 * DAY)
    stays = decided(replace(held, waiting=replace(held.waiting, held=True)), refusing()).run
    assert (stays.status, stays.waiting.held) == (Status.WAITING, True)
    turn = replace(held, waiting=replace(held.waiting, held=True))
    both = replace(refusing(), zones=refusing().zones | refusing(PAID).zones)
    turned = decided(with_deadline(turn, NOW + 20 * H), both).run
    assert (turned.status, turned.waiting.held, turned.waiting.since) == (Status.WAITING, False, NOW)
    assert decided(chained(20, **waits), refusing()).run.status == Status.FAILED, "without a deadline it counts"


def test_the_wait_says_once_why_nothing_is_paid() -> None:
    run = with_deadline(chained(20), NOW + 7 * DAY)
    first = decided(run, refusing())
    [event] = [event for event in first.events if event.kind == EventKind.WAITING]
    assert event.text.startswith(
        "Waiting: no_capacity. all GPUs are in use. Nothing is billed. It does not pay for gce"
    )
    again = decided(first.run, refusing(), NOW + 700.0)
    assert not [event for event in again.events if event.kind == EventKind.WAITING]


# --- hours that are used up -------------------------------------------------------------------------------------------


def test_used_up_hours_are_one_wait_until_their_reset() -> None:
    spent = world(quota(0.0))
    first = decided(chained(20), spent)
    assert (first.run.status, first.run.cause, first.run.next_at) == (Status.WAITING, Cause.QUOTA_HOURS, SATURDAY)
    assert first.run.detail == "GPU hours of kaggle are used up until Sat 00:00 UTC"
    assert [event.kind for event in first.events] == [EventKind.WAITING]
    run = first.run
    for minutes in range(1, 700, 7):
        later = decided(run, spent, NOW + 60.0 * minutes)
        assert later.run is run, "nothing is written, and nothing is requested"
        assert (later.actions, later.events) == ((), ())
    anew = decided(run, spent, SATURDAY)  # the old reading says nothing any more
    assert launched(anew).provider == FREE


def test_a_wait_for_hours_fails_at_no_limit_of_waiting() -> None:
    long = chained(
        20, status=Status.WAITING, cause=Cause.QUOTA_HOURS, next_at=SATURDAY, waiting=Waiting(since=NOW - 5 * DAY)
    )
    assert decided(long, world(quota(0.0))).run.status == Status.WAITING


@pytest.mark.parametrize("hours", [None, quota(None), quota(0.0, resets_at=NOW - 1.0)])
def test_hours_that_could_not_be_read_are_not_used_up(hours: Any) -> None:
    assert launched(decided(chained(20), world(hours))).provider == FREE


def test_a_session_that_would_be_too_short_is_not_started() -> None:
    """A restore and three checkpoints, as of a time limit in G0; at least a quarter of an hour."""
    run = chained(20, chain=Chain(TOTAL, {FREE: 1.0}), policy=replace(POLICY, expect_checkpoint_every_s=20 * MIN))
    assert least_s(run, FREE) == 60 * MIN
    assert launched(decided(run, world(quota(1.0)))).provider == FREE
    waits = decided(run, world(quota(0.99))).run
    assert waits.cause == Cause.QUOTA_HOURS
    assert waits.detail == "the 59 min of GPU hours that kaggle lends until Sat 00:00 UTC are too little for a session"
    assert least_s(chained(20, chain=Chain()), FREE) == 15 * MIN


def test_hours_of_one_platform_leave_the_other_free() -> None:
    """With `pay: always` the next provider is used at once; a cool-down there is what ends first."""
    always = chained(20, policy=replace(POLICY, pay="always"))
    assert launched(decided(always, world(quota(0.0)))).provider == PAID
    assert no_offer(always, refusing(PAID, quotas={(FREE, "t4"): quota(0.0)})).cause == Cause.NO_CAPACITY
    cooling_and_spent = refusing(FREE, quotas={(FREE, "t4"): quota(0.0)})
    assert no_offer(chained(20), cooling_and_spent).until == SATURDAY


def test_two_runs_are_judged_by_their_own_work() -> None:
    """Choices are kept for a tick: a run that must pay gives its choice to no other."""
    seen = replace(world(), choices={})
    hurried, patient = with_deadline(chained(20), NOW + 20 * H), with_deadline(chained(20), NOW + 7 * DAY)
    assert launched(decided(hurried, seen)).provider == PAID
    assert launched(decided(replace(patient, key=2), seen)).provider == FREE


def test_the_cap_binds_with_the_machines_own_limit() -> None:
    lent = paying.lent_by(chained(20), FREE, world())
    assert lent is not None
    assert lent.cap_s == CAP_S
    shorter = replace(POLICY, limits=replace(POLICY.limits, machine_max_s=H))
    lent = paying.lent_by(
        chained(20, policy=shorter), FREE, world(quota(), profiles={(FREE, "kaggle-a"): Profile("k", "K")})
    )
    assert lent is not None
    assert lent.cap_s == H
