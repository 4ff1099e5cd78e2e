"""What this computer can tell a person beside its machines: not much, for nobody rents it out.

What a launch on this computer would start: the agent beside the training, in a folder of its own.

Nothing is made. Of the environment the names are told, never a value: the service's own variables are among it.
"""

from __future__ import annotations

import codecs
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from supervisor.domain.findings import Finding
from supervisor.domain.machines.machine import MachineRef
from supervisor.domain.machines.placement import Offer, OfferKey
from supervisor.ports.platform import (
    Account,
    ConsolePart,
    DataPlace,
    PlanQuestion,
    PlatformEvent,
    PriceTold,
)
from supervisor.ports.provider import LaunchRequest, NotSupported
from supervisor.providers.local.secrets import variables, without_secrets


def preview(data_dir: Path, request: LaunchRequest) -> Mapping[str, object]:
    """`argv`: the agent's; `job`: what it reads; `environment`: names of what it inherits and gets, secrets left out;
    `secrets`: name -> reference."""
    folder = data_dir.resolve() / "machines" / request.name
    inherited = without_secrets(os.environ, variables(request.secrets.values()))
    return {
        "kind": "process",
        "argv": [sys.executable, str(folder / "agent.pyz"), str(folder)],
        "folder": str(folder),
        "environment": sorted({*inherited, "SPOT_MACHINE", "SPOT_MACHINE_DIR"}),
        "job": {**request.job, "name": request.name, "zone": request.placement.zone},
        "secrets": dict(request.secrets),
    }


if TYPE_CHECKING:
    from supervisor.providers.local.provider import LocalProvider


class LocalPlatform:
    """Platform of ports/platform.py."""

    log_service = ""

    def __init__(self, provider: LocalProvider, data_dir: Path) -> None:
        self._provider, self._data_dir = provider, data_dir

    def account(self) -> Account:
        return Account("this computer")

    def account_so_far(self) -> Account:
        return self.account()

    def preview(self, request: LaunchRequest) -> Mapping[str, object]:
        return preview(self._data_dir, request)

    def advise(self, question: PlanQuestion) -> tuple[Finding, ...]:
        return ()

    def chances(self, offers: Sequence[Offer]) -> Mapping[OfferKey, float]:
        raise NotSupported("nobody judges how likely a machine on this computer is")

    def data_places(
        self, regions: Sequence[str], image: str = "", ask: bool = False
    ) -> tuple[DataPlace, ...]:
        return ()

    def prices(self) -> tuple[PriceTold, ...]:
        spot = {offer.placement.shape: offer for offer in self._provider.offers() if offer.placement.spot}
        return tuple(
            PriceTold(
                shape, offer.placement.region, offer.price_usd_per_h, offer.on_demand_usd_per_h, "settings"
            )
            for shape, offer in spot.items()
        )

    def refresh_prices(self) -> tuple[PriceTold, ...]:
        raise NotSupported("the prices of machines on this computer are the setting local_prices")

    def history(self, refs: Sequence[MachineRef], since: float) -> tuple[PlatformEvent, ...]:
        return ()

    def console_after(self, ref: MachineRef, start: int, max_bytes: int = 65536) -> ConsolePart:
        content, first = self._provider.console_after(ref, start, max_bytes)
        whole = whole_characters(content)
        return ConsolePart(whole, first, first + len(whole))

    def console_archive(self, ref: MachineRef, since: float, max_lines: int) -> bytes:
        raise NotSupported("only Google Cloud keeps consoles in a log service")


def whole_characters(content: bytes) -> bytes:
    """Without the beginning of a character whose rest is still to be written, or lies behind the limit."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(content)
    return content[: len(content) - len(decoder.getstate()[0])]
