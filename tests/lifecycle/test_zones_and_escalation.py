"""Lessons of zones beside stock-outs: the scope of a quota, lost machines; and what a run requests then."""

from __future__ import annotations

from dataclasses import replace

import pytest

from supervisor.domain.causes import Cause
from supervisor.domain.machines import Offer, Placement, ZoneRecord, offer_key
from supervisor.domain.observation import CreateFailed, World
from supervisor.domain.policies import Knobs, Limits, Policy
from supervisor.domain.run import Counters, Run
from supervisor.domain.status import Status
from supervisor.lifecycle.offers.choosing import NoOffer, choose
from supervisor.lifecycle.offers.ladder import PREEMPTIONS_KEPT, escalation_text, with_preemption
from supervisor.lifecycle.offers.lessons import (
    LOST_KEPT,
    LOST_WINDOW_S,
    after_failure,
    after_loss,
    lessons_of,
    merged,
    without_failures,
)
from tests.lifecycle.worlds import NOW

EAST, WEST = ("east-a", "east-b"), ("west-a",)
SHAPES = ("t4", "l4")


def place(zone: str, shape: str = "t4", spot: bool = True) -> Placement:
    return Placement("gce", zone.partition("-")[0], zone, shape, spot)


OFFERS = tuple(
    Offer(place(zone, shape, spot), 0.1, 0.3) for spot in (True, False) for shape in SHAPES for zone in (*EAST, *WEST)
)


def world(zones: dict[object, ZoneRecord] | None = None) -> World:
    return World(Knobs("s"), offers={"gce": OFFERS}, zones=zones or {})


def run_with(policy: Policy, preempted_at: tuple[float, ...] = ()) -> Run:
    return Run(
        1, "r", "local", "c", "gce", 1, Status.RECOVERING, policy, NOW, NOW, NOW,
        counters=Counters(preempted_at=preempted_at),
    )  # fmt: skip


def chosen(run: Run, seen: World, now: float = NOW) -> Placement:
    found = choose(run, seen, now)
    assert isinstance(found, Offer)
    return found.placement


def cooled(scope: str, cause: Cause = Cause.QUOTA) -> set[tuple[str, str, bool]]:
    failed = CreateFailed("1.1.1", cause, "QUOTA_EXCEEDED", scope=scope)
    return {(key[1], key[2], key[3]) for key, _ in lessons_of(failed, place("east-a"), world(), NOW)}


def test_a_quota_counts_for_its_whole_scope() -> None:
    assert cooled("zone") == {("east-a", "t4", True)}
    assert cooled("region") == {("east-a", "t4", True), ("east-b", "t4", True)}
    everywhere = {(zone, "t4", spot) for zone in (*EAST, *WEST) for spot in (True, False)}
    assert cooled("project") == everywhere


def test_a_stock_out_counts_for_one_zone_whatever_its_scope_says() -> None:
    assert cooled("project", Cause.NO_CAPACITY) == {("east-a", "t4", True)}


def test_zones_that_lost_machines_lately_come_later_and_the_shape_still_counts_more() -> None:
    run = run_with(Policy(shapes=SHAPES))
    seen = world(dict(after_loss(place("east-a"), world(), NOW - 60)))
    assert chosen(run, seen).zone == "east-b"
    lost = seen.zones | dict(after_loss(place("east-b"), seen, NOW - 50))
    assert chosen(run, world(lost)).zone == "west-a"
    twice = lost | dict(after_loss(place("west-a"), world(lost), NOW - 40))
    assert chosen(run, world(twice)) == place("east-a")  # all lost one: the order of the settings, and not the l4
    assert chosen(run, seen, NOW + LOST_WINDOW_S).zone == "east-a"


def test_losses_outlive_refusals_and_successes_and_are_few() -> None:
    key = offer_key(place("east-a"))
    seen = world()
    for number in range(20):
        seen = world(dict(after_loss(place("east-a"), seen, NOW + number)))
    assert len(seen.zones[key].lost_at) == LOST_KEPT
    refused = after_failure(seen.zones[key], Cause.NO_CAPACITY, "none", seen, NOW + 30)
    assert refused.lost_at == seen.zones[key].lost_at
    had = without_failures(refused)
    assert had is not None
    assert (had.failures, had.cause, had.lost_at) == (0, "", refused.lost_at)
    assert had.stocked_out_at == NOW + 30
    quota = after_failure(had, Cause.QUOTA, "none", seen, NOW + 60)
    assert quota.stocked_out_at == NOW + 30, "no stock-out"
    assert without_failures(ZoneRecord(3, NOW, "no_capacity", "none")) is None


