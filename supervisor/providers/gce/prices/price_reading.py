"""Google's current prices of the machines that the settings offer.

Three sources are read: the machine types (cores, memory, cards), the price list, and, for Spot machines that the list
does not contain, their price history. A read that fails or breaks off has no result at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from supervisor.ports.provider import ProviderUnavailable
from supervisor.providers.gce.calls.clients import Compute
from supervisor.providers.gce.calls.errors import ApiError, access_fix
from supervisor.providers.gce.config import GceConfig, Shape, region_of
from supervisor.providers.gce.prices import billing_catalog as catalog
from supervisor.providers.gce.prices import pricebook
from supervisor.providers.gce.prices.machine_facts import boot_disk_type, series_of
from supervisor.providers.gce.prices.pricebook import Row

CATALOG, HISTORY = "Cloud Billing Catalog", "Spot price history"
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
            names = catalog.names_of(series, cards, self._disks())
            prices = catalog.read(self._compute, config.billing_endpoint, names)
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
        self, types: Mapping[tuple[str, str], MachineType], cards: set[str], prices: catalog.Prices, today: str
    ) -> Iterator[Row]:
        def usd(part: catalog.Part, region: str, market: str) -> float | None:
            price = catalog.part_usd(prices, part, region, market)
            return None if price is None else round(price, 6)

        def row(kind: str, part: catalog.Part, region: str, spot_market: str = catalog.SPOT, name: str = "") -> Row:
            spot, on_demand = usd(part, region, spot_market), usd(part, region, catalog.ON_DEMAND)
            return Row(kind, name or part[1], region, pricebook.UNITS[kind], spot, on_demand, today, CATALOG)

        for region in self._config.offered_regions:
            for card in sorted(cards):
                yield row(pricebook.GPU, (catalog.CARD, card), region)
            for disk in self._disks():
                yield row(pricebook.DISK, (catalog.DISK, disk), region, catalog.ON_DEMAND)
            address = (catalog.ADDRESS, catalog.ADDRESS)
            yield row(pricebook.ADDRESS, address, region, name=pricebook.EXTERNAL_IP)
        for (name, region), machine in types.items():
            spot = _machine_usd(name, machine, prices, region, catalog.SPOT)
            on_demand, source = _machine_usd(name, machine, prices, region, catalog.ON_DEMAND), CATALOG
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
        usd = catalog.money_usd(newest.get("listPrice") or {})
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


def _machine_usd(name: str, machine: MachineType, prices: catalog.Prices, region: str, market: str) -> float | None:
    """With the included cards and disks; None where the price of one of them is unknown."""
    series = series_of(Shape(name))
    parts: list[tuple[float | None, catalog.Part]] = [
        (machine.vcpus, (catalog.CORE, series)),
        (machine.memory_gib, (catalog.RAM, series)),
        *((count, (catalog.CARD, card)) for card, count in machine.cards),
    ]
    if machine.local_ssds != 0:
        ssds = machine.local_ssds
        gb_months_per_h = None if ssds is None else ssds * LOCAL_SSD_GB / pricebook.HOURS_PER_MONTH
        parts.append((gb_months_per_h, (catalog.LOCAL_SSD, catalog.LOCAL_SSD)))
    usd = 0.0
    for count, part in parts:
        price = catalog.part_usd(prices, part, region, market)
        if price is None or count is None:
            return None
        usd += count * price
    return round(usd, 6)
