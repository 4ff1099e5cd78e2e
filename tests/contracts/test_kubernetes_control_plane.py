"""The same promises on a real control plane: SPOT_TEST_KUBECONFIG=path; skipped where it is not set."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts.provider_suite import ProviderContract
from tests.providers.real_kubernetes import RealSubject, require_kubernetes


@pytest.fixture
def subject(tmp_path: Path) -> Iterator[RealSubject]:
    require_kubernetes()
    subject = RealSubject(tmp_path)
    yield subject
    subject.close()


class TestKubernetesControlPlane(ProviderContract):
    pass
