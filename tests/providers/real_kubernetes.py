"""The provider of Kubernetes before a real control plane, of which only the objects count: no pod of a test starts.

SPOT_TEST_KUBECONFIG names a kubeconfig, whose context has the namespace of the tests. Its pods look for nodes that do
not exist, so they wait on every cluster, and no kubelet is needed. Requests pass through a proxy on loopback, which can
be away, and which compares each object with Kubernetes' schemas.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from supervisor.domain.machines import Machine, MachineState
from supervisor.ports.provider import LaunchRequest, ProviderUnavailable
from supervisor.providers.kubernetes.api import Api, Connection, connection
from supervisor.providers.kubernetes.provider import KubernetesProvider
from supervisor.providers.kubernetes.settings import KubernetesSettings
from tests.cloud.web import Request, Reset, Response, WebServer
from tests.contracts.provider_subject import ref
from tests.kubernetes import schemas
from tests.kubernetes.api import TOKEN
from tests.providers.kubernetes_subject import DAY, SETTINGS, SecretFiles
from tests.waiting import wait_for

VARIABLE = "SPOT_TEST_KUBECONFIG"
NOWHERE = {"one": "spot-supervisor.test/none=one", "two": "spot-supervisor.test/none=two"}
PASSED = frozenset({"content-type", "accept"})


class Proxy:
    def __init__(self, kubeconfig: str) -> None:
        self.away, self.problems = False, list[str]()
        self._real: Connection = connection(kubeconfig, "", "")
        self.namespace = self._real.namespace
        self.server = WebServer(self._answer)

    def connection(self) -> Connection:
        """For the provider: this address, and any token."""
        import httpx2

        http = httpx2.Client(base_url=self.server.url, headers={"Authorization": f"Bearer {TOKEN}"}, trust_env=False)
        return Connection(http, self.namespace)

    def _answer(self, request: Request) -> Response:
        if self.away:
            raise Reset
        if request.method == "POST":
            self.problems += schemas.problems(request.json())
        headers = {name: value for name, value in request.headers.items() if name in PASSED}
        params = [(name, value) for name, values in request.query.items() for value in values]
        answer = self._real.http.request(
            request.method, request.raw_path, params=params, content=request.body or None, headers=headers
        )
        kind = answer.headers.get("content-type", "application/json")
        return Response(answer.status_code, answer.content, {"Content-Type": kind})

    def close(self) -> None:
        self.server.close()
        self._real.http.close()


class RealSubject(SecretFiles):
    """Its machines wait for a node: `up` is as far as they come."""

    gpus = {"cpu": "", "t4": "T4", "any2": "2 × GPU"}

    def __init__(self, folder: Path, kubeconfig: str) -> None:
        super().__init__()
        self.folder, self.proxy = folder, Proxy(kubeconfig)
        archive = folder / "agent.pyz"
        archive.write_bytes(b"an agent")
        settings = KubernetesSettings(**{**SETTINGS, "kubernetes_pools": NOWHERE})
        self._requested: list[LaunchRequest] = []
        self.provider = KubernetesProvider(
            "kubernetes", settings, Api(self.proxy.connection), agent=lambda: archive, on=DAY
        )

    def request(self, *args: Any, **kwargs: Any) -> LaunchRequest:
        made = super().request(*args, **kwargs)
        self._requested.append(made)
        return made

    def up(self, request: LaunchRequest) -> Machine:
        self.provider.launch(request)

        def waits() -> Machine | None:
            machine = self.listed(request)
            settled = machine is not None and machine.state is MachineState.ASKED and "available" in machine.detail
            return machine if settled else None

        return self.eventually(waits, "the scheduler to have looked at its pod")

    def eventually(self, condition: Callable[[], Any], what: str) -> Any:
        return wait_for(condition, what=what, deadline_s=60)

    @contextmanager
    def unreadable(self, request: LaunchRequest) -> Iterator[None]:
        pytest.skip("a real control plane reads all zones of a namespace, or none")
        yield

    @contextmanager
    def all_unreadable(self) -> Iterator[None]:
        self.proxy.away = True
        try:
            yield
        finally:
            self.proxy.away = False

    def close(self) -> None:
        for request in self._requested:
            try:
                self.provider.release(ref(request))
            except ProviderUnavailable:
                continue
        self.provider.close()
        self.proxy.close()
        assert self.proxy.problems == []
