"""What a user can ask about machines that are folders, beside the machines themselves.

The preview of a launch makes nothing. It shows the names in the environment, never a value, because variables of the
service are among them. A provider of such machines subclasses the platform with texts about its own settings.
"""

from __future__ import annotations

import codecs
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from supervisor.domain.findings import Finding
from supervisor.domain.machines import MachineRef, Offer, OfferKey
from supervisor.machinefolder.secrets import variables, without_secrets
from supervisor.ports.platform import Account, ConsolePart, DataPlace, Login, PlanQuestion, PlatformEvent, ShapePrice
from supervisor.ports.provider import LaunchRequest, NotSupported


def preview(data_dir: Path, request: LaunchRequest) -> Mapping[str, object]:
    """`argv`: the agent's; `job`: what it reads; `environment`: names of its variables without secrets; `secrets`:
    name -> reference."""
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


class ReadsFolders(Protocol):
    def offers(self) -> tuple[Offer, ...]: ...

    def console_after(self, ref: MachineRef, start: int, max_bytes: int) -> tuple[bytes, int]:
        """(bytes, the offset of the first); a negative start counts from the end."""
        ...


class FolderPlatform:
    """Platform of ports/platform.py. A subclass has the place in words: `this computer`. One whose folders are on other
    computers has an account, a login, a preview and prices of its own."""

    log_service = ""
    place: str

    def __init__(self, provider: ReadsFolders, data_dir: Path) -> None:
        self._provider, self._data_dir = provider, data_dir

    def account(self) -> Account:
        return Account(self.place)

    def account_so_far(self) -> Account:
        return self.account()

    def preview(self, request: LaunchRequest) -> Mapping[str, object]:
        return preview(self._data_dir, request)

    def login(self, ref: MachineRef) -> Login:
        return Login("", str(self._data_dir.resolve() / "machines" / ref.name))

    def advise(self, question: PlanQuestion) -> tuple[Finding, ...]:
        return ()

    def chances(self, offers: Sequence[Offer]) -> Mapping[OfferKey, float]:
        raise NotSupported(f"there is no estimate of the capacity on {self.place}")

    def data_places(self, regions: Sequence[str], image: str = "", ask: bool = False) -> tuple[DataPlace, ...]:
        return ()

    def prices(self) -> tuple[ShapePrice, ...]:
        spot = {offer.placement.shape: offer for offer in self._provider.offers() if offer.placement.spot}
        return tuple(
            ShapePrice(shape, offer.placement.region, offer.price_usd_per_h, offer.on_demand_usd_per_h, "settings")
            for shape, offer in spot.items()
        )

    def refresh_prices(self) -> tuple[ShapePrice, ...]:
        raise NotSupported(f"the prices of machines on {self.place} come from the settings")

    def history(self, refs: Sequence[MachineRef], since: float) -> tuple[PlatformEvent, ...]:
        return ()

    def console_after(self, ref: MachineRef, start: int, max_bytes: int = 65536) -> ConsolePart:
        content, first = self._provider.console_after(ref, start, max_bytes)
        whole = whole_characters(content)
        return ConsolePart(whole, first, first + len(whole))

    def console_archive(self, ref: MachineRef, since: float, max_lines: int) -> bytes:
        raise NotSupported(f"no log service keeps the consoles of machines on {self.place}")


def whole_characters(content: bytes) -> bytes:
    """Without an incomplete character at the end: its rest is not yet written, or beyond the limit."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    decoder.decode(content)
    return content[: len(content) - len(decoder.getstate()[0])]
