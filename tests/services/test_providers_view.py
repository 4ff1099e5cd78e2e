"""What is told of the providers: their traits and places, and how the leader reads them."""

from __future__ import annotations

import pytest

from supervisor.services.reading.health import LoopStatus
from supervisor.services.reading.offers import providers_json
from supervisor.services.views.formats import Json
from tests.services.bed import Bed


def shown(bed: Bed, loop: LoopStatus) -> Json:
    (only,) = providers_json(bed.parts, loop)["providers"]
    return dict(only)


def test_traits_and_places_come_from_the_provider(bed: Bed) -> None:
    told, traits = shown(bed, LoopStatus()), bed.parts.providers["local"].traits
    assert (told["name"], told["kind"], told["title"]) == ("local", traits.kind, traits.title)
    assert (told["images"], told["irreplaceable"]) == (traits.images, traits.irreplaceable)
    assert (told["stores"], told["meter"]) == (dict(traits.stores), traits.meter)
    assert [place["zone"] for place in told["places"]] == ["local-a", "local-b", "local-c"]
    assert all(place["shapes"] == ["cpu"] for place in told["places"])


@pytest.mark.parametrize(
    ("ages", "breakers", "expected"),
    [
        ({}, {}, (None, None, None)),  # another supervisor leads
        ({}, {"local": False}, (None, False, "closed")),
        ({"local": 3.04}, {"local": False}, (3.0, True, "closed")),
        ({"local": 3.0}, {"local": True}, (3.0, True, "open")),
        ({"local": 1e6}, {"local": False}, (1e6, False, "closed")),
    ],
)
def test_what_the_leader_reads(
    bed: Bed, ages: dict[str, float], breakers: dict[str, bool], expected: tuple[object, ...]
) -> None:
    told = shown(bed, LoopStatus(listing_ages=ages, breakers_open=breakers))
    assert (told["listing_age_s"], told["listing_read"], told["breaker"]) == expected
