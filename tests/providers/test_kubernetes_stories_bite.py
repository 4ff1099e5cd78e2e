"""Providers of Kubernetes that are broken in one place: a story catches each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from supervisor.domain.causes import Cause
from supervisor.ports.provider import ProviderUnavailable
from supervisor.providers.kubernetes import provider as providers
from supervisor.providers.kubernetes import states
from supervisor.providers.kubernetes.api import Api
from supervisor.providers.kubernetes.provider import KubernetesProvider
from supervisor.providers.kubernetes.survey import Entry, Surveyor
from supervisor.providers.kubernetes.waiting import Wait
from tests.providers import test_kubernetes_stories as stories
from tests.providers import test_kubernetes_wait_stories as waits
from tests.providers.kubernetes_stage import KubernetesStage, kubernetes_stage
from tests.scenarios.conftest import memory_folder


@pytest.fixture
def stage() -> Iterator[KubernetesStage]:
    with memory_folder() as folder, kubernetes_stage(folder) as stage:
        yield stage


def takes_silence_for_an_empty_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    read = Surveyor.survey

    def tolerant(self: Surveyor) -> list[Entry]:
        try:
            return read(self)
        except ProviderUnavailable:
            return []

    monkeypatch.setattr(Surveyor, "survey", tolerant)
    monkeypatch.setattr(KubernetesProvider, "find", lambda self, ref: None)


def leaves_the_pods_of_a_deleted_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a DELETE without a policy does in batch/v1."""

    def plain(self: Api, path: str, uid: str) -> None:
        self._json("DELETE", path)

    monkeypatch.setattr(Api, "delete", plain)


def makes_no_secret_for_a_job_that_exists(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KubernetesProvider, "_adopted", lambda self, request, entry: self._judged(entry))


def takes_a_full_disk_for_a_bad_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(states, "evicted", lambda message: (Cause.HOST_ERROR, message))


def knows_no_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(providers, "creation_refused", lambda message: Wait(message, Cause.LAUNCH_REJECTED))


def the_api_is_away(stage: KubernetesStage) -> None:
    stories.test_the_api_is_away_for_ten_minutes_and_nothing_happens(stage)


def a_stop(stage: KubernetesStage) -> None:
    stories.test_a_stop_lets_it_save_and_leaves_nothing_behind(stage)


def a_death_between_the_two(stage: KubernetesStage) -> None:
    stories.TestLostAnswers().test_a_supervisor_that_dies_between_job_and_secret_leaks_neither(stage)


def a_full_disk(stage: KubernetesStage) -> None:
    stories.test_an_end_has_its_cause_and_the_run_goes_on(stage, stories.by_a_full_node, Cause.DISK_FULL)


def a_quota(stage: KubernetesStage) -> None:
    waits.test_a_quota_is_waited_for_and_leaves_no_job(stage, {"count/jobs.batch": "0"})


CAUGHT: list[tuple[Callable[[pytest.MonkeyPatch], None], Callable[[KubernetesStage], None]]] = [
    (takes_silence_for_an_empty_cluster, the_api_is_away),
    (leaves_the_pods_of_a_deleted_job, a_stop),
    (makes_no_secret_for_a_job_that_exists, a_death_between_the_two),
    (takes_a_full_disk_for_a_bad_host, a_full_disk),
    (knows_no_quota, a_quota),
]


@pytest.mark.parametrize(("broken", "story"), [pytest.param(*row, id=row[0].__name__) for row in CAUGHT])
def test_a_broken_provider_is_caught(
    stage: KubernetesStage,
    broken: Callable[[pytest.MonkeyPatch], None],
    story: Callable[[KubernetesStage], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    broken(monkeypatch)
    with pytest.raises(AssertionError):
        story(stage)
