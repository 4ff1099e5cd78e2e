"""Jobs of the tests' cluster keep a provider's promises, and no exchange has what Kubernetes' API has not."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from supervisor.providers.kubernetes.platform import KubernetesPlatform
from tests.contracts.platform_suite import PlatformContract, PlatformStage
from tests.contracts.provider_subject import ref
from tests.contracts.provider_suite import ProviderContract
from tests.providers.kubernetes_subject import KubernetesSubject


@pytest.fixture
def subject(tmp_path: Path) -> Iterator[KubernetesSubject]:
    subject = KubernetesSubject(tmp_path)
    yield subject
    subject.close()


class TestKubernetesProvider(ProviderContract):
    pass


class KubernetesStage(PlatformStage):
    """The console is the log of its pod."""

    def __init__(self, subject: KubernetesSubject) -> None:
        self.subject, self.request = subject, subject.request()
        self.platform = KubernetesPlatform(subject.provider, subject.settings)
        machine = subject.up(self.request)
        self.ref = ref(self.request, machine.machine_id)

    def write(self, data: bytes) -> None:
        self.subject.container(self.request).written += data

    def end(self) -> None:
        self.subject.provider.release(self.ref)
        self.subject.gone(self.request)

    def unreadable(self) -> AbstractContextManager[None]:
        return self.subject.all_unreadable()


class TestKubernetesPlatform(PlatformContract):
    @pytest.fixture
    def stage(self, subject: KubernetesSubject) -> KubernetesStage:
        return KubernetesStage(subject)
