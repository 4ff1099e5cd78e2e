"""What a user can ask about hosts by SSH, beside their machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from supervisor.domain.findings import Finding
from supervisor.domain.machines import MachineRef, Offer, OfferKey
from supervisor.machinefolder.platform import whole_characters
from supervisor.machinefolder.provider import launch_values
from supervisor.ports.platform import Account, ConsolePart, DataPlace, Login, PlanQuestion, PlatformEvent, ShapePrice
from supervisor.ports.provider import LaunchRequest, NotSupported
from supervisor.providers.ssh.provider import SshProvider
from supervisor.providers.ssh.settings import SshSettings


class SshPlatform:
    log_service = ""

    def __init__(self, provider: SshProvider, s: SshSettings) -> None:
        self._provider, self._folder, self._python = provider, s.ssh_folder, s.ssh_python
        self._config, self._known_hosts = map(_absolute, (s.ssh_config, s.ssh_known_hosts))

    def account(self) -> Account:
        return Account(self._provider.name)

    def account_so_far(self) -> Account:
        return self.account()

    def login(self, ref: MachineRef) -> Login:
        return Login(f"ssh {ref.zone}", self._folder_of(ref.name), self._config, self._known_hosts)

    def _folder_of(self, name: str) -> str:
        return f"{self._folder}/machines/{name}"

    def preview(self, request: LaunchRequest) -> Mapping[str, object]:
        folder = self._folder_of(request.name)
        return {
            "kind": "process",
            "host": request.placement.zone,
            "argv": [self._python, f"{folder}/agent.pyz", folder],
            "folder": folder,
            "job": launch_values(request),
            "secrets": dict(request.secrets),
        }

    def advise(self, question: PlanQuestion) -> tuple[Finding, ...]:
        return ()

    def chances(self, offers: Sequence[Offer]) -> Mapping[OfferKey, float]:
        raise NotSupported("there is no estimate of the capacity of hosts")

    def data_places(self, regions: Sequence[str], image: str = "", ask: bool = False) -> tuple[DataPlace, ...]:
        return ()

    def prices(self) -> tuple[ShapePrice, ...]:
        spot = [offer for offer in self._provider.offers() if offer.placement.spot]
        return tuple(
            ShapePrice(
                offer.placement.shape,
                offer.placement.zone,
                offer.price_usd_per_h,
                offer.on_demand_usd_per_h,
                "settings" if offer.price_usd_per_h is not None else "",
            )
            for offer in spot
        )

    def refresh_prices(self) -> tuple[ShapePrice, ...]:
        raise NotSupported("the prices of hosts are the setting ssh_prices")

    def history(self, refs: Sequence[MachineRef], since: float) -> tuple[PlatformEvent, ...]:
        return ()

    def console_after(self, ref: MachineRef, start: int, max_bytes: int = 65536) -> ConsolePart:
        content, first = self._provider.console_after(ref, start, max_bytes)
        whole = whole_characters(content)
        return ConsolePart(whole, first, first + len(whole))

    def console_archive(self, ref: MachineRef, since: float, max_lines: int) -> bytes:
        raise NotSupported("no log service keeps the consoles of hosts")


def _absolute(path: str) -> str:
    return str(Path(path).expanduser().absolute()) if path else ""
