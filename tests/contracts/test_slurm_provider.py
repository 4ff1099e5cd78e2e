"""Jobs of a real Slurm cluster of two nodes keep a provider's promises, on the cluster and behind a login node."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.providers.slurm.provider import SlurmPlatform
from supervisor.providers.slurm.settings import SlurmSettings
from tests.contracts.platform_stages import FolderStage
from tests.contracts.platform_suite import PlatformContract
from tests.contracts.provider_suite import ProviderContract
from tests.providers.slurm_cluster import SlurmCluster, running
from tests.providers.slurm_machines import BehindLoginNode, SlurmSubject


@pytest.fixture(scope="module")
def cluster() -> Iterator[SlurmCluster]:
    with running() as cluster:
        yield cluster


@pytest.fixture
def subject(cluster: SlurmCluster, tmp_path: Path) -> Iterator[SlurmSubject]:
    subject = SlurmSubject(cluster, tmp_path)
    yield subject
    subject.end_all()


class TestSlurmProvider(ProviderContract):
    pass


class TestSlurmBehindALoginNode(ProviderContract):
    @pytest.fixture
    def subject(self, cluster: SlurmCluster, tmp_path: Path) -> Iterator[SlurmSubject]:
        subject = BehindLoginNode(cluster, tmp_path)
        yield subject
        subject.end_all()


class SlurmStage(FolderStage):
    """The console is a file: while its folder is no folder, nothing of it can be read."""

    def __init__(self, subject: SlurmSubject) -> None:
        super().__init__(subject, SlurmPlatform(subject.provider, SlurmSettings(**subject.settings)))


class TestSlurmPlatform(PlatformContract):
    @pytest.fixture
    def stage(self, subject: SlurmSubject) -> SlurmStage:
        return SlurmStage(subject)
