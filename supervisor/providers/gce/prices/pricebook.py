"""What one machine costs per hour in a region: the sum of its parts, each from the first source that has it.

A price is that of the whole machine: the machine type with the cards that it includes, added cards, the boot disk and
the external address. Where one part is unknown, the price is unknown. The sources in their order: the setting
`gce_prices` (per shape, for the whole machine), fetched prices (rows of a file in the data folder), the table of the
package (prices.json). Every row has its source and the day on which it was read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date
from functools import cache
from importlib.resources import files
from typing import Any

from supervisor.domain.machines import Offer
from supervisor.ports.platform import ShapePrice
from supervisor.providers.gce.config import GceConfig, Shape
from supervisor.providers.gce.prices.machine_facts import boot_disk_type

HOURS_PER_MONTH = 730.0  # in Google's price lists
EVERYWHERE = "*"  # the region of a row whose price is the same in all regions
MACHINE, GPU, DISK, ADDRESS = KINDS = ("machine", "gpu", "disk", "address")
UNITS: Mapping[str, str] = {MACHINE: "h", GPU: "h", ADDRESS: "h", DISK: "gb_month"}
EXTERNAL_IP = "external-ip"
SETTINGS = "settings"
TABLE = "prices.json"

Key = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Row:
    """One price. `unit`: h, or gb_month (of 2^30 bytes). None = unknown for that market. A machine's row is the price
    of the machine type with the cards that it includes. `dated`: YYYY-MM-DD."""

    kind: str
    name: str
    region: str
    unit: str
    spot_usd: float | None
    on_demand_usd: float | None
    dated: str
    source: str

    @property
    def key(self) -> Key:
        return self.kind, self.name, self.region


@dataclass(frozen=True, slots=True)
class Part:
    """A number of units that have a price."""

    kind: str
    name: str
    count: float


class Pricebook:
    """Immutable: a refresh makes a new one. `fetched`: rows that come before those of the package. `prices`: by (shape,
    region), for everything that is offered, in that order."""

    def __init__(self, config: GceConfig, fetched: Sequence[Row] = (), packaged: Sequence[Row] | None = None) -> None:
        self._config = config
        self.fetched = tuple(fetched)
        sources = (self.fetched, packaged_rows() if packaged is None else packaged)
        self._sources = tuple({row.key: row for row in rows} for rows in sources)
        self.prices: Mapping[tuple[str, str], ShapePrice] = {
            (shape, region): self._price(shape, region) for shape in config.shapes for region in config.offered_regions
        }

    def priced(self, offer: Offer) -> Offer:
        """The offer with its current price."""
        price = self.prices.get((offer.placement.shape, offer.placement.region))
        if price is None:
            return offer
        usd = price.spot_usd_per_h if offer.placement.spot else price.on_demand_usd_per_h
        off_usd = self.off_usd(offer.placement.shape, offer.placement.region)
        on_demand_usd = price.on_demand_usd_per_h
        return replace(offer, price_usd_per_h=usd, on_demand_usd_per_h=on_demand_usd, off_usd_per_h=off_usd)

    def off_usd(self, shape: str, region: str) -> float | None:
        """Of a machine that is switched off: of its disks. None = unknown."""
        parts = [part for part in parts_of(self._config, self._config.shapes[shape]) if part.kind == DISK]
        return self._sum(parts, region, "on_demand_usd")[0]

    def _price(self, shape: str, region: str) -> ShapePrice:
        from_settings = self._config.prices.get(shape)
        if from_settings is not None:
            return ShapePrice(shape, region, *from_settings, SETTINGS)
        parts = parts_of(self._config, self._config.shapes[shape])
        spot, spot_rows = self._sum(parts, region, "spot_usd")
        on_demand, on_demand_rows = self._sum(parts, region, "on_demand_usd")
        rows = spot_rows + on_demand_rows
        sources = ", ".join(dict.fromkeys(row.source for row in rows))
        return ShapePrice(shape, region, spot, on_demand, sources, min((row.dated for row in rows), default=""))

    def _sum(self, parts: Sequence[Part], region: str, market: str) -> tuple[float | None, list[Row]]:
        """(dollars per hour, the rows that they come from); None and no rows where one part is unknown."""
        usd, rows = 0.0, []
        for part in parts:
            row = self._row(part, region, market)
            if row is None:
                return None, []
            price = float(getattr(row, market))
            usd += part.count * (price / HOURS_PER_MONTH if row.unit == "gb_month" else price)
            rows.append(row)
        return round(usd, 6), rows

    def _row(self, part: Part, region: str, market: str) -> Row | None:
        """From the first source that has this price; None = no source has it."""
        for rows in self._sources:
            for place in (region, EVERYWHERE):
                row = rows.get((part.kind, part.name, place))
                if row is not None and getattr(row, market) is not None:
                    return row
        return None


def parts_of(config: GceConfig, shape: Shape) -> tuple[Part, ...]:
    """Everything of one machine that is billed by the hour or month, without what exists apart from the machine."""
    parts = [Part(MACHINE, shape.machine_type, 1)]
    if shape.gpu_type:
        parts.append(Part(GPU, shape.gpu_type, shape.gpus))
    parts.append(Part(DISK, boot_disk_type(config.boot_disk_type, shape), config.boot_disk_gb))
    if config.new_disk is not None:
        parts.append(Part(DISK, boot_disk_type(config.new_disk.kind, shape), config.new_disk.gb))
    if config.external_ip:
        parts.append(Part(ADDRESS, EXTERNAL_IP, 1))
    return tuple(parts)


@cache
def packaged_rows() -> tuple[Row, ...]:
    """The table of the package."""
    return read_rows(files("supervisor.providers.gce.prices").joinpath(TABLE).read_text(encoding="utf-8"))


def read_rows(text: str) -> tuple[Row, ...]:
    """ValueError with the row and its mistake: one wrong row makes the whole file invalid."""
    document = json.loads(text)
    if not isinstance(document, dict) or not isinstance(document.get("rows"), list):
        raise ValueError("it is not a table of prices: expected an object with `rows`")
    rows = [_row(number, raw) for number, raw in enumerate(document["rows"], 1)]
    seen: set[Key] = set()
    for number, row in enumerate(rows, 1):
        if row.key in seen:
            raise ValueError(f"row {number}: {' '.join(row.key)} appears twice")
        seen.add(row.key)
    return tuple(rows)


def write_rows(rows: Iterable[Row]) -> str:
    lines = ",\n".join(json.dumps(asdict(row), allow_nan=False) for row in rows)
    return f'{{"currency": "USD", "rows": [\n{lines}\n]}}\n'


def _row(number: int, raw: Any) -> Row:
    fields = set(Row.__dataclass_fields__)
    if not isinstance(raw, dict) or set(raw) != fields:
        raise ValueError(f"row {number}: expected exactly the fields {', '.join(sorted(fields))}")
    row = Row(**raw)
    problem = _problem(row)
    if problem:
        raise ValueError(f"row {number}: {problem}")
    return row


def _problem(row: Row) -> str:
    """The mistake in it; "" = none."""
    texts: tuple[object, ...] = (row.kind, row.name, row.region, row.unit, row.dated, row.source)
    prices = [usd for usd in (row.spot_usd, row.on_demand_usd) if usd is not None]
    if not all(isinstance(text, str) and text.strip() for text in texts):
        return "a text is missing"
    if row.unit != UNITS.get(row.kind):
        return f"{row.kind} in {row.unit}: the kinds are {', '.join(KINDS)}, each with its own unit"
    if not prices or not all(_is_price(usd) for usd in prices):
        return "a price is a number above 0, or null where it is unknown; one of the two must be known"
    if len(prices) == 2 and prices[0] > prices[1]:
        return f"spot {prices[0]} is above on-demand {prices[1]}"
    return "" if _is_day(row.dated) else f"{row.dated} is not a day: write YYYY-MM-DD"


def _is_price(usd: object) -> bool:
    """The comparison also excludes infinity and NaN, and works for an integer of any length."""
    return isinstance(usd, int | float) and not isinstance(usd, bool) and 0 < usd < 10_000


def _is_day(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False
