"""What Jobs of a cluster wait for, through the whole loop in virtual time: some waits end by themselves, not all."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from supervisor.domain.causes import Cause
from supervisor.domain.status import Status
from supervisor.providers.kubernetes import api as client
from tests.cloud.web import Request
from tests.kubernetes import images
from tests.kubernetes.api import NAMESPACE, NODE_RIGHTS, TOKEN
from tests.kubernetes.kinds import NODE, POD
from tests.kubernetes.objects import Object
from tests.kubernetes.verbs import Target
from tests.providers.kubernetes_stage import HOUR_S, MINUTE_S, KubernetesStage, kubernetes_stage
from tests.providers.test_kubernetes_stories import by_prod
from tests.scenarios.conftest import memory_folder


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory_folder() as made:
        yield made


@pytest.fixture
def stage(folder: Path) -> Iterator[KubernetesStage]:
    with kubernetes_stage(folder) as stage:
        yield stage


@pytest.mark.parametrize("hard", [{"count/jobs.batch": "0"}, {"pods": "0"}, {"requests.cpu": "5"}])
def test_a_quota_is_waited_for_and_leaves_no_job(stage: KubernetesStage, hard: dict[str, str]) -> None:
    """Of Jobs the API refuses the create; of pods the Job controller says it in an event."""
    stage.cluster.add_quota("team", hard)
    stage.submit()
    run = stage.until_status(Status.WAITING)
    assert run.cause is Cause.QUOTA, stage.told()
    assert "exceeded quota: team" in stage.told()
    stage.until(lambda: not stage.job_names(), "no Job to be left")
    stage.cluster.remove_quota("team")
    stage.until_trains(within_s=HOUR_S)
    assert stage.row().counters.attempts == 1


@pytest.mark.parametrize("text", [images.GONE, images.DENIED])
def test_an_image_that_cannot_be_pulled_ends_the_run(stage: KubernetesStage, text: str) -> None:
    stage.cluster.kubelet.images.problems["train"] = text
    stage.submit()
    run = stage.until_status(Status.FAILED)
    assert run.cause is Cause.IMAGE_ERROR, stage.told()
    stage.until(lambda: not stage.job_names(), "no Job to be left")


def test_a_registry_that_is_away_is_waited_for(stage: KubernetesStage) -> None:
    stage.cluster.kubelet.images.problems["train"] = images.AWAY
    stage.submit()
    stage.run_for(3 * MINUTE_S)
    assert stage.row().status is Status.LAUNCHING, stage.told()
    stage.cluster.kubelet.images.problems.clear()
    stage.until_trains()


def test_a_full_pool_is_waited_for_and_another_one_is_tried(stage: KubernetesStage) -> None:
    by_prod(stage)
    stage.cluster.step()
    stage.submit()
    stage.until_trains(within_s=HOUR_S)
    assert stage.attempts()[0].placement.zone == "big"


class TestGpus:
    def test_no_gpu_to_give_is_a_matter_of_the_device_plugin(self, folder: Path) -> None:
        with kubernetes_stage(folder, kubernetes_shapes=("a100",), kubernetes_gpus={"a100": 1}, kubernetes_cpus={},
                              kubernetes_memory={}, kubernetes_nodes={}) as stage:  # fmt: skip
            stage.cluster.api.rights |= NODE_RIGHTS
            for node in stage.cluster.objects.of(NODE):
                node["status"]["allocatable"]["nvidia.com/gpu"] = "0"
            stage.submit()
            stage.until(lambda: "gpu_unavailable" in stage.told(), "a refusal", 30 * MINUTE_S)
            assert "is its device plugin running?" in stage.told()


class TestKueue:
    @pytest.fixture
    def queued(self, folder: Path) -> Iterator[KubernetesStage]:
        with kubernetes_stage(folder, kubernetes_queue="gpus") as stage:
            stage.cluster.install_kueue("gpus")
            yield stage

    def job(self, stage: KubernetesStage) -> Object:
        return stage.cluster.job(stage.job_names()[-1])

    def test_admitted_is_obtained_and_suspended_again_is_preempted(self, queued: KubernetesStage) -> None:
        queued.submit()
        queued.run_for(20 * MINUTE_S)
        assert (queued.row().status, queued.cluster.pods()) == (Status.LAUNCHING, [])
        assert "admitted by the queue gpus" in queued.told() or queued.row().open_try is not None
        queued.cluster.kueue.admit(self.job(queued))
        queued.until_trains()
        queued.cluster.kueue.evict(self.job(queued))
        queued.until(lambda: queued.causes() == [Cause.PREEMPTED], "the first attempt to be preempted")
        queued.until(lambda: len(queued.job_names()) == 1 and not queued.cluster.pods(), "the second Job to wait")
        queued.run_for(MINUTE_S)
        queued.cluster.kueue.admit(self.job(queued))
        queued.until_trains(attempt=2)

    def test_an_admission_between_the_two_lists_is_no_preemption(
        self, queued: KubernetesStage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The Jobs were read before it, and the pods after it."""
        queued.submit()
        queued.run_for(MINUTE_S)
        verbs, read = queued.cluster.api.verbs, queued.cluster.api.verbs.list
        waiting = [self.job(queued)]

        def admits(target: Target, request: Request) -> Object:
            if target.kind is POD and waiting:
                queued.cluster.kueue.admit(waiting.pop())
                queued.cluster.step()
            return read(target, request)

        monkeypatch.setattr(verbs, "list", admits)
        queued.until_trains()
        assert (waiting, queued.causes(), queued.row().counters.tries) == ([], [], 1)


