"""What befalls Jobs of a cluster, through the whole loop in virtual time: who ended a pod, and what a run does then."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from supervisor.contract.heartbeat import Exit
from supervisor.domain.causes import Cause
from supervisor.domain.status import Status
from tests.cloud.web import Reset
from tests.kubernetes.errors import internal, unavailable
from tests.kubernetes.kinds import JOB, SECRET
from tests.providers.kubernetes_stage import HOUR_S, MINUTE_S, KubernetesStage, kubernetes_stage
from tests.scenarios.conftest import memory_folder
from tests.scenarios.sim_plan import Plan


@pytest.fixture
def folder() -> Iterator[Path]:
    with memory_folder() as made:
        yield made


@pytest.fixture
def stage(folder: Path) -> Iterator[KubernetesStage]:
    with kubernetes_stage(folder) as stage:
        yield stage


def by_hand(stage: KubernetesStage) -> None:
    """For its agent TERM is a notice, whoever deletes the pod."""
    stage.cluster.delete_pod(stage.pod())
    stage.cluster.step()


def by_hand_while_its_agent_hangs(stage: KubernetesStage) -> None:
    stage.container().is_deaf = True
    by_hand(stage)


def by_a_drain(stage: KubernetesStage) -> None:
    stage.cluster.evict_by_api(stage.pod())


def by_prod(stage: KubernetesStage) -> None:
    for name in ("prod-1", "prod-2"):
        stage.cluster.submit_prod(name)


def by_a_shutdown(stage: KubernetesStage) -> None:
    stage.cluster.kubelet.shut_down(stage.pod()["spec"]["nodeName"])


def by_a_power_cut(stage: KubernetesStage) -> None:
    stage.cluster.kubelet.cut(stage.pod()["spec"]["nodeName"])


def by_a_partition(stage: KubernetesStage) -> None:
    """Its node and the API do not hear each other. Its agent trains on, until it finds that another one follows it."""
    stage.cluster.nodes.silent[stage.pod()["spec"]["nodeName"]] = stage.cluster.objects.clock()


def by_the_end_of_its_node(stage: KubernetesStage) -> None:
    stage.cluster.remove_node(stage.pod()["spec"]["nodeName"])


def by_memory(stage: KubernetesStage) -> None:
    stage.end_pod(137, oom=True)


def by_a_full_node(stage: KubernetesStage) -> None:
    text = "The node was low on resource: ephemeral-storage. Threshold quantity: 1Gi, available: 512Mi. "
    stage.cluster.kubelet.evict(stage.pod(), text)


def by_its_own_limit(stage: KubernetesStage) -> None:
    text = 'Usage of EmptyDir volume "machine" exceeds the limit "20Gi". '
    stage.cluster.kubelet.evict(stage.pod(), text, is_disruption=False)


def by_a_busy_node(stage: KubernetesStage) -> None:
    stage.cluster.kubelet.evict(stage.pod(), "The node was low on resource: memory. Threshold quantity: 100Mi. ")


def by_its_deadline(stage: KubernetesStage) -> None:
    """Its agent hangs: one that works ends before that."""
    stage.agent("digits").mute = True
    job = stage.cluster.job(stage.job_names()[-1])
    job["spec"]["activeDeadlineSeconds"] = 60
    stage.cluster.objects.touch(job)


ENDS: list[tuple[Callable[[KubernetesStage], None], Cause]] = [
    (by_hand, Cause.PREEMPTED),
    (by_hand_while_its_agent_hangs, Cause.MACHINE_DELETED),
    (by_a_drain, Cause.PREEMPTED),
    (by_prod, Cause.PREEMPTED),
    (by_a_shutdown, Cause.PREEMPTED),
    (by_a_power_cut, Cause.HOST_ERROR),
    (by_a_partition, Cause.HOST_ERROR),
    (by_the_end_of_its_node, Cause.PREEMPTED),  # its pod is gone, and the Job says only that it was disrupted
    (by_a_full_node, Cause.DISK_FULL),
    (by_its_own_limit, Cause.DISK_FULL),
    (by_a_busy_node, Cause.HOST_ERROR),
    (by_its_deadline, Cause.TIME_LIMIT),
]


@pytest.mark.parametrize(("end", "cause"), [pytest.param(*row, id=row[0].__name__) for row in ENDS])
def test_an_end_has_its_cause_and_the_run_goes_on(
    stage: KubernetesStage, end: Callable[[KubernetesStage], None], cause: Cause
) -> None:
    stage.submit()
    stage.until_trains()
    node = stage.pod()["spec"]["nodeName"]
    end(stage)
    stage.until_trains(attempt=2, within_s=20 * MINUTE_S)
    first, second = stage.attempts()
    assert first.cause == cause, stage.told()
    assert second.step_from, "it has the checkpoint of the first"
    if end is by_a_power_cut:  # what is on a node that nobody hears can only be deleted with the node
        stage.cluster.remove_node(node)
    stage.cluster.kubelet.boot(node)
    stage.until(lambda: stage.attempts()[0].gone_at is not None, "the first machine to be gone")
    stage.until(lambda: stage.cluster.pods(first.machine_name) == [], "its pod to be gone")


def test_the_same_memory_is_not_tried_again(stage: KubernetesStage) -> None:
    stage.submit()
    stage.until_trains()
    by_memory(stage)
    stage.until_status(Status.FAILED, within_s=20 * MINUTE_S)
    assert stage.causes() == [Cause.HOST_OOM], stage.told()
    stage.until(lambda: stage.attempts()[0].gone_at is not None, "its machine to be gone")


def test_a_training_whose_claim_is_full_says_so(stage: KubernetesStage) -> None:
    stage.submit(
        plan=Plan(
            steps=1_000_000, exits=(Exit(1, None, False, 300.0, "OSError: [Errno 28] No space left on device"), 300.0)
        )
    )
    run = stage.until_status(Status.RECOVERING, Status.FAILED, within_s=20 * MINUTE_S)
    assert stage.causes()[0] == Cause.DISK_FULL, (run, stage.told())


def test_the_api_is_away_for_ten_minutes_and_nothing_happens(stage: KubernetesStage) -> None:
    stage.submit()
    stage.until_trains()
    (job,), step = stage.job_names(), stage.agent("digits").progress()
    stage.cluster.api.away = True
    stage.run_for(10 * MINUTE_S)
    assert stage.row().status is Status.RUNNING
    stage.cluster.api.away = False
    stage.run_for(2 * MINUTE_S)
    assert (stage.job_names(), stage.row().counters.attempts) == ([job], 1)
    assert stage.agent("digits").progress() > step


def test_a_pod_that_ends_while_the_api_is_away_is_judged_afterwards(stage: KubernetesStage) -> None:
    stage.submit()
    stage.until_trains()
    stage.cluster.api.away = True
    stage.end_pod(137, oom=True)
    stage.run_for(10 * MINUTE_S)
    assert stage.row().counters.attempts == 1
    stage.cluster.api.away = False
    stage.until_status(Status.FAILED, within_s=20 * MINUTE_S)
    assert stage.causes() == [Cause.HOST_OOM]


def test_a_finished_training_leaves_nothing_behind(stage: KubernetesStage) -> None:
    stage.submit(plan=Plan(steps=300))
    stage.until_status(Status.COMPLETED, within_s=20 * MINUTE_S)
    stage.until(lambda: stage.row().settled, "the run to be settled")
    assert stage.cluster.names() == set()


def test_a_stop_lets_it_save_and_leaves_nothing_behind(stage: KubernetesStage) -> None:
    from supervisor.services.runs.actions import stop
    from supervisor.services.runs.changing import change
    from tests.scenarios.user_verbs import ACTOR

    stage.submit()
    stage.until_trains()
    change(stage.parts, "digits", stop(ACTOR))
    stage.until(lambda: stage.row().settled, "the run to be settled")
    (attempt,) = stage.attempts()
    assert (stage.row().status, attempt.cause) == (Status.STOPPED, Cause.STOP_REQUESTED)
    assert attempt.step_kept == stage.agent("digits").step, "nothing is lost"
    assert stage.cluster.names() == set()


class TestLostAnswers:
    def test_the_lost_answer_of_the_create_is_adopted(self, stage: KubernetesStage) -> None:
        stage.cluster.api.fail_next("POST", "/jobs$", Reset, lost=True)
        stage.submit()
        stage.until_trains()
        assert len(stage.job_names()) == 1
        assert stage.attempts()[0].launch_id.endswith(".1"), "the first try"

    @pytest.mark.parametrize("how", [Reset, internal("etcdserver: request timed out"), unavailable()])
    def test_a_create_without_an_answer_is_repeated(self, stage: KubernetesStage, how: object) -> None:
        stage.cluster.api.fail_next("POST", "/jobs$", how)  # type: ignore[arg-type]
        stage.submit()
        stage.until_trains()
        assert len(stage.job_names()) == 1

    @pytest.mark.parametrize("lost", [False, True])
    def test_a_secret_without_an_answer_is_made_by_the_repeat(self, stage: KubernetesStage, lost: bool) -> None:
        stage.cluster.api.fail_next("POST", "/secrets$", Reset, lost=lost)
        stage.submit()
        stage.until_trains()
        (job,) = stage.job_names()
        (secret,) = stage.cluster.objects.of(SECRET)
        assert secret["metadata"]["ownerReferences"][0]["uid"] == stage.cluster.job(job)["metadata"]["uid"]

    def test_a_supervisor_that_dies_between_job_and_secret_leaks_neither(self, stage: KubernetesStage) -> None:
        stage.provider.dies = "before-secret"
        stage.submit()
        stage.until(lambda: stage.supervisor is None, "the supervisor to be killed")
        stage.run_for(MINUTE_S)
        (pod,) = stage.cluster.pods()
        assert pod["status"]["phase"] == "Pending", "it waits for its Secret"
        (job,) = stage.job_names()
        stage.start()
        stage.until_trains()
        assert stage.job_names() == [job]
        assert stage.row().counters.attempts == 1

    def test_a_job_whose_supervisor_never_comes_back_ends_by_itself(self, stage: KubernetesStage) -> None:
        stage.provider.dies = "before-secret"
        stage.submit()
        stage.until(lambda: stage.supervisor is None, "the supervisor to be killed")
        deadline_s = stage.cluster.job(stage.job_names()[0])["spec"]["activeDeadlineSeconds"]
        stage.cluster.step()
        stage.clock.advance(deadline_s)
        stage.cluster.step()
        assert not stage.cluster.pods()
        stage.clock.advance(HOUR_S)
        stage.cluster.step()
        assert stage.cluster.objects.of(JOB) == []
