"""How jobs of a Slurm cluster are made from settings: the kind that the list of providers names.

The library of connections is imported only where the cluster is behind a login node.
"""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from supervisor.domain.errors import SettingsRefused
from supervisor.providers.slurm import settings
from supervisor.providers.slurm.settings import SlurmSettings
from supervisor.providers.slurm.traits import TRAITS
from supervisor.settings.kinds import Kind

if TYPE_CHECKING:
    from supervisor.ports.objectstore import Relay
    from supervisor.ports.opening import OpenedProvider, ProviderContext
    from supervisor.providers.slurm.provider import SlurmProvider
    from supervisor.providers.slurm.site import LoginNode
    from supervisor.remote.connections import Connections
    from supervisor.remote.hosts import Host


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
    relay = None
    if site is not None and s.slurm_store == settings.RELAY:
        transfers = _connections(s, waits=False)
        relay, close = partial(relay_of, provider, site.host, transfers), _both(close, transfers.close)
    return OpenedProvider(
        provider=provider,
        platform=SlurmPlatform(provider, s),
        scope=name,  # a partition may be added or removed, and the runs stay where they are
        checks=lambda: cluster_checks(provider.cluster, s, provider.site),
        relay=relay,
        close=close,
    )


def relay_of(provider: SlurmProvider, host: Host, transfers: Connections, supervisor_id: str) -> Relay:
    """The stores of runs below slurm_folder. The whole cluster is one place: all partitions see the same folder."""
    from supervisor.remote.stays import HostRelay

    place = provider.name

    def watch(note: Callable[[str, Mapping[str, Any]], None]) -> None:
        provider.follow(partial(note, place))

    return HostRelay({place: host.over(transfers)}, supervisor_id, watch, transfers.end, lambda zone: place)


def login_node(s: SlurmSettings, agent: Callable[[], Path]) -> tuple[LoginNode, Callable[[], None]]:
    """With what closes its connections."""
    from supervisor.providers.slurm.site import LoginNode
    from supervisor.remote.hosts import Host

    connections = _connections(s)
    host = Host(s.slurm_host, connections, folder=s.slurm_folder, python=s.slurm_host_python, agent=agent)
    return LoginNode(host), connections.close


def _connections(s: SlurmSettings, *, waits: bool = True) -> Connections:
    from supervisor.remote.connections import Connections

    return Connections(_file(s.slurm_host_config), _file(s.slurm_host_keys), waits=waits)


def _both(first: Callable[[], None], second: Callable[[], None]) -> Callable[[], None]:
    def close() -> None:
        first()
        second()

    return close


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
