"""Google's price list, the Cloud Billing Catalog: what a core, a gibibyte, a card, a disk and an address cost.

The list has some ten thousand lines for Compute Engine and no field that says what a line is for: its description does.
The wordings below are those of the list itself (services/6F81-5844-456A/skus). A line that is not understood is left
out; where two lines of different prices fit the same part, that part is unknown.
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
# Price of the listed unit -> price of an hour, or of a gibibyte's month.
_UNITS: Mapping[str, float] = {
    "h": 1.0, "GiBy.h": 1.0, "GiBy.mo": 1.0, "GBy.h": GIB_IN_GB, "GBy.mo": GIB_IN_GB
}  # fmt: skip

CORE, RAM, CARD, DISK, LOCAL_SSD, ADDRESS = "core", "ram", "card", "disk", "local-ssd", "address"
# Series whose lines have a name of their own; of the others it is `E2 Instance Core`.
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

# (what, its name) -> region -> market -> dollars; None = two different prices were told.
Prices = dict[tuple[str, str], dict[str, dict[str, float | None]]]
Names = Mapping[str, tuple[str, str]]


def wanted(series: set[str], cards: set[str], disks: Collection[str]) -> dict[str, tuple[str, str]]:
    """The wordings to look for -> what they are the price of. What has no known wording stays out."""
    names: dict[str, tuple[str, str]] = {}
    for one in series:
        stem = _SERIES.get(one, f"{one.upper()} Instance")
        names[f"{stem} Core"], names[f"{stem} Ram"] = (CORE, one), (RAM, one)
    names |= {_CARDS[card]: (CARD, card) for card in cards if card in _CARDS}
    names |= {_DISKS[disk]: (DISK, disk) for disk in disks if disk in _DISKS}
    names["SSD backed Local Storage"] = (LOCAL_SSD, LOCAL_SSD)
    return names


def read(compute: Compute, endpoint: str, names: Names) -> Prices:
    """The whole list, page by page; takes up to a minute. ApiError where a page could not be read: then nothing is
    known. ValueError: it is not told in dollars."""
    prices: Prices = {}
    for sku in _skus(compute, endpoint):
        found = understood(sku, names)
        if found is None:
            continue
        what, market, usd = found
        for region in sku.get("serviceRegions") or ():
            markets = prices.setdefault(what, {}).setdefault(region, {})
            differs = market in markets and markets[market] != usd
            markets[market] = None if differs else usd
    return prices


def _skus(compute: Compute, endpoint: str) -> Iterator[Mapping[str, Any]]:
    url = f"{(endpoint or HOME).rstrip('/')}/v1/{COMPUTE_ENGINE}/skus"
    token = ""
    for _ in range(PAGES):
        query: dict[str, str | int] = {"currencyCode": "USD", "pageSize": PAGE, "fields": FIELDS}
        if token:
            query["pageToken"] = token
        page = compute.elsewhere("GET", url, None, **query)
        yield from page.get("skus") or ()
        token = page.get("nextPageToken") or ""
        if not token:
            return
    raise ValueError(f"the Cloud Billing Catalog has more than {PAGES} pages")


def understood(sku: Mapping[str, Any], names: Names) -> tuple[tuple[str, str], str, float] | None:
    """(what it is the price of, market, dollars for an hour or a gibibyte's month); None = not one that is wanted."""
    text = str(sku.get("description") or "")
    category = sku.get("category") or {}
    market = _ADDRESSES.get(text)
    if market is not None:
        what = ADDRESS, ADDRESS
    else:
        told = _MARKETS.get(str(category.get("usageType")))
        is_spot = bool(_SPOT_FIRST.search(text) or _SPOT_LATER.search(text))
        stem = _PLACE.sub("", _SPOT_LATER.sub("", _SPOT_FIRST.sub("", text)))
        if told is None or is_spot != (told == SPOT) or stem not in names:
            return None
        what, market = names[stem], told
    usd = _usd(sku)
    return None if usd is None else (what, market, usd)


def _usd(sku: Mapping[str, Any]) -> float | None:
    """The price beyond what is free; None where it is not told, or in a unit that is not known. ValueError for another
    currency than dollars."""
    info = sku.get("pricingInfo") or ()
    expression = (info[-1].get("pricingExpression") or {}) if info else {}
    rates = expression.get("tieredRates") or ()
    factor = _UNITS.get(str(expression.get("usageUnit")))
    if not rates or factor is None:
        return None
    usd = money_usd(rates[-1].get("unitPrice") or {})
    return None if usd is None or usd <= 0 else usd * factor


def money_usd(price: Mapping[str, Any]) -> float | None:
    """Google's Money: whole units as text beside billionths. None = not told. ValueError: no dollars."""
    if not price:
        return None
    if price.get("currencyCode", "USD") != "USD":
        raise ValueError(f"the prices are told in {price['currencyCode']}, not in USD")
    return int(price.get("units") or 0) + int(price.get("nanos") or 0) / 1e9


def priced(prices: Prices, what: tuple[str, str], region: str, market: str) -> float | None:
    """None = not known, or not clear."""
    regions = prices.get(what, {})
    for where in (region, GLOBAL):
        if market in regions.get(where, {}):
            return regions[where][market]
    return None
