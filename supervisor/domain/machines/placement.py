"""Where a machine can be had: offers, what they cost, and what we learned about each of them.

The name of a cell: what one leader sweeps, and where a run stays from its first submit on.

`<provider> <scope> <bucket>`: the scope is the provider's word for "the machines that I see" (an account and project;
for machines on a computer, the data folder they live in), the bucket the object store's URL.
"""

from __future__ import annotations

from dataclasses import dataclass


def cell(provider: str, scope: str, bucket: str) -> str:
    return f"{provider} {scope} {bucket}"


def local_scope(name: str) -> str:
    """The scope in the name of a cell of machines on a computer; "" for any other name."""
    words = name.split(" ", 2)
    return words[1] if len(words) == 3 and words[0] == "local" else ""


def alike(one: str, other: str) -> bool:
    """Same provider and same bucket: what a spec can name, and what a resume may not change."""
    return _fixed(one) == _fixed(other)


def _fixed(name: str) -> tuple[str, str]:
    return name.partition(" ")[0], name.rpartition(" ")[2]


@dataclass(frozen=True, slots=True)
class Placement:
    """One place to run: the key under which capacity is learned is (zone, shape, spot)."""

    provider: str
    region: str
    zone: str
    shape: str
    spot: bool


@dataclass(frozen=True, slots=True)
class Offer:
    """A placement and its price. None = the price is unknown: never counted as 0, and no budget may rest on it.
    `minimum_s`: a machine that was obtained is billed for at least so long."""

    placement: Placement
    price_usd_per_h: float | None
    on_demand_usd_per_h: float | None
    minimum_s: float = 0.0


OfferKey = tuple[str, str, str, bool]  # provider, zone, shape, spot


@dataclass(frozen=True, slots=True)
class ZoneRecord:
    """What the last create calls taught about one offer; a stock-out cools it for 3 to 30 minutes. And when machines of
    it were taken away: that a machine was had again does not make it forgotten."""

    failures: int  # stock-outs in a row; 0 = the last call gave a machine
    cool_until: float  # epoch seconds
    cause: str  # the word of the last failure: no_capacity, quota or launch_rejected; "" = none
    detail: str
    lost_at: tuple[float, ...] = ()  # the last preemptions, oldest first, epoch seconds
    stocked_out_at: float = 0.0  # when there was no capacity the last time, epoch seconds; 0 = never


def offer_key(placement: Placement) -> OfferKey:
    return (placement.provider, placement.zone, placement.shape, placement.spot)
