"""How Jobs of a Kubernetes cluster are made from settings: the kind that the list of providers names.

lightkube is imported with the first request. Opening reads no kubeconfig: the first tick does.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from supervisor.domain.errors import SettingsRefused
from supervisor.providers.kubernetes import settings
from supervisor.providers.kubernetes.settings import KubernetesSettings
from supervisor.providers.kubernetes.traits import TRAITS
from supervisor.settings.kinds import Kind

if TYPE_CHECKING:
    from supervisor.ports.opening import OpenedProvider, ProviderContext
    from supervisor.providers.kubernetes.api import Connection


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
    chosen = ChosenCluster(context.data_dir / f"kubernetes-{name}.json", s, connect)
    provider = KubernetesProvider(
        name,
        s,
        Api(chosen.connect, keep_place=chosen.keep),
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


class ChosenCluster:
    """The cluster and the namespace of our Jobs, where the settings leave them to the kubeconfig.

    `kubectl config use-context` changes the current context for every program of the user. In another cluster, or
    another namespace, none of our Jobs exists: all would look gone, and would start again there. So the first launch
    writes down where it goes, and another place is refused until the settings name it. `path`: of the file in the data
    folder. `connect`: opens a connection by the settings and the kubeconfig."""

    def __init__(self, path: Path, s: KubernetesSettings, connect: Callable[[], Connection]) -> None:
        self._path, self._settings, self._connect = path, s, connect
        self._places: dict[str, str] = {}

    def connect(self) -> Connection:
        """Raises ValueError for another place, Unreadable, and what `connect` raises."""
        from supervisor.host.files import read_json

        kept = read_json(self._path) or {}
        opened = self._connect()
        self._places = self._left_to_kubeconfig(opened)
        for setting, place in self._places.items():
            if kept.get(setting, place) != place:
                opened.http.close()
                raise ValueError(
                    f"it leads to {place} now, and the Jobs are in {kept[setting]}: set {setting}, so that nothing "
                    f"else decides about it; if the Jobs are gone for good, remove {self._path}"
                )
        return opened

    def keep(self) -> None:
        """Before a launch. Raises ProviderUnavailable."""
        from supervisor.host.files import read_json, write_json
        from supervisor.machinefolder.observer import as_unavailable

        with as_unavailable("the data folder"):
            kept = read_json(self._path) or {}
            if self._places.items() - kept.items():
                write_json(self._path, {**kept, **self._places})

    def _left_to_kubeconfig(self, opened: Connection) -> dict[str, str]:
        """Setting -> what the kubeconfig says in its place."""
        s = self._settings
        context = {} if s.kubernetes_context else {"kubernetes_context": str(opened.http.base_url)}
        return context if s.kubernetes_namespace else {**context, "kubernetes_namespace": opened.namespace}


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
