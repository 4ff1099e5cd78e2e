"""Which zone of one shape and price comes first: lives, returns, the platform's advice, and groups that are spread."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import pytest

from supervisor.domain.causes import Cause
from supervisor.domain.machines import Call, Offer, Outlook, Placement, ZoneRecord, offer_key
from supervisor.domain.observation import CreateFailed, World
from supervisor.domain.policies import Knobs, Policy
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.lifecycle.decide import decide
from supervisor.lifecycle.offers import ranking
from supervisor.lifecycle.offers.choosing import NoOffer, choose
from supervisor.lifecycle.offers.lessons import after_failure, after_loss, lessons_of, return_s
from supervisor.lifecycle.rungs.survival import outlooks
from tests.lifecycle.training_on import NOW as TRAINS_AT
from tests.lifecycle.training_on import situations_by_chance
from tests.lifecycle.worlds import NOW

HOUR = 3600.0
ZONES = ("a", "b", "c")


def place(zone: str, spot: bool = True) -> Placement:
    return Placement("gce", "here", zone, "t4", spot)


def offers(prices: dict[str, float] | None = None) -> tuple[Offer, ...]:
    return tuple(Offer(place(zone), (prices or {}).get(zone, 0.1), 0.3) for zone in ZONES)


def life(zone: str, hours_ago: float, hours: float, lost: bool = True) -> Call:
    at = NOW - hours_ago * HOUR
    return Call(offer_key(place(zone)), at, obtained=True, ended_at=at + hours * HOUR, lost=lost)


def refusal(zone: str, minutes_ago: float) -> Call:
    return Call(offer_key(place(zone)), NOW - 60 * minutes_ago, obtained=False)


def world_of(*calls: Call, prices: dict[str, float] | None = None) -> World:
    return World(Knobs("s"), offers={"gce": offers(prices)}, outlooks=outlooks(calls, NOW))


def run_of(key: int = 1, group: str = "", max_parallel: int | None = None) -> Run:
    policy = Policy(group=group, max_parallel=max_parallel)
    return Run(key, f"r-{key}", "me", "c", "gce", 1, Status.RECOVERING, policy, NOW, NOW, NOW)


def zone_for(run: Run, world: World, now: float = NOW) -> str:
    choice = choose(run, world, now)
    assert isinstance(choice, Offer)
    return choice.placement.zone


SHORT = tuple(life("a", 60 - 2 * n, 0.5) for n in range(10))
LONG = tuple(life("b", 60 - 5 * n, 4.0, lost=False) for n in range(10))


def test_the_zone_whose_machines_live_longer_comes_first() -> None:
    assert zone_for(run_of(), world_of()) == "a", "without any memory: the order of the settings"
    assert zone_for(run_of(), world_of(*SHORT, *LONG)) == "b"
    assert zone_for(run_of(), world_of(*SHORT)) == "b", "the prior is better than what a has shown"


def test_a_price_that_differs_keeps_the_order_of_the_settings() -> None:
    assert zone_for(run_of(), world_of(*SHORT, *LONG, prices={"b": 0.2, "c": 0.2})) == "a"


def test_a_zone_that_was_down_a_moment_ago_comes_later_and_that_fades() -> None:
    record = ZoneRecord(0, 0.0, "", "", (), NOW - 60)
    seen = replace(world_of(), zones={offer_key(place("a")): record})
    assert zone_for(run_of(), seen) == "b"
    later = replace(seen, judged={})
    assert zone_for(run_of(), later, NOW + 24 * HOUR) == "a"


def test_the_advice_of_the_platform_counts_where_we_have_seen_nothing() -> None:
    advised = tuple(replace(offer, chance=0.2 if offer.placement.zone == "a" else 0.9) for offer in offers())
    assert zone_for(run_of(), replace(world_of(), offers={"gce": advised})) == "b"


def test_a_measured_return_sets_the_cool_down_within_its_bounds() -> None:
    quick = [call for n in range(6) for call in (refusal("a", 600 - 60 * n), life("a", 9.9 - n, 0.5))]
    slow = [refusal("b", 20 * n) for n in range(1, 30)]
    knobs = Knobs("s")
    for calls, zone, least, most in (
        (quick, "a", knobs.cooldown_min_s, 900.0),
        (slow + quick[:2], "b", 1200.0, knobs.cooldown_max_s),
    ):
        outlook = outlooks(calls, NOW)[offer_key(place(zone))]
        assert outlook.is_measured
        record = after_failure(None, Cause.NO_CAPACITY, "none", world_of(), NOW, outlook=outlook)
        assert least <= record.cool_until - NOW <= most
    again = after_failure(record, Cause.NO_CAPACITY, "none", world_of(), NOW, outlook=outlook)
    assert again.cool_until == record.cool_until, "it does not double: the waits themselves lower the rate"


def test_without_measured_returns_the_cool_down_doubles_and_a_loss_cools_nothing() -> None:
    world = world_of(refusal("a", 5))
    assert return_s(world.outlooks[offer_key(place("a"))]) is None
    failed = CreateFailed("1.1.1", Cause.NO_CAPACITY, "none")
    ((key, record),) = lessons_of(failed, place("a"), world, NOW)
    assert record is not None
    assert record.cool_until == NOW + 180
    ((_, lost),) = after_loss(place("a"), replace(world, zones={key: ZoneRecord(0, 0.0, "", "")}), NOW)
    assert lost is not None
    assert lost.cool_until == 0.0


def test_a_lost_zone_that_takes_long_to_come_back_is_not_requested_at_once() -> None:
    slow = [*(refusal("a", 20 * n) for n in range(2, 30)), life("a", 0.4, 0.2)]
    world = world_of(*slow)
    ((key, record),) = after_loss(place("a"), world, NOW)
    assert record is not None
    choice = choose(replace(run_of(), policy=Policy(zones=("a",))), replace(world, zones={key: record}), NOW)
    assert isinstance(choice, NoOffer)
    assert choice.until == record.cool_until
    assert NOW + 180 <= record.cool_until <= NOW + 1800
    assert "preempted" in choice.detail


def test_runs_of_a_group_are_spread_over_zones_that_cost_about_the_same() -> None:
    zones = Counter(zone_for(run_of(key, "sweep"), replace(world_of(), choices={})) for key in range(1, 61))
    assert zones == {"a": 20, "b": 20, "c": 20}
    alone = Counter(zone_for(run_of(key), world_of()) for key in range(1, 61))
    assert alone == {"a": 60}, "runs without a group take the best"
    one = Counter(zone_for(run_of(key, "chain", max_parallel=1), world_of()) for key in range(1, 61))
    assert one == {"a": 60}
    bad = Counter(zone_for(run_of(key, "sweep"), world_of(*SHORT)) for key in range(1, 61))
    assert set(bad) == {"b", "c"}, "a zone that costs much more is no place for a part of a group"


def test_when_a_zone_falls_its_runs_part_again() -> None:
    record = ZoneRecord(1, NOW + 600, "no_capacity", "none")
    fallen = replace(world_of(), zones={offer_key(place("a")): record})
    on_a = [run for key in range(1, 61) if zone_for(run := run_of(key, "sweep"), world_of()) == "a"]
    assert Counter(zone_for(run, fallen) for run in on_a) == {"b": 10, "c": 10}


def test_answers_are_shared_by_all_runs_of_one_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten thousand runs of a group are a few questions."""
    world = replace(world_of(), choices={})
    for key in range(1, 1001):
        choose(run_of(key, "sweep"), world, NOW)
    assert world.choices is not None
    assert len(world.choices) == ranking.LANES


