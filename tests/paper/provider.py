"""The paper provider: a whole provider of no vendor, as short as one can be. Machines are folders on this computer.

It shows what a kind of provider needs: settings with a check, traits, a profile, machines, a platform (prices, the
doctor's check), and the one value for the list. Sheets of paper are rented by the hour from zones called
trays, at prices of its own list.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from supervisor.domain.errors import SettingsRefused
from supervisor.domain.findings import OK, Check, Finding
from supervisor.domain.machines import Offer, Placement
from supervisor.domain.profile import By, End, Fact, Profile, Source, Stops, Survival, Tier, Verb
from supervisor.machinefolder.agent_archive import with_bytecode
from supervisor.machinefolder.platform import FolderPlatform
from supervisor.machinefolder.provider import FolderProvider
from supervisor.ports.opening import OpenedProvider, ProviderContext
from supervisor.ports.platform import ShapePrice
from supervisor.ports.traits import SecretKinds, Traits
from supervisor.settings.kinds import Kind, StoreForm
from supervisor.settings.values import Rules, check_keys

TRAITS = Traits(
    kind="paper",
    title="Paper mill",
    group="paper",
    place="shelf",
    images=False,
    secrets=SecretKinds(("env:", "file:"), "env:NAME or file:/PATH", "into a file, and name it in `secrets`"),
    stores={"file": "a folder of this computer"},
    job_max_bytes=None,
    launches_at_once=4,
    shares_computer=True,
    irreplaceable=False,
    meter="a sheet that is thrown away costs nothing more",
)
LIST_USD_PER_H = {"a4": (0.10, 0.30), "a3": (0.20, 0.60)}  # shape -> (spot, on-demand)


@dataclass(frozen=True, kw_only=True)
class PaperSettings:
    """`paper_sheets`: machines at once in each tray. `paper_prices`: in place of the mill's own list."""

    paper_trays: tuple[str, ...] = ("tray-1", "tray-2")
    paper_shapes: tuple[str, ...] = ("a4",)
    paper_sheets: int = 2
    paper_prices: Mapping[str, tuple[float, float]] = field(default_factory=dict)


def check(s: PaperSettings) -> None:
    check_keys("paper_prices", s.paper_prices, "paper_shapes", s.paper_shapes)
    for shape in s.paper_shapes:
        if shape not in LIST_USD_PER_H:
            expected = ", ".join(LIST_USD_PER_H)
            raise SettingsRefused(f"paper_shapes names {shape}: expected {expected}", {"name": "paper_shapes"})


def offers(name: str, s: PaperSettings) -> tuple[Offer, ...]:
    prices = {**LIST_USD_PER_H, **s.paper_prices}
    return tuple(
        Offer(Placement(name, "mill", tray, shape, spot), prices[shape][0 if spot else 1], prices[shape][1])
        for spot in (True, False)
        for shape in s.paper_shapes
        for tray in s.paper_trays
    )


def documented(value: Any, note: str) -> Fact[Any]:
    return Fact(value, Source.DOCUMENTED, "2026-11-01", note)


PROFILE = Profile(
    kind=TRAITS.kind,
    title=TRAITS.title,
    meter_stop=documented("throw away", "the mill's price list"),
    irreversible=documented(True, "the mill's price list"),
    tiers=(Tier("sheet", ("/sheet",), survives_destroy=documented(Survival.NO, "what is thrown away is gone")),),
    verbs=(Verb("throw away", End.DESTROY, By.SUPERVISOR, stops_meter=documented(Stops.YES, "the mill's price list")),),
)


class PaperProvider(FolderProvider):
    name = TRAITS.kind
    traits = TRAITS

    def profile(self, zone: str = "") -> Profile:
        return PROFILE


class PaperPlatform(FolderPlatform):
    place = "paper"

    def prices(self) -> tuple[ShapePrice, ...]:
        """From the mill's own list, of the day on which it was printed."""
        return tuple(
            ShapePrice(told.shape, told.region, told.spot_usd_per_h, told.on_demand_usd_per_h, "mill", "2026-11-01")
            for told in super().prices()
        )

    def refresh_prices(self) -> tuple[ShapePrice, ...]:
        return self.prices()


def open_provider(name: str, s: PaperSettings, context: ProviderContext) -> OpenedProvider:
    shelf = context.data_dir / name  # its own: another provider on this computer must not count its machines
    provider = PaperProvider(
        shelf,
        offers(name, s),
        dict.fromkeys(s.paper_trays, s.paper_sheets),
        agent=with_bytecode(context.agent, context.data_dir / "agent-compiled.pyz"),
        clock=context.clock,
    )
    provider.name = name

    def stock() -> Sequence[Finding]:
        used = len(provider.machines().machines)
        fact = f"{used} of {s.paper_sheets * len(s.paper_trays)} sheets are written on"
        return [Finding("stock", OK, fact, group=TRAITS.group)]

    return OpenedProvider(
        provider=provider,
        platform=PaperPlatform(provider, shelf),
        scope=provider.scope(context.scope_before),
        server_file=str(context.data_dir / "server.json"),
        disasters=provider,
        checks=lambda: [Check("stock", stock, TRAITS.group)],
    )


def meaning(s: PaperSettings, store_url: str, image: str) -> tuple[str, tuple[Finding, ...]]:
    return f"machines are sheets of paper in {', '.join(s.paper_trays)}; objects in {store_url}", ()


KIND = Kind(
    traits=TRAITS,
    values=PaperSettings,
    prefix="paper_",
    store=StoreForm("file:///FOLDER", re.compile(r"file:///.*", re.DOTALL)),
    rules=Rules(counts={"paper_sheets": (1, 100)}),
    check=check,
    meaning=meaning,
    open=open_provider,
)
