"""Capacity advice: how likely a zone is to give machines, how long Spot VMs live there, and what they cost.

A test sets the truth: `advice.obtainability[zone]`, `advice.uptime_s[zone]`, `advice.preemption_rate[zone]`,
`advice.price_usd[zone]`; the default is an average zone. `advice.offered = False`: the API does not exist (404).
"""

from __future__ import annotations

from typing import Any

from tests.cloud.compute_catalog import Catalog, region_of
from tests.cloud.compute_errors import GOOGLE, ApiError, invalid, rfc3339

_DAY_S = 86400


class Advice:
    def __init__(self, catalog: Catalog) -> None:
        self.offered = True
        self.obtainability: dict[str, float] = {}
        self.uptime_s: dict[str, int] = {}
        self.preemption_rate: dict[str, float] = {}
        self.price_usd: dict[str, float] = {}
        self._catalog = catalog

    def capacity(self, region: str, asked: dict[str, Any]) -> dict[str, Any]:
        """advice.capacity: one recommendation, in the best of the requested zones."""
        self._check(region)
        model = asked.get("instanceProperties", {}).get("scheduling", {}).get("provisioningModel")
        if model != "SPOT":
            raise invalid("instanceProperties.scheduling.provisioningModel", model, "Must be SPOT.")
        selections = asked.get("instanceFlexibilityPolicy", {}).get("instanceSelections", {})
        types = [name for one in selections.values() for name in one.get("machineTypes", [])]
        if not types or asked.get("size", 0) < 1:
            raise ApiError(400, "At least one machine type and a size of at least 1 are required.")
        given = asked.get("distributionPolicy", {}).get("zones", [])
        zones = [one["zone"].rsplit("/", 1)[-1] for one in given] or self._zones(region)
        if wrong := [zone for zone in zones if zone not in self._zones(region)]:
            raise invalid("distributionPolicy.zones", wrong[0], "Unknown zone.")
        best = max(zones, key=lambda zone: self.obtainability.get(zone, 0.5))
        scores = {
            "obtainability": self.obtainability.get(best, 0.5),
            "estimatedUptime": "%ds" % self.uptime_s.get(best, 6 * 3600),
        }
        shard = {
            "zone": "%s/projects/%s/zones/%s" % (GOOGLE, self._catalog.project, best),
            "machineType": types[0],
            "instanceCount": asked["size"],
            "provisioningModel": "SPOT",
        }
        return {"recommendations": [{"scores": scores, "shards": [shard]}]}

    def history(self, region: str, asked: dict[str, Any], now: float) -> dict[str, Any]:
        """advice.capacityHistory: the last seven days of one zone or region."""
        self._check(region)
        properties = asked.get("instanceProperties", {})
        if properties.get("scheduling", {}).get("provisioningModel") != "SPOT":
            raise invalid("instanceProperties.scheduling.provisioningModel", "", "Must be SPOT.")
        location = asked.get("locationPolicy", {}).get("location", "regions/" + region)
        place = location.rsplit("/", 1)[-1]
        if place != region and place not in self._zones(region):
            raise invalid("locationPolicy.location", location, "Unknown location.")
        told: dict[str, Any] = {
            "location": "%s/projects/%s/%s/%s"
            % (GOOGLE, self._catalog.project, "regions" if place == region else "zones", place),
            "machineType": properties.get("machineType", ""),
        }
        days = [
            {"startTime": rfc3339(now - day * _DAY_S), "endTime": rfc3339(now - (day - 1) * _DAY_S)}
            for day in range(7, 0, -1)
        ]
        types = asked.get("types", [])
        if "PREEMPTION" in types:
            rate = self.preemption_rate.get(place, 0.05)
            told["preemptionHistory"] = [{"interval": day, "preemptionRate": rate} for day in days]
        if "PRICE" in types:
            price = self.price_usd.get(place, 0.11)
            money = {"currencyCode": "USD", "units": str(int(price)), "nanos": round(price % 1 * 1e9)}
            told["priceHistory"] = [{"interval": day, "listPrice": money} for day in days]
        return told

    def _check(self, region: str) -> None:
        if not self.offered:
            raise ApiError(404, "Method not found.", "notFound")
        self._catalog.region(region)

    def _zones(self, region: str) -> list[str]:
        return [zone for zone in self._catalog.zones if region_of(zone) == region]