class TestClaims:
    @pytest.fixture
    def claimed(self, folder: Path) -> Iterator[KubernetesStage]:
        with kubernetes_stage(folder, kubernetes_claim="data") as stage:
            yield stage

    def test_a_claim_that_is_missing_is_named_and_waited_for(self, claimed: KubernetesStage) -> None:
        claimed.submit()
        run = claimed.until_status(Status.WAITING)
        assert run.cause is Cause.LAUNCH_REJECTED
        assert 'persistentvolumeclaim "data" not found' in claimed.told()
        assert "kubernetes_claim" in claimed.told()
        claimed.cluster.add_claim("data")
        claimed.until_trains(within_s=HOUR_S)

    def test_a_volume_that_another_node_holds_needs_a_person_after_ten_minutes(self, claimed: KubernetesStage) -> None:
        claimed.cluster.add_claim("data", "ReadWriteOnce")
        claimed.cluster.submit_prod(claim="data")
        claimed.cluster.step()
        claimed.submit()
        claimed.run_for(9 * MINUTE_S)
        assert "volume busy" in claimed.row().hold or claimed.row().status is Status.LAUNCHING
        claimed.until(lambda: "volume busy" in claimed.told(), "the volume to be named", 5 * MINUTE_S)
        assert "VolumeAttachment" in claimed.told()
        claimed.cluster.delete_pod(claimed.cluster.objects.find(POD, NAMESPACE, "prod"))
        claimed.until_trains(within_s=HOUR_S)


def test_a_secret_that_only_the_pod_reads_is_waited_for(stage: KubernetesStage) -> None:
    stage.submit(secrets={"API_KEY": "k8s:keys/api"})
    run = stage.until_status(Status.WAITING)
    assert run.cause is Cause.LAUNCH_REJECTED
    assert 'secret "keys" not found' in stage.told()
    stage.cluster.add_secret("keys", api="a secret value")
    stage.until_trains(within_s=HOUR_S)
    assert "a secret value" not in stage.told()


def test_a_right_that_is_missing_is_named_and_waited_for(stage: KubernetesStage) -> None:
    stage.cluster.api.rights.remove("create jobs.batch")
    stage.submit()
    run = stage.until_status(Status.WAITING)
    assert run.cause is Cause.LAUNCH_REJECTED
    assert 'cannot create resource "jobs" in API group "batch"' in stage.told()
    stage.cluster.api.rights.add("create jobs.batch")
    stage.until_trains(within_s=HOUR_S)


def test_credentials_that_have_expired_end_nothing_and_are_read_again(stage: KubernetesStage) -> None:
    stage.submit()
    stage.until_trains()
    stage.cluster.api.token = "another"
    stage.run_for(5 * MINUTE_S)
    stage.kubeconfig.write_text(stage.kubeconfig.read_text().replace(TOKEN, "another"))
    stage.run_for(MINUTE_S)
    (pod,) = stage.cluster.pods()
    stage.cluster.delete_pod(pod)
    stage.until_trains(attempt=2)


def test_pages_that_become_too_old_are_read_again(stage: KubernetesStage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "PAGE", 1)
    for name in ("digits", "other"):
        stage.submit(name)
    stage.until_trains()
    verbs, read, expired = stage.cluster.api.verbs, stage.cluster.api.verbs.list, []

    def expires(target: Target, request: Request) -> Object:
        page = read(target, request)
        if "continue" in page["metadata"] and len(expired) < 2:
            expired.append(target.kind.kind)
            stage.cluster.objects.expire_tokens()
        return page

    monkeypatch.setattr(verbs, "list", expires)
    stage.run_for(2 * MINUTE_S)
    assert len(expired) == 2
    assert {stage.row(name).counters.attempts for name in ("digits", "other")} == {1}
    assert {machine.run_id for machine in stage.provider.machines().machines} == {"digits", "other"}


def test_jobs_that_wait_cost_no_requests_of_their_own_also_after_a_restart(stage: KubernetesStage) -> None:
    """Two lists in each tick, whatever waits: a new process makes the Secret of each Job once more, and then knows."""
    by_prod(stage)
    stage.cluster.nodes.node("big-1")["spec"]["unschedulable"] = True
    stage.cluster.step()
    names = [f"run-{number}" for number in range(3)]
    for name in names:
        stage.submit(name)
    stage.run_for(2 * MINUTE_S)
    assert len(stage.job_names()) == len(names)
    stage.kill()
    stage.start()
    stage.run_for(2 * MINUTE_S)
    stage.cluster.api.requests.clear()
    ticks = stage.ticks
    stage.run_for(2 * MINUTE_S)
    assert len(stage.cluster.api.requests) == 2 * (stage.ticks - ticks)
