"""How hosts by SSH are made from settings: the kind that the list of providers names.

The library of connections is imported only where such hosts are used.
"""

from __future__ import annotations

import importlib.util
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from supervisor.domain.errors import SettingsRefused
from supervisor.providers.ssh import settings
from supervisor.providers.ssh.settings import SshSettings
from supervisor.providers.ssh.traits import TRAITS
from supervisor.settings.kinds import Kind

if TYPE_CHECKING:
    from supervisor.ports.opening import OpenedProvider, ProviderContext


def ready() -> None:
    """Raises SettingsRefused."""
    if importlib.util.find_spec("asyncssh") is None:
        raise SettingsRefused("provider = ssh needs asyncssh: pip install 'spot-supervisor[ssh]'")


def open_provider(name: str, s: SshSettings, context: ProviderContext) -> OpenedProvider:
    from supervisor.domain.profile import day_of
    from supervisor.ports.opening import OpenedProvider
    from supervisor.providers.ssh.doctor import host_checks
    from supervisor.providers.ssh.meters import SshMeters
    from supervisor.providers.ssh.platform import SshPlatform
    from supervisor.providers.ssh.provider import SshProvider
    from supervisor.remote.connections import Connections

    connections = Connections(_file(s.ssh_config), _file(s.ssh_known_hosts))
    transfers = Connections(_file(s.ssh_config), _file(s.ssh_known_hosts), waits=False)
    today, meters = day_of(context.clock.now()), SshMeters(s, context.hook)
    provider = SshProvider(
        name, s, connections, lambda: context.agent, meters=meters, on=today, store_url=context.objects.url
    )

    def close() -> None:
        connections.close()
        transfers.close()

    return OpenedProvider(
        provider=provider,
        platform=SshPlatform(provider, s),
        scope=name,  # a host may be added or removed, and the runs stay where they are
        disasters=provider,
        checks=lambda: host_checks(provider.hosts, provider.meters),
        relay=partial(provider.relay, transfers=transfers) if s.ssh_store == settings.RELAY else None,
        close=close,
    )


def _file(path: str) -> Path | None:
    return Path(path).expanduser() if path else None


KIND = Kind(
    traits=TRAITS,
    values=SshSettings,
    prefix="ssh_",
    store=settings.STORE,
    rules=settings.RULES,
    check=settings.check,
    complete=settings.complete,
    ready=ready,
    meaning=settings.meaning,
    open=open_provider,
    leaves_no_trace=True,
)
