"""How jobs of a Slurm cluster are made from settings: the kind that the list of providers names.

The library of connections is imported only where the cluster is behind a login node.
"""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from supervisor.domain.errors import SettingsRefused
from supervisor.providers.slurm import settings
from supervisor.providers.slurm.settings import SlurmSettings
from supervisor.providers.slurm.traits import TRAITS
from supervisor.settings.kinds import Kind

if TYPE_CHECKING:
    from supervisor.ports.opening import OpenedProvider, ProviderContext
    from supervisor.providers.slurm.site import LoginNode


def check_ready(s: SlurmSettings) -> None:
    """Raises SettingsRefused."""
    if s.slurm_host and importlib.util.find_spec("asyncssh") is None:
        raise SettingsRefused("slurm_host needs asyncssh: pip install 'spot-supervisor[ssh]'")
    if not s.slurm_host and shutil.which("sbatch") is None:
        raise SettingsRefused(
            "provider = slurm needs Slurm's commands (sbatch, squeue, scancel, scontrol) on this computer: run the "
            "supervisor on a login node, install slurm-client, or name a login node in slurm_host"
        )


def open_provider(name: str, s: SlurmSettings, context: ProviderContext) -> OpenedProvider:
    from supervisor.domain.profile import day_of
    from supervisor.ports.opening import OpenedProvider
    from supervisor.providers.slurm.doctor import cluster_checks
    from supervisor.providers.slurm.provider import SlurmPlatform, SlurmProvider

    check_ready(s)
    clock = context.clock
    site, close = login_node(s, lambda: context.agent) if s.slurm_host else (None, lambda: None)
    provider = SlurmProvider(name, s, agent=lambda: context.agent, now=clock.now, on=day_of(clock.now()), site=site)
    return OpenedProvider(
        provider=provider,
        platform=SlurmPlatform(provider, s),
        scope=name,  # a partition may be added or removed, and the runs stay where they are
        checks=lambda: cluster_checks(provider.cluster, s, provider.site),
        close=close,
    )


def login_node(s: SlurmSettings, agent: Callable[[], Path]) -> tuple[LoginNode, Callable[[], None]]:
    """With what closes its connections."""
    from supervisor.providers.slurm.site import LoginNode
    from supervisor.remote.connections import Connections
    from supervisor.remote.hosts import Host

    connections = Connections(_file(s.slurm_host_config), _file(s.slurm_host_keys))
    host = Host(s.slurm_host, connections, folder=s.slurm_folder, python=s.slurm_host_python, agent=agent)
    return LoginNode(host), connections.close


def _file(path: str) -> Path | None:
    return Path(path).expanduser() if path else None


KIND = Kind(
    traits=TRAITS,
    values=SlurmSettings,
    prefix="slurm_",
    store=settings.STORE,
    rules=settings.RULES,
    check=settings.check,
    complete=settings.complete,
    meaning=settings.meaning,
    open=open_provider,
    leaves_no_trace=True,
)
