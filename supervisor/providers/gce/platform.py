"""What Google Cloud can tell a person beside the machines themselves. Each answer is made in a file of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from supervisor.domain.findings import Finding
from supervisor.domain.machine import MachineRef
from supervisor.ports.platform import Account, ConsolePart, PlanQuestion, PlatformEvent, PriceTold
from supervisor.ports.provider import LaunchRequest, NotSupported
from supervisor.providers.gce.clients import Compute
from supervisor.providers.gce.config import GceConfig


class GcePlatform:
    """Platform of ports/platform.py. `compute`: with the short patience of a person who waits."""

    def __init__(self, config: GceConfig, compute: Compute) -> None:
        self._config, self._compute = config, compute

    def account(self) -> Account:
        return Account(self._config.project)

    def preview(self, request: LaunchRequest) -> Mapping[str, object]:
        raise NotSupported("preview")

    def advise(self, question: PlanQuestion) -> tuple[Finding, ...]:
        return ()

    def prices(self) -> tuple[PriceTold, ...]:
        raise NotSupported("prices")

    def refresh_prices(self) -> tuple[PriceTold, ...]:
        raise NotSupported("refresh_prices")

    def history(self, refs: Sequence[MachineRef], since: float) -> tuple[PlatformEvent, ...]:
        raise NotSupported("history")

    def console_after(self, ref: MachineRef, start: int, max_bytes: int = 65536) -> ConsolePart:
        raise NotSupported("console_after")

    def console_archive(self, ref: MachineRef, since: float, max_lines: int) -> bytes:
        raise NotSupported("console_archive")
