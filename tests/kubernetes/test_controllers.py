"""The stand-in's controllers say and do what Kubernetes documents: places, ends, conditions, and real processes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.kubernetes import images
from tests.kubernetes.api import NAMESPACE
from tests.kubernetes.cluster import SPOT, Cluster
from tests.kubernetes.containers import Exit
from tests.kubernetes.kinds import EVENT, JOB, POD
from tests.kubernetes.objects import Object, condition_of, is_true
from tests.kubernetes.processes import ProcessRuntime
from tests.kubernetes.quantities import GPU
from tests.kubernetes.still import StillRuntime
from tests.kubernetes.test_api import job
from tests.kubernetes.verbs import Target
from tests.waiting import wait_for

UNKNOWN = "node.kubernetes.io/unreachable"


class Rig:
    def __init__(self) -> None:
        self.now = 1_790_000_000.0
        self.runtime = StillRuntime()
        self.cluster = Cluster(lambda: self.now, self.runtime)

    def after(self, seconds: float) -> None:
        self.now += seconds
        self.cluster.step()

    def submit(self, body: dict[str, Any]) -> Object:
        made = self.cluster.api.verbs.admit(Target(JOB, NAMESPACE), body)
        self.cluster.step()
        return made

    def pod(self) -> Object:
        (pod,) = self.cluster.objects.of(POD)
        return pod

    def events(self) -> list[str]:
        return [f"{event['reason']}: {event['message']}" for event in self.cluster.objects.of(EVENT)]


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.cluster.close()


def reason(resource: Object, kind: str) -> str:
    found = condition_of(resource, kind)
    return "" if found is None else str(found.get("reason", ""))


def placed(body: dict[str, Any], **spec: Any) -> dict[str, Any]:
    body["spec"]["template"]["spec"].update(spec)
    return body


class TestScheduler:
    def test_why_no_node_fits_is_said_word_by_word(self, rig: Rig) -> None:
        rig.cluster.nodes.add("taken", taints=[{"key": "team", "value": "a", "effect": "NoSchedule"}])
        body = placed(job(), nodeSelector={SPOT: "true"})
        body["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"][GPU] = "8"
        rig.submit(body)
        found = condition_of(rig.pod(), "PodScheduled")
        assert found is not None
        assert found["message"] == (
            "0/4 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 1 node(s) had untolerated "
            f"taint {{team: a}}, 2 Insufficient {GPU}. preemption: 0/4 nodes are available: 2 No preemption victims "
            "found for incoming pod, 2 Preemption is not helpful for scheduling."
        )

    def test_a_claim_that_is_missing_or_unbound_keeps_it_waiting(self, rig: Rig) -> None:
        volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
        rig.submit(placed(job(), volumes=volumes))
        assert 'persistentvolumeclaim "data" not found' in condition_of(rig.pod(), "PodScheduled")["message"]  # type: ignore[index]
        rig.cluster.add_claim("data")
        rig.cluster.step()
        assert rig.pod()["status"]["phase"] == "Running"

    def test_a_higher_priority_takes_the_place(self, rig: Rig) -> None:
        for name in ("one", "two"):
            rig.submit(placed(job(name), nodeSelector={SPOT: "true"}))
        rig.cluster.submit_prod(**{GPU: "1"})
        rig.cluster.step()
        assert len(rig.cluster.pods()) == 2
        failed = [each for each in rig.cluster.objects.of(JOB) if is_true(each, "Complete")]
        assert len(failed) == 1, "its container ended with 0 after TERM"
        assert any(text.startswith("Preempted: Preempted by pod ") for text in rig.events())


class TestJobs:
    def test_the_first_failure_ends_a_job_without_retries(self, rig: Rig) -> None:
        made = rig.submit(job())
        rig.cluster.end_container(rig.pod(), 3)
        rig.cluster.step()
        assert (reason(made, "FailureTarget"), reason(made, "Failed")) == ("BackoffLimitExceeded",) * 2
        assert (made["status"]["failed"], rig.pod()["status"]["phase"]) == (1, "Failed")

    def test_a_policy_names_the_disruption(self, rig: Rig) -> None:
        rule = {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
        made = rig.submit(job(podFailurePolicy={"rules": [rule]}))
        pod = rig.pod()
        rig.runtime.containers[pod["metadata"]["name"]].exits = 143
        rig.cluster.evict_by_api(pod)
        rig.cluster.step()
        assert reason(made, "Failed") == "PodFailurePolicy"
        assert condition_of(made, "Failed")["message"] == (  # type: ignore[index]
            f"Pod {NAMESPACE}/{pod['metadata']['name']} has condition DisruptionTarget matching FailJob rule at index 0"
        )

    def test_its_deadline_ends_it_and_its_time_removes_it(self, rig: Rig) -> None:
        made = rig.submit(job(activeDeadlineSeconds=100, ttlSecondsAfterFinished=50))
        rig.runtime.containers[rig.pod()["metadata"]["name"]].exits = None
        rig.after(100)
        assert (reason(made, "FailureTarget"), is_true(made, "Failed")) == ("DeadlineExceeded", False)
        rig.after(29)
        assert not is_true(made, "Failed"), "its pod has its grace period"
        rig.after(1)
        assert reason(made, "Failed") == "DeadlineExceeded"
        rig.after(50)
        assert (rig.cluster.objects.of(JOB), rig.cluster.objects.of(POD)) == ([], [])

    def test_suspended_it_has_no_pod_and_resumed_another_one(self, rig: Rig) -> None:
        made = rig.submit(job())
        first = rig.pod()["metadata"]["uid"]
        made["spec"]["suspend"] = True
        rig.cluster.step()
        assert (rig.cluster.pods(), reason(made, "Suspended"), "failed" in made["status"]) == (
            [],
            "JobSuspended",
            False,
        )
        made["spec"]["suspend"] = False
        rig.cluster.step()
        assert rig.pod()["metadata"]["uid"] != first
        assert not is_true(made, "Suspended")

    def test_a_deleted_pod_is_replaced_only_when_it_is_over(self, rig: Rig) -> None:
        made = rig.submit(job(backoffLimit=1, podReplacementPolicy="Failed"))
        pod = rig.pod()
        rig.runtime.containers[pod["metadata"]["name"]].exits = None
        rig.cluster.delete_pod(pod)
        rig.cluster.step()
        assert (made["status"]["terminating"], len(rig.cluster.objects.of(POD))) == (1, 1)
        rig.after(30)
        assert (made["status"]["failed"], rig.pod()["metadata"]["uid"] == pod["metadata"]["uid"]) == (1, False)


class TestKubelet:
    def test_it_waits_for_volumes_and_for_images(self, rig: Rig) -> None:
        rig.cluster.kubelet.images.problems["train"] = images.GONE
        volumes = [{"name": "keys", "projected": {"sources": [{"secret": {"name": "keys"}}]}}]
        rig.submit(placed(job(), volumes=volumes))
        assert 'FailedMount: MountVolume.SetUp failed for volume "keys" : secret "keys" not found' in rig.events()
        assert not is_true(rig.pod(), "PodReadyToStartContainers")
        rig.cluster.add_secret("keys", key="value")
        rig.cluster.step()
        waiting = rig.pod()["status"]["containerStatuses"][0]["state"]["waiting"]
        assert (waiting["reason"], "not found" in waiting["message"]) == ("ImagePullBackOff", True)
        assert is_true(rig.pod(), "PodReadyToStartContainers")
        rig.cluster.kubelet.images.problems.clear()
        rig.cluster.step()
        assert rig.pod()["status"]["phase"] == "Running"

    def test_too_much_memory_and_a_full_disk_have_reasons_of_their_own(self, rig: Rig) -> None:
        rig.submit(job())
        pod = rig.pod()
        rig.cluster.end_container(pod, 137, oom=True)
        rig.cluster.step()
        assert pod["status"]["containerStatuses"][0]["state"]["terminated"]["reason"] == "OOMKilled"
        rig.submit(job("other"))
        other = rig.cluster.pod("other")
        rig.cluster.kubelet.evict(other, "The node was low on resource: ephemeral-storage. ")
        assert (other["status"]["phase"], other["status"]["reason"]) == ("Failed", "Evicted")
        assert reason(other, "DisruptionTarget") == "TerminationByKubelet"

    def test_a_shutdown_is_graceful_and_fails_the_pod(self, rig: Rig) -> None:
        rig.submit(job())
        pod = rig.pod()
        rig.cluster.kubelet.shut_down(pod["spec"]["nodeName"])
        rig.cluster.step()
        assert (pod["status"]["phase"], pod["status"]["reason"]) == ("Failed", "Terminated")

    def test_a_node_that_is_not_heard_loses_its_pods_after_five_minutes(self, rig: Rig) -> None:
        rig.submit(job())
        pod = rig.pod()
        node = pod["spec"]["nodeName"]
        rig.cluster.kubelet.cut(node)
        rig.after(39)
        assert is_true(pod, "Ready")
        rig.after(1)
        assert [taint["key"] for taint in rig.cluster.nodes.node(node)["spec"]["taints"]] == [UNKNOWN] * 2
        assert (is_true(pod, "Ready"), pod["status"]["phase"]) == (False, "Running")
        rig.after(300)
        assert (reason(pod, "DisruptionTarget"), pod["status"]["phase"]) == ("DeletionByTaintManager", "Running")
        rig.cluster.remove_node(node)
        rig.after(0)
        rig.after(40)
        assert rig.cluster.pods() == []
        assert pod["status"]["phase"] == "Failed"


def test_a_container_is_a_real_process_with_its_volumes_and_its_grace(tmp_path: Path) -> None:
    runtime = ProcessRuntime(tmp_path / "cluster")
    cluster = Cluster(runtime=runtime)
    cluster.add_secret("keys", **{"job.json": "{}"})
    script = 'trap "echo saved >$OUT/saved; exit 7" TERM; cat $KEYS/job.json; echo $NAME at $OUT; '
    script += "while :; do sleep 0.05; done"
    body = placed(
        job(),
        terminationGracePeriodSeconds=20,
        volumes=[{"name": "out", "emptyDir": {}}, {"name": "keys", "secret": {"secretName": "keys"}}],
    )
    body["spec"]["template"]["spec"]["containers"][0].update(
        command=["/bin/sh", "-c", script],
        env=[
            {"name": "OUT", "value": "/out"},
            {"name": "KEYS", "value": "/keys"},
            {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ],
        volumeMounts=[{"name": "out", "mountPath": "/out"}, {"name": "keys", "mountPath": "/keys"}],
    )
    try:
        cluster.api.verbs.admit(Target(JOB, NAMESPACE), body)
        cluster.step()
        (pod,) = cluster.pods()
        root = tmp_path / "cluster" / "pods" / pod["metadata"]["name"]
        log = f"{{}}{pod['metadata']['name']} at {root}/out\n"
        wait_for(lambda: cluster.kubelet.log(pod, "main").decode() == log, what="its first words")
        running = cluster.kubelet.running[pod["metadata"]["uid"]]
        cluster.delete_pod(pod)
        cluster.step()
        assert wait_for(running.poll, what="its end") == Exit(7)
        assert (root / "out" / "saved").read_text() == "saved\n"
    finally:
        cluster.close()
