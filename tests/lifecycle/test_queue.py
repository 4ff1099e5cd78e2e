"""The order of a plan is the order of the requests, whatever has refused before."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings

from supervisor.domain.causes import Cause
from supervisor.domain.machines import Offer, offer_key
from supervisor.domain.observation import World
from supervisor.domain.run import Run
from supervisor.lifecycle.offers.choosing import choose, queue
from supervisor.lifecycle.offers.ladder import ladder
from supervisor.lifecycle.offers.lessons import after_failure
from tests.lifecycle.strategies import NOW
from tests.lifecycle.test_placement import choices


@given(choices())
@settings(max_examples=60, deadline=None)
def test_each_refusing_offer_is_followed_by_the_next_of_the_queue(choice: tuple[Run, World]) -> None:
    run, world = choice
    foretold = queue(run, world, NOW)
    assert sorted(offer_key(o.placement) for o, _ in foretold) == sorted(
        offer_key(o.placement) for o in ladder(run, world, NOW)
    )
    for offer, cooling in foretold:
        chosen = choose(run, world, NOW)
        if cooling is not None:
            assert not isinstance(chosen, Offer), "only what is cooling is left"
            return
        assert chosen == offer
        key = offer_key(offer.placement)
        refused = after_failure(world.zones.get(key), Cause.NO_CAPACITY, "none left", world, NOW)
        world = replace(world, zones={**world.zones, key: refused})
