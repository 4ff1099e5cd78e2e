"""What a user can ask about hosts by SSH, beside their machines."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from supervisor.domain.machines import MachineRef
from supervisor.machinefolder.platform import FolderPlatform
from supervisor.machinefolder.provider import launch_values
from supervisor.ports.platform import Account, Login, ShapePrice
from supervisor.ports.provider import LaunchRequest
from supervisor.providers.ssh.provider import SshProvider
from supervisor.providers.ssh.settings import SshSettings


class SshPlatform(FolderPlatform):
    place = "hosts by SSH"

    def __init__(self, provider: SshProvider, s: SshSettings) -> None:
        super().__init__(provider, Path(s.ssh_folder))
        self._name, self._folder, self._python = provider.name, s.ssh_folder, s.ssh_python
        self._config, self._known_hosts = map(_absolute, (s.ssh_config, s.ssh_known_hosts))

    def account(self) -> Account:
        return Account(self._name)

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


def _absolute(path: str) -> str:
    return str(Path(path).expanduser().absolute()) if path else ""
