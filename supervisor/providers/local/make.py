"""How machines on this computer are made from settings: the kind that the list of providers names.

Opening makes the folders of the machines, so only `spot serve` does it and not the doctor. The code that starts and
watches processes is imported only where machines are on this computer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from supervisor.domain.errors import SettingsRefused
from supervisor.providers.local import settings
from supervisor.providers.local.settings import LocalSettings, most_machines, offers
from supervisor.providers.local.traits import TRAITS
from supervisor.settings.kinds import Kind

if TYPE_CHECKING:
    from supervisor.ports.opening import OpenedProvider, ProviderContext


def open_provider(name: str, s: LocalSettings, context: ProviderContext) -> OpenedProvider:
    """Raises SettingsRefused where the name of this set of machines is lost."""
    from supervisor.machinefolder.agent_archive import with_bytecode
    from supervisor.ports.opening import OpenedProvider
    from supervisor.ports.provider import ProviderUnavailable
    from supervisor.providers.local.provider import LocalPlatform, LocalProvider

    local = LocalProvider(
        context.data_dir,
        offers(name, s),
        s.local_capacity,
        agent=context.agent,
        clock=context.clock,
        gpus=s.local_gpus,
        most=most_machines(s)[0],
    )
    local.name = name
    try:
        scope = local.scope(context.scope_before)
    except ProviderUnavailable as error:
        raise SettingsRefused(
            f"{error}. Restore it from a backup: it says to which runs these machines belong."
        ) from None

    def warm() -> None:
        local.agent = with_bytecode(context.agent, context.data_dir / "agent-compiled.pyz")

    return OpenedProvider(
        provider=local,
        platform=LocalPlatform(local, context.data_dir),
        scope=scope,
        server_file=str(context.data_dir / "server.json"),
        disasters=local,
        cards=local,
        promised_cards=max(s.local_gpus.values(), default=0),
        warm=warm,
    )


KIND = Kind(
    traits=TRAITS,
    values=LocalSettings,
    prefix="local_",
    store=settings.STORE,
    rules=settings.RULES,
    check=settings.check,
    meaning=settings.meaning,
    open=open_provider,
)
