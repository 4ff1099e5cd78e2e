"""The same promises on a real control plane: SPOT_TEST_KUBECONFIG=path; left out where it is not set."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contracts.provider_suite import ProviderContract
from tests.kubernetes.cluster import Cluster
from tests.providers.real_kubernetes import VARIABLE, RealSubject
from tests.waiting import wait_for


@pytest.fixture
def subject(tmp_path: Path) -> Iterator[RealSubject]:
    subject = RealSubject(tmp_path, os.environ[VARIABLE])
    yield subject
    subject.close()


if VARIABLE in os.environ:

    class TestKubernetesControlPlane(ProviderContract):
        pass


def test_its_subject_works_where_the_control_plane_is_the_tests_own(tmp_path: Path) -> None:
    cluster = Cluster()
    cluster.run()
    subject = RealSubject(tmp_path, str(cluster.kubeconfig(tmp_path)))
    try:
        promises = ProviderContract()
        promises.test_the_list_tells_machines_of_every_supervisor_apart(subject)
        promises.test_when_nothing_can_be_read_no_listing_says_that_a_zone_is_empty(subject)
    finally:
        subject.close()
    wait_for(lambda: cluster.names() == set(), what="everything that was made there to be gone")
    cluster.close()
