"""The settings of machines on this computer: their zones, prices, cards, and how many may run at once."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from supervisor.domain.findings import OK, Finding
from supervisor.providers.local.traits import TRAITS
from supervisor.settings.kinds import StoreForm
from supervisor.settings.values import LARGEST_COUNT, Rules, check_keys

if TYPE_CHECKING:
    from supervisor.domain.machines import Offer

STORE = StoreForm("file:///FOLDER", re.compile(r"file:///.*", re.DOTALL))
RULES = Rules(
    counts={"local_machines": (0, LARGEST_COUNT)},
    pairs={
        "local_capacity": "zone=machines pairs, such as local-a=1,local-b=2",
        "local_gpus": "shape=cards pairs, such as l4=1,l4x2=2",
    },
)


@dataclass(frozen=True, kw_only=True)
class LocalSettings:
    """`local_capacity`: zone -> machines at once; absent = no limit. `local_machines`: at once on this computer; 0 =
    as many as its GPUs, or its cores and memory, allow. `local_prices`: shape -> (spot, on-demand) $/h. `local_gpus`:
    shape -> cards of each of its machines."""

    local_zones: tuple[str, ...] = ("local-a", "local-b", "local-c")
    local_shapes: tuple[str, ...] = ("cpu",)
    local_capacity: Mapping[str, int] = field(default_factory=dict)
    local_machines: int = 0
    local_prices: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    local_gpus: Mapping[str, int] = field(default_factory=dict)


def check(s: LocalSettings) -> None:
    """Raises SettingsRefused."""
    check_keys("local_capacity", s.local_capacity, "local_zones", s.local_zones)
    check_keys("local_prices", s.local_prices, "local_shapes", s.local_shapes)
    check_keys("local_gpus", s.local_gpus, "local_shapes", s.local_shapes)


def offers(name: str, s: LocalSettings) -> tuple[Offer, ...]:
    """All offers in order of preference: every zone of a shape, then the next shape; on-demand after spot. `name`: of
    the provider."""
    from supervisor.domain.machines import Offer, Placement

    offered = []
    for spot in (True, False):
        for shape in s.local_shapes:
            spot_usd, on_demand_usd = s.local_prices.get(shape, (0.0, 0.0))
            for zone in s.local_zones:
                placement = Placement(name, TRAITS.kind, zone, shape, spot)
                offered.append(Offer(placement, spot_usd if spot else on_demand_usd, on_demand_usd, off_usd_per_h=0.0))
    return tuple(offered)


def most_machines(s: LocalSettings) -> tuple[int | None, str]:
    """(machines at once on this computer, reason); None = local_capacity limits every zone."""
    if s.local_machines:
        return s.local_machines, "local_machines"
    if all(zone in s.local_capacity for zone in s.local_zones):
        return None, "local_capacity"
    from supervisor.machinefolder.capacity import default_limit  # a heavy import, too slow for each command

    return default_limit(s.local_gpus)


def meaning(s: LocalSettings, store_url: str, image: str) -> tuple[str, tuple[Finding, ...]]:
    """The settings in effect and the number of trainings at once: lines of the doctor."""
    most, reason = most_machines(s)
    count = sum(s.local_capacity.values()) if most is None else most
    fact = f"{count} trainings at once ({reason}); more of them wait as queued"
    zones = ", ".join(s.local_zones)
    text = f"machines are on this computer ({zones}); objects in {store_url}"
    return text, (Finding("capacity", OK, fact),)
