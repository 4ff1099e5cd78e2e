"""Prices as Google tells them now, for what the settings offer and nothing else.

Asked for: the machine types (how many cores, how much memory, which cards), the price list, and for what the list does
not tell the price history of Spot machines. A read that fails or breaks off gives nothing at all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from supervisor.ports.provider import ProviderUnavailable
from supervisor.providers.gce.calls.clients import Compute
from supervisor.providers.gce.calls.errors import ApiError, open_door
from supervisor.providers.gce.config import GceConfig, Shape, region_of
from supervisor.providers.gce.prices import billing_catalog as catalog
from supervisor.providers.gce.prices import pricebook as book_of
from supervisor.providers.gce.prices.machine_facts import boot_disk_type
from supervisor.providers.gce.prices.pricebook import Row

CATALOG, HISTORY = "Cloud Billing Catalog", "Spot price history"
LOCAL_SSD_GB = 375  # of one partition that a machine type brings
# They bring local SSDs: where Google does not tell how many, such a machine's price is not known.
WITH_LOCAL_SSD = ("a2-ultragpu-", "a3-", "a4-", "g4-")
TYPE_FIELDS = "guestCpus,memoryMb,isSharedCpu,accelerators,bundledLocalSsds"
GONE = frozenset({400, 403, 404, 501})  # this question is not answered here: the price stays unknown


@dataclass(frozen=True, slots=True)
class MachineType:
    """`cards`: (type, how many) that it brings itself. `local_ssds`: partitions; None = not told."""

    vcpus: int
    memory_gib: float
    cards: tuple[tuple[str, int], ...]
    local_ssds: int | None


class PriceReader:
    """`compute`: with the patience of a minute."""

    def __init__(self, config: GceConfig, compute: Compute) -> None:
        self._config, self._compute = config, compute

    def read(self, today: date) -> tuple[Row, ...]:
        """At least one row. Raises ProviderUnavailable: then nothing is known."""
        config = self._config
        try:
            types = self._machine_types()
            cards = {card for machine in types.values() for card, _ in machine.cards}
            cards |= {shape.gpu_type for shape in config.shapes.values() if shape.gpu_type}
            series = {name.partition("-")[0] for name, _ in types}
            names = catalog.wanted(series, cards, self._disks())
            prices = catalog.read(self._compute, config.billing_endpoint, names)
            rows = tuple(self._rows(types, cards, prices, today.isoformat()))
            book_of.read_rows(book_of.write_rows(rows))  # what could not be read again is not kept
        except ApiError as error:
            raise ProviderUnavailable(_told(error, config.project)) from error
        except (ValueError, TypeError, AttributeError, KeyError, OverflowError) as error:
            text = f"the answer was not understood ({error}); the old prices stay"
            raise ProviderUnavailable(text) from error
        if not rows:
            raise ProviderUnavailable("Google's price list names nothing of what is offered; the old prices stay")
        return rows

    def _disks(self) -> tuple[str, ...]:
        """Types of the disks that are made with machines of all shapes."""
        config = self._config
        wanted = [config.boot_disk_type, *([config.new_disk.kind] if config.new_disk is not None else [])]
        pairs = ((kind, shape) for kind in wanted for shape in config.shapes.values())
        return tuple(dict.fromkeys(boot_disk_type(kind, shape) for kind, shape in pairs))

    def _machine_types(self) -> dict[tuple[str, str], MachineType]:
        """(machine type, region) -> what it is, where a zone of that region has it. ApiError."""
        found = {}
        for name in dict.fromkeys(shape.machine_type for shape in self._config.shapes.values()):
            for region in book_of.offered_regions(self._config):
                told = self._machine_type(name, region)
                if told is not None:
                    found[name, region] = told
        return found

    def _machine_type(self, name: str, region: str) -> MachineType | None:
        for zone in self._config.zones:
            if region_of(zone) != region:
                continue
            try:
                told = self._compute.read(f"zones/{zone}/machineTypes/{name}", fields=TYPE_FIELDS)
            except ApiError as error:
                if error.status == 404:
                    continue  # this zone does not have it
                raise
            return None if told.get("isSharedCpu") else _machine_type(name, told)
        return None

    def _rows(
        self, types: Mapping[tuple[str, str], MachineType], cards: set[str], prices: catalog.Prices, today: str
    ) -> Iterator[Row]:
        config = self._config

        def row(kind: str, name: str, region: str, usd: tuple[float | None, float | None]) -> Iterator[Row]:
            spot, on_demand = usd
            if spot is not None and on_demand is not None and spot > on_demand:
                return  # two lines that do not belong together: neither is believed
            if spot is not None or on_demand is not None:
                yield Row(kind, name, region, book_of.UNITS[kind], spot, on_demand, today, CATALOG)

        for region in book_of.offered_regions(config):
            for card in sorted(cards):
                yield from row(book_of.GPU, card, region, _both(prices, (catalog.CARD, card), region))
            for kind in self._disks():
                disk, _ = _both(prices, (catalog.DISK, kind), region, catalog.ON_DEMAND)
                yield from row(book_of.DISK, kind, region, (disk, disk))
            address = _both(prices, (catalog.ADDRESS, catalog.ADDRESS), region)
            yield from row(book_of.ADDRESS, book_of.EXTERNAL_IP, region, address)
        for (name, region), machine in types.items():
            spot = _machine_usd(name, machine, prices, region, catalog.SPOT)
            on_demand = _machine_usd(name, machine, prices, region, catalog.ON_DEMAND)
            if spot is None:
                usd = self._history(Shape(name), region)
                if usd is not None and (on_demand is None or usd <= on_demand):
                    yield Row(book_of.MACHINE, name, region, "h", usd, on_demand, today, HISTORY)
                    continue
            yield from row(book_of.MACHINE, name, region, (spot, on_demand))

    def _history(self, shape: Shape, region: str) -> float | None:
        """What Google's price history of Spot machines tells last; None = it does not tell. ApiError where it could not
        be asked."""
        question: dict[str, Any] = {
            "instanceProperties": {"machineType": shape.machine_type, "scheduling": {"provisioningModel": "SPOT"}},
            "types": ["PRICE"],
        }
        try:
            told = self._compute.post(f"regions/{region}/advice/capacityHistory", question)
        except ApiError as error:
            if error.status in GONE:
                return None
            raise
        history = told.get("priceHistory") or ()
        newest: Mapping[str, Any] = max(
            history, key=lambda one: str((one.get("interval") or {}).get("endTime")), default={}
        )
        usd = catalog.money_usd(newest.get("listPrice") or {})
        return round(usd, 6) if usd else None


def _machine_type(name: str, told: Mapping[str, Any]) -> MachineType:
    cards = tuple(
        (str(one["guestAcceleratorType"]).rpartition("/")[2], int(one["guestAcceleratorCount"]))
        for one in told.get("accelerators") or ()
    )
    bundled = told.get("bundledLocalSsds") or {}
    partitions = bundled.get("partitionCount")
    if partitions is None:
        partitions = None if name.startswith(WITH_LOCAL_SSD) else 0
    memory_gib = int(told["memoryMb"]) / 1024
    return MachineType(int(told["guestCpus"]), memory_gib, cards, None if partitions is None else int(partitions))


def _machine_usd(name: str, machine: MachineType, prices: catalog.Prices, region: str, market: str) -> float | None:
    """With the cards and disks that it brings; None where one of them is unknown."""
    series = name.partition("-")[0]
    parts: list[tuple[float | None, tuple[str, str]]] = [
        (machine.vcpus, (catalog.CORE, series)),
        (machine.memory_gib, (catalog.RAM, series)),
        *((count, (catalog.CARD, card)) for card, count in machine.cards),
    ]
    if machine.local_ssds != 0:
        ssds = machine.local_ssds
        of_hour = None if ssds is None else ssds * LOCAL_SSD_GB / book_of.HOURS_PER_MONTH
        parts.append((of_hour, (catalog.LOCAL_SSD, catalog.LOCAL_SSD)))
    usd = 0.0
    for count, what in parts:
        price = catalog.priced(prices, what, region, market)
        if price is None or count is None:
            return None
        usd += count * price
    return round(usd, 6)


def _both(
    prices: catalog.Prices, what: tuple[str, str], region: str, spot_market: str = catalog.SPOT
) -> tuple[float | None, float | None]:
    """(spot, on-demand)"""
    found = (catalog.priced(prices, what, region, market) for market in (spot_market, catalog.ON_DEMAND))
    spot, on_demand = (None if usd is None else round(usd, 6) for usd in found)
    return spot, on_demand


def _told(error: ApiError, project: str) -> str:
    text = f"Google's prices could not be read ({error}); the old ones stay"
    door = open_door(error, "cloudbilling.googleapis.com", project)
    return f"{text}. Do this: {door}" if door else text
