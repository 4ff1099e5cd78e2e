"""What a preemption would lose, as the cluster sees it: on the Job, on its pod, and in the order of Kueue's queue."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from supervisor.domain.actions import PublishCheckpoint
from supervisor.domain.causes import Cause
from supervisor.domain.machines import MachineRef
from supervisor.domain.run import Run
from supervisor.ports.provider import ProviderUnavailable
from supervisor.providers.kubernetes.publishing import (
    AGAIN_S,
    BOOST,
    CHECKPOINT_LABEL,
    TOP_STEP,
    Publisher,
    is_read,
    step_of,
)
from supervisor.reconciler.rotation import at_risk
from tests.cloud.web import Reset
from tests.kubernetes.api import BOOST_RIGHTS
from tests.kubernetes.errors import ApiError
from tests.kubernetes.kinds import JOB, WORKLOAD
from tests.kubernetes.objects import Object
from tests.providers.kubernetes_stage import HOUR_S, MINUTE_S, KubernetesStage, kubernetes_stage
from tests.providers.kubernetes_subject import KubernetesSubject
from tests.scenarios.conftest import memory_folder
from tests.scenarios.sim_plan import Plan

AT = 1_790_000_000.7
SECONDS = st.floats(min_value=-1e6, max_value=1e9)


# --- the rule ---------------------------------------------------------------------------------------------------------


@given(SECONDS, SECONDS)
def test_a_larger_loss_never_has_a_lower_step(one: float, other: float) -> None:
    assert 0 <= step_of(min(one, other)) <= step_of(max(one, other)) <= TOP_STEP


def test_steps_are_few_so_that_they_seldom_change() -> None:
    steps = [step_of(60.0 * minutes) for minutes in (0, 4.9, 5, 10, 19, 20, 60, 639, 640, 100_000)]
    assert steps == [0, 0, 1, 2, 2, 3, 4, 7, TOP_STEP, TOP_STEP]


# --- before the tests' cluster ----------------------------------------------------------------------------------------


class Queued:
    """A Job that Kueue has admitted, and whose pod runs."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.subject = KubernetesSubject(folder, **settings)
        cluster = self.cluster = self.subject.cluster
        cluster.kueue.boosts = cluster.kueue.is_open = True
        if "kubernetes_queue" in settings:
            cluster.install_kueue(settings["kubernetes_queue"])
            cluster.api.rights |= BOOST_RIGHTS
        machine = self.subject.provider.launch(self.subject.request("digits"))
        self.ref = MachineRef("kubernetes", machine.zone, machine.name, machine.machine_id)
        for _ in range(5):
            self.subject.step()
        self.publisher = self.fresh()

    def fresh(self) -> Publisher:
        """Of a new process."""
        provider = self.subject.provider
        return Publisher(provider.api, self.subject.settings, provider.listed, self.subject.clock.monotonic)

    def turn(self, at: float | None, unsaved_s: float) -> int:
        """The PATCH requests that it sent."""
        self.subject.provider.machines()
        before = self.cluster.api.count("PATCH")
        self.publisher.publish(self.ref, at, unsaved_s)
        return self.cluster.api.count("PATCH") - before

    @property
    def job(self) -> Object:
        return self.cluster.job(self.ref.name)

    @property
    def labels(self) -> list[str | None]:
        shown = (self.job, self.cluster.pod(self.ref.name))
        return [each["metadata"]["labels"].get(CHECKPOINT_LABEL) for each in shown]

    @property
    def boost(self) -> str | None:
        (workload,) = self.cluster.objects.of(WORKLOAD)
        boost: str | None = workload["metadata"].get("annotations", {}).get(BOOST)
        return boost


@pytest.fixture
def queued(tmp_path: Path) -> Iterator[Queued]:
    made = Queued(tmp_path, kubernetes_queue="gpus")
    yield made
    made.subject.close()


