"""Zone order: the lost zone is never first while another is good; cooling offers wait; the ladder keeps its order."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from supervisor.domain.causes import Cause
from supervisor.domain.machines import Offer, ZoneRecord, offer_key
from supervisor.domain.observation import World
from supervisor.domain.policies import Knobs, Policy
from supervisor.domain.run import Run
from supervisor.domain.status import Status
from supervisor.lifecycle.offers.choosing import NoOffer, choose
from supervisor.lifecycle.offers.ladder import escalation_text, ladder
from supervisor.lifecycle.offers.lessons import after_failure
from tests.lifecycle.strategies import NOW, ZONES, offers, runs

SHAPES = ("small", "large")
ANY = Policy()


@st.composite
def choices(draw: st.DrawFn) -> tuple[Run, World]:
    run = draw(runs(frozenset({Status.RECOVERING})))
    zones = draw(st.lists(st.sampled_from(ZONES), unique=True).map(tuple))
    shapes = draw(st.lists(st.sampled_from(SHAPES), unique=True, min_size=1).map(tuple))
    policy = replace(run.policy, zones=zones, shapes=shapes, allow_on_demand=draw(st.booleans()))
    cooling = draw(st.sets(st.sampled_from(offers(SHAPES))))
    records = {offer_key(offer.placement): ZoneRecord(1, NOW + 60, "no_capacity", "none left") for offer in cooling}
    # A run that keeps a machine requests nothing else: tests/lifecycle/test_keeping.py.
    free = tuple(item for item in run.retiring if item.kept is None)
    return replace(run, policy=policy, retiring=free), World(
        Knobs("s"), offers={"local": offers(SHAPES)}, zones=records
    )


def good_zones(run: Run, world: World) -> set[str]:
    cold = {key for key, record in world.zones.items() if record.cool_until > NOW}
    return {o.placement.zone for o in ladder(run, world, NOW) if offer_key(o.placement) not in cold}


def avoided_never_first(chosen: Offer | NoOffer, run: Run, world: World) -> None:
    good = good_zones(run, world)
    if good - {run.avoid_zone}:
        assert isinstance(chosen, Offer)
        assert chosen.placement.zone != run.avoid_zone
    else:
        assert isinstance(chosen, Offer) == bool(good)


@given(choices())
def test_an_avoided_zone_is_never_first_while_another_is_good(choice: tuple[Run, World]) -> None:
    run, world = choice
    avoided_never_first(choose(run, world, NOW), run, world)


def test_a_ladder_that_forgets_the_lost_zone_is_caught() -> None:
    @settings(database=None, phases=[Phase.generate])  # it need not shrink
    @given(choices())
    def broken(choice: tuple[Run, World]) -> None:
        run, world = choice
        avoided_never_first(choose(replace(run, avoid_zone=""), world, NOW), run, world)

    with pytest.raises(AssertionError):
        broken()


@given(choices())
def test_only_offers_that_the_run_allows_and_that_do_not_cool(choice: tuple[Run, World]) -> None:
    run, world = choice
    chosen = choose(run, world, NOW)
    if isinstance(chosen, Offer):
        place = chosen.placement
        assert place.shape in run.policy.shapes
        assert not run.policy.zones or place.zone in run.policy.zones
        assert place.spot or run.policy.allow_on_demand or escalation_text(run, NOW)
        record = world.zones.get(offer_key(place))
        assert record is None or not record.failures or record.cool_until <= NOW
        assert place.zone not in world.unread
    else:
        assert chosen.until > NOW


def plain_run(policy: Policy = ANY) -> tuple[Run, World]:
    made = Run(1, "r", "local", "c", "local", 1, Status.PENDING, policy, NOW, NOW, NOW)
    return made, World(Knobs("s"), offers={"local": offers(SHAPES)})


def test_other_zones_first_then_the_next_shape_then_on_demand() -> None:
    run, world = plain_run(Policy(shapes=SHAPES, allow_on_demand=True))
    order = [(o.placement.zone, o.placement.shape, o.placement.spot) for o in ladder(run, world, NOW)]
    expected = [(zone, shape, spot) for spot in (True, False) for shape in SHAPES for zone in ZONES]
    assert order == expected


def test_the_providers_order_of_zones_is_that_of_each_kind_of_machine() -> None:
    """Capacity advice may rank the zones of one shape, or of spot machines, differently from those of the next."""
    run, world = plain_run(Policy(shapes=SHAPES, allow_on_demand=True))
    first = ("small", True)
    reordered = sorted(offers(SHAPES), key=lambda o: (o.placement.shape, o.placement.spot) == first)
    reordered = [o for o in reversed(reordered) if (o.placement.shape, o.placement.spot) == first] + [
        o for o in reordered if (o.placement.shape, o.placement.spot) != first
    ]
    advised = replace(world, offers={"local": tuple(reordered)})
    order = [(o.placement.zone, o.placement.shape, o.placement.spot) for o in ladder(run, advised, NOW)]
    expected = [
        (zone, shape, spot)
        for spot in (True, False)
        for shape in SHAPES
        for zone in (reversed(ZONES) if (shape, spot) == first else ZONES)
    ]
    assert order == expected
    run, world = plain_run(Policy(shapes=SHAPES, zones=ZONES))
    advised = replace(world, offers={"local": tuple(reordered)})
    assert [o.placement.zone for o in ladder(run, advised, NOW)][: len(ZONES)] == list(ZONES)


def test_without_shapes_only_the_first_shape_is_requested() -> None:
    run, world = plain_run()
    assert {o.placement.shape for o in ladder(run, world, NOW)} == {"small"}


def test_cool_downs_double_from_three_to_thirty_minutes_and_expire() -> None:
    world = World(Knobs("s"))
    record, pauses = None, []
    for _ in range(6):
        record = after_failure(record, Cause.NO_CAPACITY, "none left", world, NOW)
        pauses.append(record.cool_until - NOW)
    assert pauses == [180, 360, 720, 1440, 1800, 1800]
    run, world = plain_run(Policy(zones=("zone-a",)))
    cooled = replace(world, zones={offer_key(offers()[0].placement): record})
    assert isinstance(choose(run, cooled, NOW), NoOffer)
    assert isinstance(choose(run, cooled, record.cool_until), Offer)


def test_quota_has_its_own_slower_pace() -> None:
    world = World(Knobs("s", quota_retry_s=600.0))
    assert after_failure(None, Cause.QUOTA, "0 of 0", world, NOW).cool_until == NOW + 600
