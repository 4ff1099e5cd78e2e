"""Where data lies, as Google names places: regions, dual-regions, multi-regions, and the places of registries.

A bucket's own words (location, locationType, customPlacementConfig) are those of storage.v1's discovery document; dual-
and multi-regions are listed at https://cloud.google.com/storage/docs/locations, places of registries at
https://cloud.google.com/artifact-registry/docs/repositories/repo-locations. What an image's name does not tell is not
known: another registry may be anywhere.
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
