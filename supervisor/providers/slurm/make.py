"""How jobs of a Slurm cluster are made from settings: the kind that the list of providers names."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from supervisor.domain.errors import SettingsRefused
from supervisor.providers.slurm import settings
from supervisor.providers.slurm.settings import SlurmSettings
from supervisor.providers.slurm.traits import TRAITS
from supervisor.settings.kinds import Kind

if TYPE_CHECKING:
    from supervisor.ports.opening import OpenedProvider, ProviderContext


def ready() -> None:
    """Raises SettingsRefused."""
    if shutil.which("sbatch") is None:
        raise SettingsRefused(
            "provider = slurm needs Slurm's commands (sbatch, squeue, scancel, scontrol) on this computer: run the "
            "supervisor on a login node, or install slurm-client"
        )


def open_provider(name: str, s: SlurmSettings, context: ProviderContext) -> OpenedProvider:
    from supervisor.domain.profile import day_of
    from supervisor.ports.opening import OpenedProvider
    from supervisor.providers.slurm.doctor import cluster_checks
    from supervisor.providers.slurm.provider import SlurmPlatform, SlurmProvider

    clock = context.clock
    provider = SlurmProvider(name, s, agent=lambda: context.agent, now=clock.now, on=day_of(clock.now()))
    return OpenedProvider(
        provider=provider,
        platform=SlurmPlatform(provider, s),
        scope=name,  # a partition may be added or removed, and the runs stay where they are
        checks=lambda: cluster_checks(provider.cluster, s),
    )


KIND = Kind(
    traits=TRAITS,
    values=SlurmSettings,
    prefix="slurm_",
    store=settings.STORE,
    rules=settings.RULES,
    check=settings.check,
    complete=settings.complete,
    ready=ready,
    meaning=settings.meaning,
    open=open_provider,
    leaves_no_trace=True,
)
