"""How sessions of Colab are made from settings: the kind that the list of providers names."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from supervisor.domain.errors import SettingsRefused
from supervisor.providers.colab import settings
from supervisor.providers.colab.settings import ColabSettings
from supervisor.providers.colab.traits import TRAITS
from supervisor.settings.kinds import Kind

if TYPE_CHECKING:
    from supervisor.ports.opening import OpenedProvider, ProviderContext


def check_ready(s: ColabSettings, public_url: str) -> None:
    """Raises SettingsRefused."""
    from supervisor.remote.address import need_address

    need_address(TRAITS.kind, public_url)
    if s.has_client and shutil.which(s.colab_client) is None:
        raise SettingsRefused(
            f"colab_ways = client needs the program {s.colab_client}: install the official client, name it in "
            "colab_client, or use colab_ways = cell",
            {"name": "colab_client"},
        )


def open_provider(name: str, s: ColabSettings, context: ProviderContext) -> OpenedProvider:
    from functools import partial

    from supervisor.domain.profile import day_of
    from supervisor.ports.opening import OpenedProvider
    from supervisor.providers.colab.cell import cell_of
    from supervisor.providers.colab.client import Client
    from supervisor.providers.colab.doctor import colab_checks
    from supervisor.providers.colab.kept import Launches
    from supervisor.providers.colab.platform import ColabPlatform
    from supervisor.providers.colab.provider import ColabProvider

    check_ready(s, context.public_url)
    client = Client(s, context.data_dir / f"colab-{name}") if s.has_client else None
    provider = ColabProvider(
        name,
        s,
        launches=Launches(context.objects, name),
        claims=context.claims,
        client=client,
        clock=context.clock,
        on=day_of(context.clock.now()),
        fill=partial(cell_of, context.public_url, context.agent),
    )
    return OpenedProvider(
        provider=provider,
        platform=ColabPlatform(provider, s),
        scope=name,  # a way may be added or removed, and the runs stay where they are
        checks=lambda: colab_checks(client, s, context.public_url),
    )


KIND = Kind(
    traits=TRAITS,
    values=ColabSettings,
    prefix="colab_",
    store=settings.STORE,
    rules=settings.RULES,
    check=settings.check,
    meaning=settings.meaning,
    open=open_provider,
    leaves_no_trace=True,
)
