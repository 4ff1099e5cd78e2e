"""What a user can ask about jobs of a Slurm cluster, beside the machines themselves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from supervisor.domain.findings import Finding
from supervisor.domain.machines import MachineRef, Offer, OfferKey
from supervisor.machinefolder.platform import whole_characters
from supervisor.machinefolder.provider import launch_values
from supervisor.ports.platform import Account, ConsolePart, DataPlace, Login, PlanQuestion, PlatformEvent, ShapePrice
from supervisor.ports.provider import LaunchRequest, NotSupported
from supervisor.providers.slurm.provider import SlurmProvider
from supervisor.providers.slurm.settings import SlurmSettings


class SlurmPlatform:
    log_service = ""

    def __init__(self, provider: SlurmProvider, s: SlurmSettings) -> None:
        self._provider, self._folder = provider, s.slurm_folder

    def account(self) -> Account:
        return Account(self._provider.name)

    def account_so_far(self) -> Account:
        return self.account()

    def login(self, ref: MachineRef) -> Login:
        job_id = (ref.machine_id or "").partition(".")[0]
        command = f"srun --jobid={job_id} --partition={ref.zone} --overlap --pty bash -l" if job_id.isdigit() else ""
        return Login(command, f"{self._folder}/machines/{ref.name}")

    def preview(self, request: LaunchRequest) -> Mapping[str, object]:
        return {
            "kind": "job",
            "argv": list(self._provider.words(request)),
            "folder": f"{self._folder}/machines/{request.name}",
            "job": launch_values(request),
            "secrets": dict(request.secrets),
        }

    def advise(self, question: PlanQuestion) -> tuple[Finding, ...]:
        return ()

    def chances(self, offers: Sequence[Offer]) -> Mapping[OfferKey, float]:
        raise NotSupported("there is no estimate of the capacity of a cluster")

    def data_places(self, regions: Sequence[str], image: str = "", ask: bool = False) -> tuple[DataPlace, ...]:
        return ()

    def prices(self) -> tuple[ShapePrice, ...]:
        spot = [offer for offer in self._provider.offers() if offer.placement.spot]
        shapes = dict.fromkeys((offer.placement.shape, offer.placement.region) for offer in spot)
        return tuple(ShapePrice(shape, region, 0.0, 0.0, "walltime, no money") for shape, region in shapes)

    def refresh_prices(self) -> tuple[ShapePrice, ...]:
        raise NotSupported("a cluster has no prices: its meter is walltime and fairshare")

    def history(self, refs: Sequence[MachineRef], since: float) -> tuple[PlatformEvent, ...]:
        return ()

    def console_after(self, ref: MachineRef, start: int, max_bytes: int = 65536) -> ConsolePart:
        content, first = self._provider.console_after(ref, start, max_bytes)
        whole = whole_characters(content)
        return ConsolePart(whole, first, first + len(whole))

    def console_archive(self, ref: MachineRef, since: float, max_lines: int) -> bytes:
        raise NotSupported("no log service keeps the consoles of jobs")
