"""Worlds for properties of decide(): offers, lessons of zones, readable sources and zones."""

from __future__ import annotations

from hypothesis import strategies as st

from supervisor.domain.machines import Offer, Placement, ZoneRecord, offer_key
from supervisor.domain.observation import BEATS, MACHINES, Unknown, World, machines_in
from supervisor.domain.policies import Knobs

NOW = 1_000_000.0
IMAGE = "team/train:nightly"
ZONES = ("zone-a", "zone-b", "zone-c")
UNKNOWN = Unknown("could not be read")


def placement(zone: str = "zone-a", shape: str = "small", spot: bool = True) -> Placement:
    return Placement("local", "here", zone, shape, spot)


def offers(shapes: tuple[str, ...] = ("small",)) -> tuple[Offer, ...]:
    return tuple(
        Offer(placement(zone, shape, spot), 0.1 if spot else 0.3, 0.3)
        for spot in (True, False)
        for shape in shapes
        for zone in ZONES
    )


@st.composite
def worlds(draw: st.DrawFn) -> World:
    cooling = draw(st.sets(st.sampled_from(ZONES)))
    zones = {
        offer_key(placement(zone)): ZoneRecord(
            1, NOW + draw(st.sampled_from([-5.0, 100.0])), "no_capacity", "none left"
        )
        for zone in cooling
    }
    lost = offer_key(placement(draw(st.sampled_from(ZONES))))
    zones.setdefault(lost, ZoneRecord(0, 0.0, "", "", (NOW - 300.0,)))
    since = draw(st.sampled_from([NOW - 100_000, NOW - 100, NOW]))
    return World(
        knobs=Knobs("supervisor-1"),
        offers={"local": offers()},
        zones=zones,
        observing_since={BEATS: since, MACHINES: since, **draw(st.sampled_from([{}, {machines_in("zone-a"): NOW}]))},
        fresh=draw(st.sampled_from([frozenset({BEATS, MACHINES}), frozenset()])),
        breakers_open=draw(st.sampled_from([frozenset(), frozenset({BEATS, MACHINES})])),
        unread=frozenset(draw(st.sampled_from([(), (), ("zone-a",), ZONES]))),
    )
