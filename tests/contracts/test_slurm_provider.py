"""Jobs of a real Slurm cluster of two nodes keep a provider's promises."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts.provider_suite import ProviderContract
from tests.providers.slurm_cluster import SlurmCluster
from tests.providers.slurm_machines import SlurmSubject


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    cluster = SlurmCluster(tmp_path_factory.mktemp("slurm"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


@pytest.fixture
def subject(cluster: SlurmCluster, tmp_path: Path) -> Iterator[SlurmSubject]:
    subject = SlurmSubject(cluster, tmp_path)
    yield subject
    subject.end_all()


class TestSlurmProvider(ProviderContract):
    pass
