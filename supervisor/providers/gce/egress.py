"""What a GB costs that a machine reads from another place of Google's, in US dollars.

Figures of https://cloud.google.com/storage/pricing and https://cloud.google.com/artifact-registry/pricing, sections
on data transfer within Google Cloud: within a continent, and between North America and Europe. Reading from a
multi-region bucket costs as much as between two regions of its continent; from a multi-region registry nothing.
"""

from __future__ import annotations

from supervisor.providers.gce.locations import MULTI, Location

_CONTINENTS = {
    "us": "north america", "northamerica": "north america",
    "eu": "europe", "europe": "europe", "nam4": "north america",
    "eur4": "europe", "eur5": "europe", "eur7": "europe", "eur8": "europe",
    "asia": "asia", "asia1": "asia",
}  # fmt: skip
_USD_PER_GB = {
    frozenset({"north america"}): 0.02,
    frozenset({"europe"}): 0.02,
    frozenset({"north america", "europe"}): 0.05,
}


def from_bucket(place: Location, region: str) -> float | None:
    """None: not known here."""
    if place.covers(region) and place.kind != MULTI:
        return 0.0
    return _between(place, region)


def from_registry(place: Location, region: str) -> float | None:
    """None: not known here."""
    return 0.0 if place.covers(region) else _between(place, region)


def _between(place: Location, region: str) -> float | None:
    here, there = _continent(region), _continent(place.name)
    return None if here is None or there is None else _USD_PER_GB.get(frozenset({here, there}))


def _continent(place: str) -> str | None:
    return _CONTINENTS.get(place.partition("-")[0])
