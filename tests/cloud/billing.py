"""The Cloud Billing Catalog on loopback: `services/6F81-5844-456A/skus` and nothing else, page by page.

Lines are written as Google writes them: a description that says what it is, a usage type, regions, a unit, tiered rates
in units and billionths. `add` makes one; what a test does not say is not there. Noise that a reader must leave out
(commitments, reservations, custom machines) is always among the lines.
"""

from __future__ import annotations

import re
from typing import Any

from tests.cloud.compute_mask import apply_mask, parse_mask
from tests.cloud.web import Request, Response, Watch, WebServer

COMPUTE_ENGINE = "services/6F81-5844-456A"
_SKUS = re.compile(r"/v1/(services/[^/]+)/skus")
PER_HOUR, PER_GIB_HOUR, PER_GIB_MONTH = "h", "GiBy.h", "GiBy.mo"


class BillingFake:
    """`page_rows`: lines of one page at most, whatever the request says. `currency`: of the prices."""

    def __init__(self, watch: Watch | None = None) -> None:
        self.requests: list[Request] = []
        self.skus: list[dict[str, Any]] = []
        self.page_rows = 5000
        self.currency = "USD"
        self._faults: dict[int, Response | Exception] = {}
        self.server = WebServer(self._answer, watch)
        self._noise()

    @property
    def url(self) -> str:
        return self.server.url

    def close(self) -> None:
        self.server.close()

    def add(
        self,
        description: str,
        usd: float,
        *,
        region: str = "us-east1",
        unit: str = PER_HOUR,
        usage: str = "OnDemand",
        group: str = "CPU",
        free_first: float = 0.0,
    ) -> None:
        """`free_first`: so many units cost nothing, as the first 30 GB of a standard disk."""
        self.skus.append(
            {
                "name": f"{COMPUTE_ENGINE}/skus/{len(self.skus):04X}-0000-0000",
                "skuId": f"{len(self.skus):04X}-0000-0000",
                "description": description,
                "category": {
                    "serviceDisplayName": "Compute Engine",
                    "resourceFamily": "Compute",
                    "resourceGroup": group,
                    "usageType": usage,
                },
                "serviceRegions": [region],
                "pricingInfo": [{"summary": "", "pricingExpression": self._expression(usd, unit, free_first)}],
                "serviceProviderName": "Google",
            }
        )

    def add_machine(self, series: str, core: float, ram: float, spot: float, region: str = "us-east1") -> None:
        """Core and memory of a series such as `N1 Predefined Instance`; `spot`: the share that Spot costs, 0 to 1."""
        for what, usd, unit in (("Core", core, PER_HOUR), ("Ram", ram, PER_GIB_HOUR)):
            self.add(f"{series} {what} running in Americas", usd, region=region, unit=unit)
            text = f"Spot Preemptible {series} {what} running in Americas"
            self.add(text, usd * spot, region=region, unit=unit, usage="Preemptible")

    def add_card(self, name: str, usd: float, spot_usd: float, region: str = "us-east1") -> None:
        self.add(f"{name} running in Americas", usd, region=region, group="GPU")
        text = f"{name} attached to Spot Preemptible VMs running in Americas"
        self.add(text, spot_usd, region=region, group="GPU", usage="Preemptible")

    def add_addresses(self, usd: float, spot_usd: float) -> None:
        for kind, price in (("Standard", usd), ("Spot Preemptible", spot_usd)):
            self.add(f"External IP Charge on a {kind} VM", price, region="global", group="IpAddress")

    def fail_page(self, number: int, answer: Response | Exception) -> None:
        """The request for that page (from 1), each time."""
        self._faults[number] = answer

    def calm(self) -> None:
        self._faults.clear()

    def _expression(self, usd: float, unit: str, free_first: float) -> dict[str, Any]:
        nanos = round(usd * 1e9)
        price = {"currencyCode": self.currency, "units": str(nanos // 10**9), "nanos": nanos % 10**9}
        nothing = {"currencyCode": self.currency, "units": "0", "nanos": 0}
        rates = [{"startUsageAmount": 0, "unitPrice": nothing}] if free_first else []
        rates.append({"startUsageAmount": free_first, "unitPrice": price})
        return {"usageUnit": unit, "displayQuantity": 1, "tieredRates": rates}

    def _noise(self) -> None:
        self.add("Commitment v1: N1 Cpu in Americas for 1 Year", 0.0001, usage="Commit1Yr")
        self.add("Reserved N1 Predefined Instance Core in Americas", 0.0002, usage="OnDemand")
        self.add("Custom Instance Core running in Americas", 0.0003)
        self.add("N1 Predefined Instance Core running in Americas", 0.0004, usage="Commit3Yr")
        self.add("Nvidia Tesla T4 GPU Sole Tenancy running in Americas", 0.0005, group="GPU")
        self.add("Regional SSD backed PD Capacity", 0.0006, unit=PER_GIB_MONTH, group="SSD")

    def _answer(self, request: Request) -> Response:
        self.requests.append(request)
        match = _SKUS.fullmatch(request.path)
        if not request.headers.get("authorization"):
            return _refusal(401, "Request is missing required authentication credential.", "UNAUTHENTICATED")
        if request.method != "GET" or match is None or match[1] != COMPUTE_ENGINE:
            return _refusal(404, "Requested entity was not found.", "NOT_FOUND")
        if request.one("currencyCode", "USD") != "USD":
            return _refusal(400, "Only USD here.", "INVALID_ARGUMENT")
        start = int(request.one("pageToken") or 0)
        size = min(int(request.one("pageSize") or 5000), self.page_rows)
        fault = self._faults.get(start // size + 1)
        if isinstance(fault, Exception):
            raise fault
        if fault is not None:
            return fault
        more = start + size < len(self.skus)
        page = {"skus": self.skus[start : start + size], "nextPageToken": str(start + size) if more else ""}
        return Response(200, apply_mask(page, parse_mask(request.one("fields") or "*")))


def _refusal(status: int, message: str, word: str) -> Response:
    return Response(status, {"error": {"code": status, "message": message, "status": word}})


def switched_off(project: str = "p") -> Response:
    """As Google says it where the API was never switched on."""
    message = (
        f"Cloud Billing API has not been used in project {project} before or it is disabled. Enable it by visiting "
        "https://console.developers.google.com/apis/api/cloudbilling.googleapis.com/overview then retry."
    )
    error = {"code": 403, "message": message, "status": "PERMISSION_DENIED"}
    details = [{"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "SERVICE_DISABLED"}]
    return Response(403, {"error": {**error, "details": details}})
