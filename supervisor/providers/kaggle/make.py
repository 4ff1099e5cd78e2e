"""How sessions of Kaggle notebooks are made from settings: the kind that the list of providers names.

kagglesdk is imported with the first request.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from supervisor.domain.errors import SettingsRefused
from supervisor.providers.kaggle import settings
from supervisor.providers.kaggle.settings import KaggleSettings
from supervisor.providers.kaggle.traits import TRAITS
from supervisor.settings.kinds import Kind

if TYPE_CHECKING:
    from supervisor.ports.opening import OpenedProvider, ProviderContext


def ready() -> None:
    """Raises SettingsRefused."""
    if find_spec("kagglesdk") is None:
        raise SettingsRefused(
            "provider = kaggle needs kagglesdk. Install it: pip install 'spot-supervisor[kaggle]'",
            {"package": "kagglesdk"},
        )


def open_provider(name: str, s: KaggleSettings, context: ProviderContext) -> OpenedProvider:
    from supervisor.domain.profile import day_of
    from supervisor.ports.opening import OpenedProvider
    from supervisor.providers.kaggle.api import Api
    from supervisor.providers.kaggle.doctor import account_checks
    from supervisor.providers.kaggle.fetching import Outputs
    from supervisor.providers.kaggle.platform import KagglePlatform
    from supervisor.providers.kaggle.provider import KaggleProvider
    from supervisor.providers.kaggle.pushing import Origin
    from supervisor.remote.address import need_address

    if s.kaggle_internet:
        need_address(TRAITS.kind, context.public_url)
    clock = context.clock
    api = Api(s.kaggle_user, s.kaggle_token, clock.now)
    parts = context.data_dir / "kaggle" / name
    outputs = Outputs(api, context.objects, context.take, parts=parts, now=clock.now)
    provider = KaggleProvider(
        name,
        s,
        api,
        claims=context.claims,
        origin=Origin(lambda: context.agent, context.public_url),
        on=day_of(clock.now()),
        now=clock.now,
        outputs=outputs,
    )
    return OpenedProvider(
        provider=provider,
        platform=KagglePlatform(provider, s),
        scope=s.kaggle_user,  # the account sees the same notebooks under every name of the section
        checks=lambda: account_checks(provider.api, s, context.public_url, clock.now),
        close=provider.close,
    )


KIND = Kind(
    traits=TRAITS,
    values=KaggleSettings,
    prefix="kaggle_",
    store=settings.STORE,
    rules=settings.RULES,
    check=settings.check,
    complete=settings.complete,
    ready=ready,
    meaning=settings.meaning,
    open=open_provider,
    leaves_no_trace=True,
)
