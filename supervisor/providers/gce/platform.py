"""What a user can ask Google Cloud beside the machines themselves. The work of each method is in another file."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from supervisor.domain.findings import Finding
from supervisor.domain.machines import MachineRef, Offer, OfferKey
from supervisor.ports.platform import Account, ConsolePart, DataPlace, Login, PlanQuestion, PlatformEvent, ShapePrice
from supervisor.ports.provider import LaunchRequest, MachineMissing, NotSupported
from supervisor.providers.gce.advice.advising import advise
from supervisor.providers.gce.advice.capacity import chances
from supervisor.providers.gce.advice.data_places import DataPlaces
from supervisor.providers.gce.calls.account import ProjectAccount
from supervisor.providers.gce.calls.clients import Compute
from supervisor.providers.gce.calls.errors import as_unavailable
from supervisor.providers.gce.config import GceConfig
from supervisor.providers.gce.machines import consoles
from supervisor.providers.gce.machines.history import history
from supervisor.providers.gce.machines.instance import preview
from supervisor.providers.gce.prices.pricing import Pricing
from supervisor.providers.gce.traits import TRAITS


class GcePlatform:
    """Platform of ports/platform.py. `compute`: with the short deadline of a user's request. `places`: shared with the
    thread that learns them in the background. `agent`: the zipapp, None = this installation has none. `pricing`: shared
    with the offers."""

    log_service = TRAITS.log_service

    def __init__(
        self,
        config: GceConfig,
        compute: Compute,
        places: DataPlaces,
        agent: Path | None = None,
        pricing: Pricing | None = None,
    ) -> None:
        self._config, self._compute, self._places, self._agent = config, compute, places, agent
        self._pricing = pricing or Pricing(config, compute, time.time)
        self._account = ProjectAccount(config, compute)

    def account(self) -> Account:
        with as_unavailable(f"project {self._config.project}"):
            return self._account.read()

    def account_so_far(self) -> Account:
        return self._account.so_far

    def preview(self, request: LaunchRequest) -> Mapping[str, object]:
        return preview(self._config, self._agent, request)

    def login(self, ref: MachineRef) -> Login:
        project = self._account.so_far.name
        return Login(f"gcloud compute ssh {ref.name} --zone={ref.zone} --project={project} --tunnel-through-iap")

    def advise(self, question: PlanQuestion) -> tuple[Finding, ...]:
        return advise(self._config, self._places, question)

    def chances(self, offers: Sequence[Offer]) -> Mapping[OfferKey, float]:
        if not self._config.capacity_advice:
            raise NotSupported("gce_capacity_advice is switched off")
        with as_unavailable("capacity advice"):
            return chances(self._config, self._compute, offers)

    def data_places(self, regions: Sequence[str], image: str = "", ask: bool = False) -> tuple[DataPlace, ...]:
        return self._places.places(regions, image, ask)

    def prices(self) -> tuple[ShapePrice, ...]:
        return self._pricing.prices()

    def refresh_prices(self) -> tuple[ShapePrice, ...]:
        return self._pricing.refresh()

    def history(self, refs: Sequence[MachineRef], since: float) -> tuple[PlatformEvent, ...]:
        with as_unavailable("Google's own events"):
            return history(self._compute, refs, since)

    def console_after(self, ref: MachineRef, start: int, max_bytes: int = 65536) -> ConsolePart:
        with as_unavailable(f"console of {ref.name}"):
            part = consoles.part_after(self._compute, ref, start, max_bytes)
        if part is None:
            raise MachineMissing(ref.name)
        return part

    def console_archive(self, ref: MachineRef, since: float, max_lines: int) -> bytes:
        with as_unavailable("Cloud Logging"):
            lines = consoles.archived(self._config, self._compute, ref, since, max_lines)
        return "".join(f"{line}\n" for line in lines).encode()
