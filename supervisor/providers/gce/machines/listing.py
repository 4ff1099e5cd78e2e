"""Every machine of the project in one bulk read: aggregatedList, 500 a page, a mask of fields.

A list can be partial without an error: `unreachables` names places that did not answer, and each scope may carry a
warning of its own. What was not read is named as unreachable, a region with all its zones; a word that we do not know
makes every zone unknown. Only NO_RESULTS_ON_PAGE means "there is nothing here".
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from supervisor.providers.gce.calls.clients import Compute
from supervisor.providers.gce.config import region_of
from supervisor.providers.gce.machines.machine import FIELDS

MASK = f"nextPageToken,unreachables,warning/code,items/*/warning/code,items/*/instances({FIELDS})"
PAGE = 500
EMPTY = "NO_RESULTS_ON_PAGE"
_ZONE, _REGION = re.compile(r"zones/([^/]+)"), re.compile(r"regions/([^/]+)")

Item = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Found:
    """`machines`: (zone, the API's own words) of each."""

    machines: tuple[tuple[str, Item], ...]
    unreachable: frozenset[str]


class Listing:
    """Remembers which zones it has ever seen, so that a region that is away takes all of them along."""

    def __init__(self, compute: Compute, zones: Collection[str]) -> None:
        self._compute = compute
        self._own = frozenset(zones)
        self._known = self._own

    def read(self) -> Found:
        """ApiError: a page could not be read, and so nothing was."""
        machines: list[tuple[str, Item]] = []
        away: set[str] = set()
        for page in self._pages():
            for scope, content in (page.get("items") or {}).items():
                zone = scope.rpartition("/")[2]
                if _warns(content):
                    away |= self._zones_of(scope)
                machines += [(zone, item) for item in content.get("instances") or ()]
            away |= self._away(page)
        self._known |= {zone for zone, _ in machines}
        return Found(tuple(machines), frozenset(away))

    def _pages(self) -> Iterator[Mapping[str, Any]]:
        token = ""
        while True:
            query: dict[str, str | int] = {"maxResults": PAGE, "fields": MASK}
            if token:
                query["pageToken"] = token
            page = self._compute.read("aggregated/instances", **query)
            yield page
            token = page.get("nextPageToken") or ""
            if not token:
                return

    def _away(self, page: Mapping[str, Any]) -> frozenset[str]:
        named = page.get("unreachables") or ()
        if _warns(page) and not named:
            return self._known
        return frozenset().union(*(self._zones_of(name) for name in named))

    def _zones_of(self, place: str) -> frozenset[str]:
        """The zones of a scope or an address: a zone, a region, or everything."""
        zone, region = _ZONE.search(place), _REGION.search(place)
        if zone is not None:
            return frozenset({zone.group(1)})
        if region is not None:
            return frozenset(one for one in self._known if region_of(one) == region.group(1))
        return self._known


def _warns(content: Mapping[str, Any]) -> bool:
    return ((content.get("warning") or {}).get("code") or EMPTY) != EMPTY
