"""A kubeconfig that leads to another cluster or namespace than the one with the Jobs."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import yaml

from supervisor.domain.machines import MachineState
from supervisor.ports.provider import LaunchRequest, ProviderUnavailable
from supervisor.providers.kubernetes.api import Api, connection
from supervisor.providers.kubernetes.make import ChosenCluster
from supervisor.providers.kubernetes.provider import KubernetesProvider
from supervisor.providers.kubernetes.settings import KubernetesSettings
from tests.kubernetes.cluster import NAMESPACE, Cluster
from tests.kubernetes.still import StillRuntime
from tests.providers.kubernetes_subject import DAY, SETTINGS, KubernetesSubject


class Kubeconfig:
    """Two clusters, `old` and `new`, and the same namespace in both; `other`: another namespace of the old one."""

    def __init__(self, folder: Path, subject: KubernetesSubject, new: Cluster) -> None:
        self.path, self.kept, self.subject = folder / "config", folder / "kubernetes-cluster.json", subject
        self._config = yaml.safe_load(subject.kubeconfig.read_text())
        other = yaml.safe_load(new.kubeconfig(folder).read_text())
        (name,) = {each["context"]["cluster"] for each in self._config["contexts"]}
        user = self._config["users"][0]["name"]
        self._config["clusters"].append({**other["clusters"][0], "name": "new"})
        self._config["contexts"] = [
            {"name": word, "context": {"cluster": cluster, "user": user, "namespace": namespace}}
            for word, cluster, namespace in (
                ("old", name, NAMESPACE),
                ("new", "new", NAMESPACE),
                ("other", name, "default"),
            )
        ]
        self.use("old")

    def use(self, context: str) -> None:
        self.path.write_text(yaml.safe_dump({**self._config, "current-context": context}))

    def provider(self, **settings: str) -> KubernetesProvider:
        """As after a restart of the supervisor."""
        s = KubernetesSettings(**{**SETTINGS, **settings}, kubernetes_kubeconfig=str(self.path))
        connect = partial(connection, str(self.path), s.kubernetes_context, s.kubernetes_namespace)
        chosen = ChosenCluster(self.kept, s, connect)
        api = Api(chosen.connect, keep_place=chosen.keep)
        made = KubernetesProvider("kubernetes", s, api, agent=lambda: self.subject.agent, on=DAY)
        self.subject._opened.append(made)
        return made

    def request(self) -> LaunchRequest:
        return self.subject.request()


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Iterator[Kubeconfig]:
    subject = KubernetesSubject(tmp_path)
    new = Cluster(subject.clock.now, StillRuntime())
    (tmp_path / "new").mkdir()
    yield Kubeconfig(tmp_path / "new", subject, new)
    subject.close()
    new.close()


@pytest.mark.parametrize(("context", "setting"), [("new", "kubernetes_context"), ("other", "kubernetes_namespace")])
def test_another_current_context_hides_no_job(kubeconfig: Kubeconfig, context: str, setting: str) -> None:
    request, provider = kubeconfig.request(), kubeconfig.provider()
    assert provider.launch(request).state is MachineState.ASKED
    kubeconfig.use(context)
    assert len(provider.machines().machines) == 1, "it is read with the connection"
    provider.close()
    for each in (provider, kubeconfig.provider()):
        with pytest.raises(ProviderUnavailable, match=f"the Jobs are in .*: set {setting}"):
            each.machines()
        with pytest.raises(ProviderUnavailable, match="the Jobs are in"):
            each.launch(kubeconfig.subject.request(run="another"))
    kubeconfig.use("old")
    assert [each.name for each in provider.machines().machines] == [request.name]


def test_before_the_first_launch_and_by_the_settings_any_cluster_is_right(kubeconfig: Kubeconfig) -> None:
    for context in ("new", "old"):
        kubeconfig.use(context)
        assert kubeconfig.provider().machines().machines == ()
    assert not kubeconfig.kept.exists(), "a doctor leaves no trace"
    kubeconfig.provider().launch(kubeconfig.request())
    kubeconfig.use("new")
    assert kubeconfig.provider(kubernetes_context="new").machines().machines == ()
    assert len(kubeconfig.provider(kubernetes_context="old").machines().machines) == 1


@pytest.mark.parametrize("content", ["", "[]", "{"])
def test_a_file_that_cannot_be_read_is_no_missing_one(kubeconfig: Kubeconfig, content: str) -> None:
    kubeconfig.provider().launch(kubeconfig.request())
    kubeconfig.kept.write_text(content)
    with pytest.raises(ProviderUnavailable, match=r"kubernetes-cluster\.json"):
        kubeconfig.provider().machines()


def test_nothing_is_created_before_it_is_written_down(kubeconfig: Kubeconfig) -> None:
    kubeconfig.kept = kubeconfig.kept.parent / "missing" / "kubernetes-cluster.json"
    provider = kubeconfig.provider()
    with pytest.raises(ProviderUnavailable, match="the data folder"):
        provider.launch(kubeconfig.request())
    assert kubeconfig.subject.cluster.names() == set()
