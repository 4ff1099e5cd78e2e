"""Google's price list, the Cloud Billing Catalog: prices of a core, a gibibyte, a card, a disk and an address.

The list has about ten thousand lines for Compute Engine. Only the description says what a line is for, and the texts
below are those of the list itself (services/6F81-5844-456A/skus). A line with another text is ignored; where two lines
with different prices match the same part, the price of that part is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from supervisor.providers.gce.calls.clients import Compute

HOME = "https://cloudbilling.googleapis.com"
COMPUTE_ENGINE = "services/6F81-5844-456A"
PAGE, PAGES = 5000, 50
FIELDS = (
    "nextPageToken,skus(description,category(resourceGroup,usageType),serviceRegions,"
    "pricingInfo/pricingExpression(usageUnit,tieredRates/unitPrice))"
)
SPOT, ON_DEMAND = "spot", "on_demand"
_MARKETS = {"OnDemand": ON_DEMAND, "Preemptible": SPOT}
GLOBAL = "global"
GIB_IN_GB = 1.073741824
# Factor from the listed unit to an hour, or to a month of a gibibyte.
_UNITS: Mapping[str, float] = {
    "h": 1.0, "GiBy.h": 1.0, "GiBy.mo": 1.0, "GBy.h": GIB_IN_GB, "GBy.mo": GIB_IN_GB
}  # fmt: skip

CORE, RAM, CARD, DISK, LOCAL_SSD, ADDRESS = "core", "ram", "card", "disk", "local-ssd", "address"
# Series whose lines have a name of their own; the others are named like `E2 Instance Core`.
_SERIES = {
    "n1": "N1 Predefined Instance",
    "n2d": "N2D AMD Instance",
    "c2": "Compute optimized",
    "c2d": "C2D AMD Instance",
    "c3d": "C3D Instance",
    "t2d": "T2D AMD Instance",
}
_CARDS = {
    "nvidia-tesla-t4": "Nvidia Tesla T4 GPU",
    "nvidia-tesla-v100": "Nvidia Tesla V100 GPU",
    "nvidia-tesla-p100": "Nvidia Tesla P100 GPU",
    "nvidia-tesla-p4": "Nvidia Tesla P4 GPU",
    "nvidia-l4": "Nvidia L4 GPU",
    "nvidia-tesla-a100": "Nvidia Tesla A100 GPU",
    "nvidia-a100-80gb": "Nvidia Tesla A100 80GB GPU",
    "nvidia-h100-80gb": "Nvidia H100 80GB GPU",
    "nvidia-h100-mega-80gb": "Nvidia H100 80GB Mega GPU",
}
_DISKS = {
    "pd-standard": "Storage PD Capacity",
    "pd-balanced": "Balanced PD Capacity",
    "pd-ssd": "SSD backed PD Capacity",
    "hyperdisk-balanced": "Hyperdisk Balanced Capacity",
}
_ADDRESSES = {"External IP Charge on a Standard VM": ON_DEMAND, "External IP Charge on a Spot Preemptible VM": SPOT}
_SPOT_FIRST = re.compile(r"^(?:Spot )?Preemptible ")
_SPOT_LATER = re.compile(r" attached to (?:Spot )?Preemptible VMs?")
_PLACE = re.compile(r" (?:running )?in [A-Z].*$")

Part = tuple[str, str]  # such as (CARD, "nvidia-l4")
Prices = dict[Part, dict[str, dict[str, float | None]]]  # by region and market, in dollars; None = two different prices
Names = Mapping[str, Part]  # text of the list -> the part whose price it is


def names_of(series: set[str], cards: set[str], disks: Collection[str]) -> dict[str, Part]:
    """The texts of these parts. A part without a known text is left out."""
    names: dict[str, Part] = {}
    for series_name in series:
        stem = _SERIES.get(series_name, f"{series_name.upper()} Instance")
        names[f"{stem} Core"], names[f"{stem} Ram"] = (CORE, series_name), (RAM, series_name)
    names |= {_CARDS[card]: (CARD, card) for card in cards if card in _CARDS}
    names |= {_DISKS[disk]: (DISK, disk) for disk in disks if disk in _DISKS}
    names["SSD backed Local Storage"] = (LOCAL_SSD, LOCAL_SSD)
    return names


def read(compute: Compute, endpoint: str, names: Names) -> Prices:
    """The whole list, page by page; takes up to a minute. ApiError: a page could not be read, and there is no result.
    ValueError: the prices are not in dollars."""
    prices: Prices = {}
    for sku in _skus(compute, endpoint):
        price = price_of(sku, names)
        if price is None:
            continue
        part, market, usd = price
        for region in sku.get("serviceRegions") or ():
            markets = prices.setdefault(part, {}).setdefault(region, {})
            differs = market in markets and markets[market] != usd
            markets[market] = None if differs else usd
    return prices


def _skus(compute: Compute, endpoint: str) -> Iterator[Mapping[str, Any]]:
    url = f"{(endpoint or HOME).rstrip('/')}/v1/{COMPUTE_ENGINE}/skus"
    query: dict[str, str | int] = {"currencyCode": "USD", "pageSize": PAGE, "fields": FIELDS}
    for _ in range(PAGES):
        page = compute.other_api("GET", url, None, **query)
        yield from page.get("skus") or ()
        if not page.get("nextPageToken"):
            return
        query["pageToken"] = page["nextPageToken"]
    raise ValueError(f"the Cloud Billing Catalog has more than {PAGES} pages")


def price_of(sku: Mapping[str, Any], names: Names) -> tuple[Part, str, float] | None:
    """(part, market, dollars for an hour or a gibibyte's month); None = the line is for no part of `names`."""
    text = str(sku.get("description") or "")
    part, market = (ADDRESS, ADDRESS), _ADDRESSES.get(text)
    if market is None:
        market = _MARKETS.get(str((sku.get("category") or {}).get("usageType")))
        is_spot = bool(_SPOT_FIRST.search(text) or _SPOT_LATER.search(text))
        stem = _PLACE.sub("", _SPOT_LATER.sub("", _SPOT_FIRST.sub("", text)))
        if market is None or is_spot != (market == SPOT) or stem not in names:
            return None
        part = names[stem]
    usd = _usd(sku)
    return None if usd is None else (part, market, usd)


def _usd(sku: Mapping[str, Any]) -> float | None:
    """The price above the free tier; None where it is missing, or in an unknown unit. ValueError for another currency
    than dollars."""
    info = sku.get("pricingInfo") or ()
    expression = (info[-1].get("pricingExpression") or {}) if info else {}
    rates = expression.get("tieredRates") or ()
    factor = _UNITS.get(str(expression.get("usageUnit")))
    if not rates or factor is None:
        return None
    usd = money_usd(rates[-1].get("unitPrice") or {})
    return None if usd is None or usd <= 0 else usd * factor


def money_usd(price: Mapping[str, Any]) -> float | None:
    """Google's Money: whole units as text and billionths. None = no price. ValueError: not in dollars."""
    if not price:
        return None
    if price.get("currencyCode", "USD") != "USD":
        raise ValueError(f"the prices are in {price['currencyCode']}, not in USD")
    return int(price.get("units") or 0) + int(price.get("nanos") or 0) / 1e9


def part_usd(prices: Prices, part: Part, region: str, market: str) -> float | None:
    """None = unknown, or not clear."""
    regions = prices.get(part, {})
    for place in (region, GLOBAL):
        if market in regions.get(place, {}):
            return regions[place][market]
    return None