def test_a_machine_that_works_is_not_moved_for_what_zones_promise_or_cost() -> None:
    """Whatever others cost, and however long they live: the same decision for the same machine, of any age."""
    living = [each for each in situations_by_chance(random.Random(7), 400) if each[0].live_attempt is not None]
    assert len(living) > 200
    for run, obs, world in living:
        own = world.offers.get("local", ())
        cheap = tuple(
            replace(offer, price_usd_per_h=0.001, chance=1.0)
            for offer in own
            if run.attempt is None or offer.placement != run.attempt.placement
        )
        best = {offer_key(offer.placement): Outlook(7200.0, 1.0, True, TRAINS_AT, 100, 0) for offer in cheap}
        tempting = replace(world, offers={"local": (*cheap, *own)}, outlooks=best, judged={})
        before, after = decide(run, obs, world, TRAINS_AT), decide(run, obs, tempting, TRAINS_AT)
        assert (before.run, before.actions) == (after.run, after.actions)


@pytest.mark.parametrize("name", ["LANES", "ALIKE"])
def test_the_test_of_groups_notices_that_they_are_not_spread(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Broken variants: one lane for all; every zone is good enough."""
    monkeypatch.setattr(ranking, name, 1 if name == "LANES" else 1e9)
    with pytest.raises(AssertionError):
        test_runs_of_a_group_are_spread_over_zones_that_cost_about_the_same()


def test_the_test_of_lives_notices_that_they_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranking, "cost_of", lambda *_: 1.0)
    with pytest.raises(AssertionError):
        test_the_zone_whose_machines_live_longer_comes_first()
