"""Google's current prices of the machines that the settings offer.

Three sources are read: the machine types (cores, memory, cards), the price list, and, for Spot machines that the list
does not contain, their price history. A read that fails or breaks off has no result at all.

The price list, the Cloud Billing Catalog, has about ten thousand lines for Compute Engine. Only the description says
what a line is for, and the texts below are those of the list itself (services/6F81-5844-456A/skus). A line with another
text is ignored; where two lines with different prices match the same part, the price of that part is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from supervisor.ports.provider import ProviderUnavailable
from supervisor.providers.gce.calls.clients import Compute
from supervisor.providers.gce.calls.errors import ApiError, access_fix
from supervisor.providers.gce.config import GceConfig, Shape, region_of
from supervisor.providers.gce.prices import pricebook
from supervisor.providers.gce.prices.machine_facts import boot_disk_type, series_of
from supervisor.providers.gce.prices.pricebook import Row

CATALOG, HISTORY = "Cloud Billing Catalog", "Spot price history"
CATALOG_URL = "https://cloudbilling.googleapis.com"
COMPUTE_ENGINE = "services/6F81-5844-456A"
PAGE, PAGES = 5000, 50
SKU_FIELDS = (
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

LOCAL_SSD_GB = 375  # of one partition
# They include local SSDs: where Google does not report the number, the price of such a machine is unknown.
WITH_LOCAL_SSD = ("a2-ultragpu-", "a3-", "a4-", "g4-")
TYPE_FIELDS = "guestCpus,memoryMb,isSharedCpu,accelerators,bundledLocalSsds"
NO_HISTORY = frozenset({400, 403, 404, 501})  # there is no price history for this account: the price stays unknown


@dataclass(frozen=True, slots=True)
class MachineType:
    """`cards`: (type, number) that it includes. `local_ssds`: partitions; None = unknown."""

    vcpus: int
    memory_gib: float
    cards: tuple[tuple[str, int], ...]
    local_ssds: int | None


class PriceReader:
    """`compute`: with a deadline of a minute."""

    def __init__(self, config: GceConfig, compute: Compute) -> None:
        self._config, self._compute = config, compute

    def read(self, today: date) -> tuple[Row, ...]:
        """At least one row. Raises ProviderUnavailable: there is no result."""
        config = self._config
        try:
            types = self._machine_types()
            cards = {card for machine in types.values() for card, _ in machine.cards}
            cards |= {shape.gpu_type for shape in config.shapes.values() if shape.gpu_type}
            series = {series_of(Shape(name)) for name, _ in types}
            names = names_of(series, cards, self._disks())
            prices = read_catalog(self._compute, config.billing_endpoint, names)
            candidates = self._rows(types, cards, prices, today.isoformat())
            rows = tuple(row for row in candidates if _is_plausible(row))
            pricebook.read_rows(pricebook.write_rows(rows))  # rows that cannot be read again are not kept
        except ApiError as error:
            fix = access_fix(error, "cloudbilling.googleapis.com", config.project)
            text = f"Google's prices could not be read ({error}); the old prices stay"
            raise ProviderUnavailable(f"{text}. To fix it: {fix}" if fix else text) from error
        except (ValueError, TypeError, AttributeError, KeyError, OverflowError) as error:
            text = f"the response was not understood ({error}); the old prices stay"
            raise ProviderUnavailable(text) from error
        if not rows:
            raise ProviderUnavailable("Google's price list contains none of the offered machines; the old prices stay")
        return rows

    def _disks(self) -> tuple[str, ...]:
        """The types of the disks that machines of all shapes are created with."""
        config = self._config
        kinds = [config.boot_disk_type, *([config.new_disk.kind] if config.new_disk is not None else [])]
        pairs = ((kind, shape) for kind in kinds for shape in config.shapes.values())
        return tuple(dict.fromkeys(boot_disk_type(kind, shape) for kind, shape in pairs))

    def _machine_types(self) -> dict[tuple[str, str], MachineType]:
        """By (machine type, region), where a zone of that region has it. ApiError."""
        types = {}
        for name in dict.fromkeys(shape.machine_type for shape in self._config.shapes.values()):
            for region in self._config.offered_regions:
                machine_type = self._machine_type(name, region)
                if machine_type is not None:
                    types[name, region] = machine_type
        return types

    def _machine_type(self, name: str, region: str) -> MachineType | None:
        for zone in self._config.zones:
            if region_of(zone) != region:
                continue
            try:
                facts = self._compute.read(f"zones/{zone}/machineTypes/{name}", fields=TYPE_FIELDS)
            except ApiError as error:
                if error.status == 404:
                    continue  # this zone does not have it
                raise
            return None if facts.get("isSharedCpu") else _machine_type(name, facts)
        return None

    def _rows(
        self, types: Mapping[tuple[str, str], MachineType], cards: set[str], prices: Prices, today: str
    ) -> Iterator[Row]:
        def usd(part: Part, region: str, market: str) -> float | None:
            price = part_usd(prices, part, region, market)
            return None if price is None else round(price, 6)

        def row(kind: str, part: Part, region: str, spot_market: str = SPOT, name: str = "") -> Row:
            spot, on_demand = usd(part, region, spot_market), usd(part, region, ON_DEMAND)
            return Row(kind, name or part[1], region, pricebook.UNITS[kind], spot, on_demand, today, CATALOG)

        for region in self._config.offered_regions:
            for card in sorted(cards):
                yield row(pricebook.GPU, (CARD, card), region)
            for disk in self._disks():
                yield row(pricebook.DISK, (DISK, disk), region, ON_DEMAND)
            address = (ADDRESS, ADDRESS)
            yield row(pricebook.ADDRESS, address, region, name=pricebook.EXTERNAL_IP)
        for (name, region), machine in types.items():
            spot = _machine_usd(name, machine, prices, region, SPOT)
            on_demand, source = _machine_usd(name, machine, prices, region, ON_DEMAND), CATALOG
            if spot is None:
                last_usd = self._last_spot_usd(name, region)
                if last_usd is not None and (on_demand is None or last_usd <= on_demand):
                    spot, source = last_usd, HISTORY
            yield Row(pricebook.MACHINE, name, region, "h", spot, on_demand, today, source)

    def _last_spot_usd(self, machine_type: str, region: str) -> float | None:
        """The newest price in Google's price history of Spot machines; None = there is none. ApiError where it could
        not be read."""
        question: dict[str, Any] = {
            "instanceProperties": {"machineType": machine_type, "scheduling": {"provisioningModel": "SPOT"}},
            "types": ["PRICE"],
        }
        try:
            response = self._compute.post(f"regions/{region}/advice/capacityHistory", question)
        except ApiError as error:
            if error.status in NO_HISTORY:
                return None
            raise
        newest: Mapping[str, Any] = max(
            response.get("priceHistory") or (),
            key=lambda price: str((price.get("interval") or {}).get("endTime")),
            default={},
        )
        usd = money_usd(newest.get("listPrice") or {})
        return round(usd, 6) if usd else None


def _is_plausible(row: Row) -> bool:
    """A row without a price is dropped. So is a row with a spot price above the on-demand price: the two lines do not
    belong together, and neither is trusted."""
    prices = [usd for usd in (row.spot_usd, row.on_demand_usd) if usd is not None]
    return bool(prices) and prices == sorted(prices)


def _machine_type(name: str, facts: Mapping[str, Any]) -> MachineType:
    cards = tuple(
        (str(card["guestAcceleratorType"]).rpartition("/")[2], int(card["guestAcceleratorCount"]))
        for card in facts.get("accelerators") or ()
    )
    partitions = (facts.get("bundledLocalSsds") or {}).get("partitionCount")
    if partitions is None and not name.startswith(WITH_LOCAL_SSD):
        partitions = 0
    memory_gib = int(facts["memoryMb"]) / 1024
    return MachineType(int(facts["guestCpus"]), memory_gib, cards, None if partitions is None else int(partitions))


def _machine_usd(name: str, machine: MachineType, prices: Prices, region: str, market: str) -> float | None:
    """With the included cards and disks; None where the price of one of them is unknown."""
    series = series_of(Shape(name))
    parts: list[tuple[float | None, Part]] = [
        (machine.vcpus, (CORE, series)),
        (machine.memory_gib, (RAM, series)),
        *((count, (CARD, card)) for card, count in machine.cards),
    ]
    if machine.local_ssds != 0:
        ssds = machine.local_ssds
        gb_months_per_h = None if ssds is None else ssds * LOCAL_SSD_GB / pricebook.HOURS_PER_MONTH
        parts.append((gb_months_per_h, (LOCAL_SSD, LOCAL_SSD)))
    usd = 0.0
    for count, part in parts:
        price = part_usd(prices, part, region, market)
        if price is None or count is None:
            return None
        usd += count * price
    return round(usd, 6)


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


def read_catalog(compute: Compute, endpoint: str, names: Names) -> Prices:
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
    url = f"{(endpoint or CATALOG_URL).rstrip('/')}/v1/{COMPUTE_ENGINE}/skus"
    query: dict[str, str | int] = {"currencyCode": "USD", "pageSize": PAGE, "fields": SKU_FIELDS}
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
