"""What a user can ask about jobs of a Slurm cluster, beside the machines themselves."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from supervisor.domain.machines import MachineRef
from supervisor.machinefolder.platform import FolderPlatform
from supervisor.machinefolder.provider import launch_values
from supervisor.ports.platform import Account, Login, ShapePrice
from supervisor.ports.provider import LaunchRequest, NotSupported
from supervisor.providers.slurm.provider import SlurmProvider
from supervisor.providers.slurm.settings import SlurmSettings


class SlurmPlatform(FolderPlatform):
    place = "a Slurm cluster"

    def __init__(self, provider: SlurmProvider, s: SlurmSettings) -> None:
        super().__init__(provider, Path(s.slurm_folder))
        self._name, self._words, self._folder = provider.name, provider.words, s.slurm_folder

    def account(self) -> Account:
        return Account(self._name)

    def login(self, ref: MachineRef) -> Login:
        job_id = (ref.machine_id or "").partition(".")[0]
        command = f"srun --jobid={job_id} --partition={ref.zone} --overlap --pty bash -l" if job_id.isdigit() else ""
        return Login(command, f"{self._folder}/machines/{ref.name}")

    def preview(self, request: LaunchRequest) -> Mapping[str, object]:
        return {
            "kind": "job",
            "argv": list(self._words(request)),
            "folder": f"{self._folder}/machines/{request.name}",
            "job": launch_values(request),
            "secrets": dict(request.secrets),
        }

    def prices(self) -> tuple[ShapePrice, ...]:
        spot = [offer for offer in self._provider.offers() if offer.placement.spot]
        shapes = dict.fromkeys((offer.placement.shape, offer.placement.region) for offer in spot)
        return tuple(ShapePrice(shape, region, 0.0, 0.0, "walltime, no money") for shape, region in shapes)

    def refresh_prices(self) -> tuple[ShapePrice, ...]:
        raise NotSupported("a cluster has no prices: its meter is walltime and fairshare")
