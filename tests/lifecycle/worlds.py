"""Worlds for properties of decide(): offers, lessons of zones, readable sources and zones."""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations
from typing import Any

from hypothesis import strategies as st

from supervisor.domain.machines import Offer, Placement, Quota, ZoneRecord, offer_key
from supervisor.domain.observation import BEATS, MACHINES, Unknown, World, machines_in
from supervisor.domain.policies import Knobs
from supervisor.domain.status import Status

NOW = 1_000_000.0
IMAGE = "team/train:nightly"
ZONES = ("zone-a", "zone-b", "zone-c")
UNKNOWN = Unknown("could not be read")


# The status of the run before, where there is one; None = it was not read.
BEFORE = st.sampled_from((Status.COMPLETED, Status.COMPLETED, Status.RUNNING, Status.FAILED, None))


@lru_cache(maxsize=None, typed=True)
def among(*options: Any) -> st.SearchStrategy[Any]:
    """One of these, the simplest first. Made once: a strategy costs ten times as much to make as to draw from."""
    return st.sampled_from(options)


def placement(zone: str = "zone-a", shape: str = "small", spot: bool = True) -> Placement:
    return Placement("local", "here", zone, shape, spot)


def offers(shapes: tuple[str, ...] = ("small",)) -> tuple[Offer, ...]:
    return tuple(
        Offer(placement(zone, shape, spot), 0.1 if spot else 0.3, 0.3)
        for spot in (True, False)
        for shape in shapes
        for zone in ZONES
    )


def world(draw: st.DrawFn) -> World:
    cooling = draw(among((), *((zone,) for zone in ZONES), *combinations(ZONES, 2), ZONES))
    zones = {
        offer_key(placement(zone)): ZoneRecord(1, NOW + draw(among(-5.0, 100.0)), "no_capacity", "none left")
        for zone in cooling
    }
    lost = offer_key(placement(draw(among(*ZONES))))
    zones.setdefault(lost, ZoneRecord(0, 0.0, "", "", (NOW - 300.0,)))
    since = draw(among(NOW - 100_000, NOW - 100, NOW))
    zone_a_since = draw(among(None, NOW))
    observing = {} if zone_a_since is None else {machines_in("zone-a"): zone_a_since}
    return World(
        knobs=Knobs("supervisor-1"),
        offers={"local": OFFERS},
        zones=zones,
        observing_since={BEATS: since, MACHINES: since, **observing},
        fresh=draw(among(frozenset({BEATS, MACHINES}), frozenset())),
        breakers_open=draw(among(frozenset(), frozenset({BEATS, MACHINES}))),
        unread=frozenset(draw(among((), (), ("zone-a",), ZONES))),
        statuses={"prepare": status} if (status := draw(BEFORE)) is not None else {},
        no_slot={1: "others of its group come first"} if draw(among(False, False, True)) else {},
        without_offer=frozenset(draw(among((), (1,)))),
        quotas=HOURS[draw(among(0, 0, 1, 2))],
    )


OFFERS = offers()
# No hours are counted; they are used up until tomorrow; they could not be read.
HOURS: tuple[dict[tuple[str, str], Quota], ...] = (
    {},
    {("local", "small"): Quota("GPU hours", NOW - 60.0, 0.0, NOW + 86_400.0, 30.0)},
    {("local", "small"): Quota("GPU hours", NOW - 60.0)},
)
