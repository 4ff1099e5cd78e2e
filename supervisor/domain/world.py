"""What a decision may know beyond its run: settings, offers, what zones taught us, and how fresh each source is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from supervisor.domain.machines.placement import Offer, OfferKey, ZoneRecord
from supervisor.domain.machines.room import Room
from supervisor.domain.policies import Knobs

MACHINES, BEATS = "machines", "beats"  # sources


def machines_in(zone: str) -> str:
    """The source of one zone's machines: a listing may reach some zones and not others."""
    return f"{MACHINES}:{zone}"


@dataclass(frozen=True, slots=True)
class World:
    knobs: Knobs
    offers: Mapping[str, tuple[Offer, ...]] = field(
        default_factory=dict
    )  # by provider, in order of preference
    zones: Mapping[OfferKey, ZoneRecord] = field(default_factory=dict)
    observing_since: Mapping[str, float] = field(default_factory=dict)  # source -> read without a gap since
    fresh: frozenset[str] = frozenset()  # sources proven fresh in this tick (complete listing, canary)
    breakers_open: frozenset[str] = frozenset()  # sources on whose word nothing is ended
    irreplaceable: frozenset[str] = frozenset()  # providers whose machines cannot be had back
    # After a step, while `now` goes on as before: the wall clock minus `now`. Deadlines go by the wall clock.
    wall_ahead_s: float = 0.0
    unread: frozenset[str] = (
        frozenset()
    )  # zones that the last listing did not reach: nothing is started there
    rooms: Mapping[str, Room] = field(default_factory=dict)  # by provider, where our machines are the limit
    # Runs of these providers that may ask now, and where (lifecycle/offers/queueing); None = nothing of
    # ours is in its way.
    turns: Mapping[int, Offer | None] = field(default_factory=dict)
