"""The provider of Kubernetes before the tests' cluster: real HTTP, pods that do nothing, a clock that a test moves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from supervisor.ports.provider import LaunchRequest
from supervisor.providers.kubernetes.api import Api, connection
from supervisor.providers.kubernetes.provider import KubernetesProvider
from supervisor.providers.kubernetes.settings import KubernetesSettings
from tests.contracts.provider_subject import Subject
from tests.kubernetes.cluster import IMAGE, POOL, SPOT, Cluster
from tests.kubernetes.still import StillContainer, StillRuntime
from tests.providers.gce_subject import TickingClock

DAY, LOOKS = "2026-11-26", 60
SETTINGS: dict[str, Any] = {
    "kubernetes_pools": {"spot": f"{SPOT}=true", "big": f"{POOL}=big"},
    "kubernetes_shapes": ("cpu", "t4", "any2"),
    "kubernetes_cpus": {"cpu": 6},
    "kubernetes_memory": {"cpu": "8Gi"},
    "kubernetes_gpus": {"t4": 1, "any2": 2},
    "kubernetes_nodes": {"t4": "nvidia.com/gpu.product=T4"},
    "kubernetes_grace_s": 30.0,
}


class SecretFiles(Subject):
    """Secrets are files of this computer. `folder`: of the test."""

    folder: Path

    def keep_secret(self, value: str) -> str:
        path = self.folder / f"secret-{value[:4].strip()}"
        path.write_text(value + "\n")
        path.chmod(0o600)
        return f"file:{path}"

    def spoil_secret(self, reference: str, spoilt: bool = True) -> None:
        Path(reference.removeprefix("file:")).chmod(0o644 if spoilt else 0o600)

    def request(self, *args: Any, **kwargs: Any) -> LaunchRequest:
        return replace(super().request(*args, **kwargs), image=IMAGE)


class KubernetesSubject(SecretFiles):
    gpus = {"cpu": "", "t4": "T4", "any2": "2 × GPU"}

    def __init__(self, folder: Path, **settings: Any) -> None:
        super().__init__()
        self.folder, self.clock, self.runtime = folder, TickingClock(), StillRuntime()
        self.cluster = Cluster(self.clock.now, self.runtime)
        self.kubeconfig = self.cluster.kubeconfig(folder)
        self.settings = KubernetesSettings(**{**SETTINGS, **settings})
        self.agent = folder / "agent.pyz"
        self.agent.write_bytes(b"an agent")
        self._opened: list[KubernetesProvider] = []
        self.provider = self.fresh()

    def fresh(self) -> KubernetesProvider:
        """As after a restart of the supervisor: nothing is remembered."""
        api = Api(lambda: connection(str(self.kubeconfig), "", ""))
        made = KubernetesProvider(
            "kubernetes", self.settings, api, agent=lambda: self.agent, on=DAY, monotonic=self.clock.monotonic
        )
        self._opened.append(made)
        return made

    def close(self) -> None:
        for provider in self._opened:
            provider.close()
        self.cluster.close()

    def step(self, seconds: float = 2.0) -> None:
        self.clock.advance(seconds)
        self.cluster.step()

    def eventually(self, condition: Callable[[], Any], what: str) -> Any:
        for _ in range(LOOKS):
            self.cluster.step()
            found = condition()
            if found:
                return found
            self.clock.advance(2.0)
        raise AssertionError(f"waited in vain for {what}")

    def container(self, request: LaunchRequest) -> StillContainer:
        return self.runtime.containers[self.cluster.pod(request.name)["metadata"]["name"]]

    @contextmanager
    def unreadable(self, request: LaunchRequest) -> Iterator[None]:
        """Its phase is Unknown: nothing is heard of its node."""
        pod = self.cluster.pod(request.name)
        phase, pod["status"]["phase"] = pod["status"]["phase"], "Unknown"
        self.cluster.objects.touch(pod)
        try:
            yield
        finally:
            pod["status"]["phase"] = phase
            self.cluster.objects.touch(pod)

    @contextmanager
    def all_unreadable(self) -> Iterator[None]:
        self.cluster.api.away = True
        try:
            yield
        finally:
            self.cluster.api.away = False