def test_the_time_is_on_job_and_pod_and_the_step_on_the_workload(queued: Queued) -> None:
    assert queued.turn(AT, 10 * 60.0) == 4, "a dry run, the Workload, the pod, the Job"
    assert (queued.labels, queued.boost) == (["1790000000"] * 2, "2")
    assert queued.turn(AT, 19 * 60.0) == 0, "the same step"
    assert queued.turn(AT, 20 * 60.0) == 2, "only a step"
    assert queued.turn(AT + 990, 0.0) == 3, "a new checkpoint"
    assert (queued.labels, queued.boost) == (["1790000990"] * 2, "0")


def test_a_new_process_repeats_nothing(queued: Queued) -> None:
    queued.turn(AT, 600.0)
    queued.publisher = queued.fresh()
    assert queued.turn(AT, 600.0) == 0


def test_without_a_checkpoint_there_is_a_step_and_no_time(queued: Queued) -> None:
    queued.turn(None, 600.0)
    assert (queued.labels, queued.boost) == ([None, None], "2")


@pytest.mark.parametrize("path", ["/workloads/", "/pods/", "/jobs/"])
@pytest.mark.parametrize("is_lost", [False, True])
def test_an_unclear_response_is_repeated_by_the_next_turn(queued: Queued, path: str, is_lost: bool) -> None:
    queued.cluster.api.fail_next("PATCH", path, Reset, lost=is_lost)
    with pytest.raises(ProviderUnavailable):
        queued.turn(AT, 600.0)
    queued.turn(AT, 600.0)
    assert (queued.labels, queued.boost) == (["1790000000"] * 2, "2")


def test_a_kueue_without_the_gate_gets_no_step_and_is_asked_once_an_hour(queued: Queued) -> None:
    queued.cluster.kueue.boosts = False
    assert queued.turn(AT, 600.0) == 3, "a dry run, the pod, the Job"
    assert queued.turn(AT, 3600.0) == 0
    assert (queued.labels, queued.boost) == (["1790000000"] * 2, None)
    queued.subject.clock.advance(AGAIN_S)
    queued.cluster.kueue.boosts = True
    queued.turn(AT, 3600.0)
    assert queued.boost == "4"


def test_without_the_right_or_a_kueue_that_is_new_enough_only_the_label_is_set(queued: Queued) -> None:
    queued.cluster.api.rights -= BOOST_RIGHTS
    assert queued.turn(AT, 600.0) == 2
    queued.cluster.api.kueue_versions = ("v1beta1",)
    queued.subject.clock.advance(AGAIN_S)
    assert queued.turn(AT + 60, 600.0) == 2
    assert (queued.labels, queued.boost) == (["1790000060"] * 2, None)


def test_a_cluster_that_refuses_the_dry_run_gets_the_label_alone(queued: Queued) -> None:
    refused = ApiError(400, "BadRequest", 'admission webhook "other" does not support dry run')
    queued.cluster.api.fail_next("PATCH", "/workloads/", refused)
    queued.turn(AT, 600.0)
    assert (queued.labels, queued.boost) == (["1790000000"] * 2, None)


def test_a_label_that_may_not_be_set_is_tried_once_an_hour(queued: Queued) -> None:
    queued.cluster.api.rights -= {"patch pods"} | BOOST_RIGHTS
    assert (queued.turn(AT, 0.0), queued.turn(AT, 0.0)) == (1, 0)
    queued.subject.clock.advance(AGAIN_S)
    queued.cluster.api.rights.add("patch pods")
    queued.turn(AT, 0.0)
    assert queued.labels == ["1790000000"] * 2


def test_a_job_that_lost_its_place_is_left_alone(queued: Queued) -> None:
    queued.cluster.kueue.is_open = False
    queued.cluster.kueue.evict(queued.job)
    assert queued.turn(AT, 600.0) == 0
    queued.subject.provider.release(queued.ref)
    assert queued.turn(AT, 600.0) == 0


def test_with_a_priority_class_the_label_is_for_other_schedulers(tmp_path: Path) -> None:
    queued = Queued(tmp_path, kubernetes_priority_class="prod")
    assert queued.turn(AT, 600.0) == 2
    assert queued.labels == ["1790000000"] * 2
    assert is_read(queued.subject.settings)
    queued.subject.close()