def test_what_many_runs_learn_in_one_tick_is_one_lesson() -> None:
    key = offer_key(place("east-a"))
    loss = after_loss(place("east-a"), world(), NOW)
    failed = CreateFailed("1.1.1", Cause.NO_CAPACITY, "none")
    refusal = lessons_of(failed, place("east-a"), world(), NOW)
    for order in ([*[loss] * 100, refusal], [refusal, *[loss] * 100]):
        found = merged(order)
        assert list(found) == [key]
        record = found[key]
        assert record is not None
        assert (record.failures, record.cool_until > NOW, record.lost_at) == (1, True, (NOW,))
    assert merged([refusal, ((key, None),)]) == {key: None}


def test_a_zone_that_only_lost_machines_is_no_reason_to_wait() -> None:
    lost = dict(after_loss(place("east-a"), world(), NOW))
    cold = ZoneRecord(1, NOW + 500, "no_capacity", "none left")
    zones = {offer_key(offer.placement): cold for offer in OFFERS if offer.placement.shape == "t4"} | lost
    assert chosen(run_with(Policy(zones=EAST)), world(zones)).zone == "east-a"
    found = choose(run_with(Policy(zones=("east-b",))), world(zones), NOW)
    assert isinstance(found, NoOffer)
    assert (found.until, found.cause) == (NOW + 500, Cause.NO_CAPACITY)


def test_a_zone_that_cannot_be_read_gets_no_request() -> None:
    seen = replace(world(), unread=frozenset({"east-a"}))
    assert chosen(run_with(Policy()), seen).zone == "east-b"
    found = choose(run_with(Policy(zones=("east-a",))), seen, NOW)
    assert isinstance(found, NoOffer)
    assert found.unread
    assert "east-a" in found.detail


@pytest.mark.parametrize(
    ("count", "to", "spot", "shape"),
    [
        (0, "on_demand", True, "t4"),
        (1, "on_demand", True, "t4"),
        (2, "on_demand", False, "t4"),
        (2, "next_shape", True, "l4"),
        (9, "next_shape", True, "l4"),
    ],
)
def test_preemptions_change_the_request(count: int, to: str, spot: bool, shape: str) -> None:
    policy = Policy(shapes=SHAPES, escalate_after=2, escalate_window_s=3600, escalate_to=to)
    run = run_with(policy, tuple(NOW - 10 * number for number in range(count)))
    found = chosen(run, world())
    assert (found.spot, found.shape) == (spot, shape)
    assert bool(escalation_text(run, NOW)) == (count >= 2)
    assert chosen(run, world(), NOW + 7200) == place("east-a")


def test_it_is_off_unless_the_user_says_so() -> None:
    many = tuple(NOW - number for number in range(30))
    assert chosen(run_with(Policy(shapes=SHAPES), many), world()) == place("east-a")
    assert with_preemption((), Policy(), NOW) == ()


def test_only_so_many_preemptions_are_remembered() -> None:
    policy, remembered = Policy(escalate_after=2), ()
    for number in range(100):
        remembered = with_preemption(remembered, policy, NOW + number)
    assert len(remembered) == PREEMPTIONS_KEPT


def test_near_the_deadline_on_demand_comes_first_and_spot_after_it() -> None:
    policy = Policy(limits=Limits(deadline=NOW + 5000), on_demand_before_deadline_s=3600)
    assert chosen(run_with(policy), world()).spot
    assert not chosen(run_with(policy), world(), NOW + 1400).spot
    cold = ZoneRecord(1, NOW + 1900, "no_capacity", "none left")
    zones = {offer_key(offer.placement): cold for offer in OFFERS if not offer.placement.spot}
    assert chosen(run_with(policy), world(zones), NOW + 1400).spot


def test_a_run_with_a_budget_requests_no_machine_whose_price_was_lost_since_its_submit() -> None:
    """Beside a run without one, which gets an answer of its own. Broken variant: a rung without the look at the
    price."""
    limited = Policy(limits=Limits(budget_usd=5.0))
    lost = tuple(replace(offer, price_usd_per_h=None) for offer in OFFERS)
    seen = replace(world(), offers={"gce": (*lost[:1], *OFFERS[1:])}, choices={})
    assert [chosen(run_with(policy), seen) for policy in (Policy(), limited)] == [place("east-a"), place("east-b")]
    none_priced = replace(world(), offers={"gce": lost}, choices={})
    assert chosen(run_with(Policy()), none_priced) == place("east-a")
    waits = choose(run_with(limited), none_priced, NOW)
    assert isinstance(waits, NoOffer)
    assert (waits.cause, waits.until) == (Cause.NO_CAPACITY, NOW + Knobs("s").quota_retry_s)
    assert waits.detail == "no zone of the settings offers this shape at a known price, which its budget needs"
