"""How Jobs of a Kubernetes cluster are made from settings: the kind that the list of providers names.

lightkube is imported with the first request. Opening reads no kubeconfig: the first tick does.
"""

from __future__ import annotations

from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

from supervisor.domain.errors import SettingsRefused
from supervisor.providers.kubernetes import settings
from supervisor.providers.kubernetes.settings import KubernetesSettings
from supervisor.providers.kubernetes.traits import TRAITS
from supervisor.settings.kinds import Kind

if TYPE_CHECKING:
    from supervisor.ports.opening import OpenedProvider, ProviderContext


def ready() -> None:
    """Raises SettingsRefused."""
    if find_spec("lightkube") is None:
        raise SettingsRefused(
            "provider = kubernetes needs lightkube. Install it: pip install 'spot-supervisor[kubernetes]'",
            {"package": "lightkube"},
        )


def open_provider(name: str, s: KubernetesSettings, context: ProviderContext) -> OpenedProvider:
    from supervisor.domain.profile import day_of
    from supervisor.ports.opening import OpenedProvider
    from supervisor.providers.kubernetes.api import Api, connection
    from supervisor.providers.kubernetes.doctor import cluster_checks
    from supervisor.providers.kubernetes.platform import KubernetesPlatform
    from supervisor.providers.kubernetes.provider import KubernetesProvider
    from supervisor.providers.kubernetes.publishing import Publisher, is_read

    clock = context.clock
    connect = partial(connection, s.kubernetes_kubeconfig, s.kubernetes_context, s.kubernetes_namespace)
    provider = KubernetesProvider(
        name,
        s,
        Api(connect),
        agent=lambda: context.agent,
        on=day_of(clock.now()),
        public_url=context.public_url,
        prefix=context.machine_prefix,
        monotonic=clock.monotonic,
    )
    publisher = Publisher(provider.api, s, provider.listed, clock.monotonic)
    return OpenedProvider(
        provider=provider,
        platform=KubernetesPlatform(provider, s),
        scope=name,  # a pool may be added or removed, and the runs stay where they are
        checks=lambda: cluster_checks(provider.api, s),
        publish=publisher.publish if is_read(s) else None,
        close=provider.close,
    )


KIND = Kind(
    traits=TRAITS,
    values=KubernetesSettings,
    prefix="kubernetes_",
    store=settings.STORE,
    rules=settings.RULES,
    check=settings.check,
    complete=settings.complete,
    ready=ready,
    meaning=settings.meaning,
    open=open_provider,
    leaves_no_trace=True,
)