def test_without_both_nothing_is_published(tmp_path: Path) -> None:
    subject = KubernetesSubject(tmp_path)
    assert not is_read(subject.settings)
    subject.close()


# --- the whole loop ---------------------------------------------------------------------------------------------------


@pytest.fixture
def stage() -> Iterator[KubernetesStage]:
    with memory_folder() as folder, kubernetes_stage(folder, kubernetes_queue="gpus") as stage:
        stage.cluster.install_kueue("gpus")
        stage.cluster.api.rights |= BOOST_RIGHTS
        stage.cluster.kueue.boosts = True
        yield stage


def the_run_that_loses_least_is_preempted(stage: KubernetesStage) -> None:
    """`seldom` was admitted last, so Kueue alone would take that one."""
    stage.cluster.kueue.is_open = True
    for run_id, checkpoint in (("often", 100), ("seldom", 100_000)):
        stage.submit(run_id, Plan(steps=1_000_000, checkpoint=checkpoint))
        stage.until(lambda run_id=run_id: _trains(stage, run_id), f"{run_id} to train")  # type: ignore[misc]
    stage.run_for(HOUR_S)
    stage.cluster.kueue.is_open = False
    assert _of_run(stage.cluster.kueue.preempt()) == "often"
    stage.until(lambda: stage.causes("often") == [Cause.PREEMPTED], "it to be preempted")
    stage.run_for(5 * MINUTE_S)
    assert (stage.causes("seldom"), _trains(stage, "seldom")) == ([], True)
    assert stage.cluster.kueue.preempt(priority=4) is None, "its step protects it from what is hardly higher"
    assert _of_run(stage.cluster.kueue.preempt()) == "seldom", "and from nothing else"


def _of_run(job: Object | None) -> str:
    return "" if job is None else str(job["metadata"]["labels"]["spot-run-id"])


def _trains(stage: KubernetesStage, run_id: str) -> bool:
    live = stage.row(run_id).live_attempt
    return live is not None and live.training_at is not None


def test_the_run_that_loses_least_is_preempted(stage: KubernetesStage) -> None:
    the_run_that_loses_least_is_preempted(stage)


def test_each_turn_of_a_rotation_shows_the_newest_checkpoint(stage: KubernetesStage) -> None:
    stage.cluster.kueue.is_open = True
    stage.submit(plan=Plan(steps=1_000_000, checkpoint=100))
    stage.until_trains()
    stage.run_for(HOUR_S)
    (job,) = stage.cluster.objects.of(JOB)
    pulse = stage.row().pulse
    assert pulse is not None
    shown = int(job["metadata"]["labels"][CHECKPOINT_LABEL])
    assert stage.row().attempt.training_at < shown <= pulse.checkpoint_at  # type: ignore[union-attr]
    assert pulse.checkpoint_at - shown <= 10 * MINUTE_S + 200  # type: ignore[operator]
    assert stage.cluster.api.count("PATCH", "/jobs/") <= HOUR_S / 100 + 2, "no more than there are checkpoints"


def takes_the_age_for_a_merit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("supervisor.providers.kubernetes.publishing.step_of", lambda unsaved_s: -step_of(unsaved_s))


def writes_the_step_on_the_job_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kueue copies no such annotation from a Job."""
    monkeypatch.setattr(Publisher, "_boost", lambda self, uid, step: True)


def counts_only_runs_with_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    def only(run: Run, now: float) -> PublishCheckpoint | None:
        turn = at_risk(run, now)
        return None if turn is None or turn.checkpoint_at is None else turn

    monkeypatch.setattr("supervisor.reconciler.rotation.at_risk", only)


@pytest.mark.parametrize(
    "broken", [takes_the_age_for_a_merit, writes_the_step_on_the_job_alone, counts_only_runs_with_a_checkpoint]
)
def test_a_broken_publisher_is_caught(stage: KubernetesStage, broken: object, monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch)  # type: ignore[operator]
    with pytest.raises(AssertionError):
        the_run_that_loses_least_is_preempted(stage)
