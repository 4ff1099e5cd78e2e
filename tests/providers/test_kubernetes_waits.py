"""Why a pod is not there yet: each text of the scheduler, of the controllers and of the nodes has its row."""

from __future__ import annotations

from typing import Any

import pytest

from supervisor.domain.causes import NEEDS_PERSON, Cause
from supervisor.domain.machines import MachineState
from supervisor.ports.provider import LaunchRejected, QuotaExceeded
from supervisor.providers.kubernetes.machines import Sighting, epoch, seen
from supervisor.providers.kubernetes.waiting import BUSY_S, NODE_S, SETTLE_S, NoGpu, Pool, Wait, pool_of, refusal
from tests.providers.test_kubernetes_states import CREATED, GPU, container, job, pod

S, C = MachineState, Cause


def unscheduled(message: str, reason: str = "Unschedulable") -> dict[str, Any]:
    row = {"type": "PodScheduled", "status": "False", "reason": reason, "message": message}
    waiting = {"phase": "Pending", "conditions": [row]}
    made = pod(waiting)
    del made["spec"]["nodeName"]
    return made


def wait_of(made: dict[str, Any] | None, *events: dict[str, Any], pool: Pool | None = None) -> Wait:
    """Of a pod that is asked for."""
    meaning = seen(Sighting(job(), [made] if made else [], events, pool), GPU)
    assert meaning.wait is not None
    assert meaning.machine is not None
    assert (meaning.machine.state, meaning.machine.queued) == (S.ASKED, False)
    assert meaning.machine.detail == meaning.wait.text
    return meaning.wait


NO_GPU_FREE = (
    f"0/5 nodes are available: 2 Insufficient {GPU}, 3 node(s) didn't match Pod's node affinity/selector. preemption: "
    "0/5 nodes are available: 5 No preemption victims found for incoming pod."
)


def test_a_pod_that_no_node_takes_waits() -> None:
    for message in (
        NO_GPU_FREE,
        "0/3 nodes are available: 3 Insufficient memory.",
        "0/3 nodes are available: 3 node(s) had untolerated taint {gpu: present}.",
        "0/3 nodes are available: pod has unbound immediate PersistentVolumeClaims.",
        "words of a newer scheduler",
    ):
        wait = wait_of(unscheduled(message))
        assert wait.cause is None
        assert wait.text in message
    assert wait_of(unscheduled("x", "SchedulingGated")).text == "a scheduling gate holds it"
    assert "preemption" not in wait_of(unscheduled(NO_GPU_FREE)).text


def test_gpus_that_no_node_has_are_not_a_lack_of_capacity() -> None:
    assert wait_of(unscheduled(NO_GPU_FREE), pool=Pool(2, 8)).cause is None, "all in use"
    assert wait_of(unscheduled(NO_GPU_FREE), pool=Pool(0, 0)).cause is None, "an autoscaler may add a node"
    wait = wait_of(unscheduled(NO_GPU_FREE), pool=Pool(2, 0))
    assert (wait.cause, wait.after_s) == (C.GPU_UNAVAILABLE, NODE_S)
    assert "device plugin" in wait.text
    assert wait_of(unscheduled("0/2 nodes are available: 2 Insufficient cpu."), pool=Pool(2, 0)).cause is None


def test_a_taint_of_every_node_and_a_claim_that_is_missing_need_a_person() -> None:
    taint = wait_of(unscheduled("0/2 nodes are available: ..."), pool=Pool(2, 8, ("gpu=present:NoSchedule",)))
    assert (taint.cause, taint.after_s) == (C.LAUNCH_REJECTED, NODE_S)
    assert "kubernetes_tolerations" in taint.text
    claim = wait_of(unscheduled('0/2 nodes are available: persistentvolumeclaim "shared" not found.'))
    assert (claim.cause, claim.after_s) == (C.LAUNCH_REJECTED, 0.0)


def event(reason: str, message: str, at: str = CREATED) -> dict[str, Any]:
    return {"reason": reason, "message": message, "lastTimestamp": at}


CREATIONS = [
    ('Error creating: pods "m-x" is forbidden: exceeded quota: team, requested: requests.nvidia.com/gpu=1', C.QUOTA),
    ('Error creating: pods "m-x" is forbidden: violates PodSecurity "restricted:latest"', C.LAUNCH_REJECTED),
    ('Error creating: pods "m-x" is forbidden: error looking up service account ns/x: not found', C.LAUNCH_REJECTED),
    ('Error creating: pods "m-x" is forbidden: no PriorityClass with name low was found', C.LAUNCH_REJECTED),
    ("Error creating: Internal error occurred: failed calling webhook x: connect: connection refused", None),
    ("Error creating: context deadline exceeded: request timed out", None),
]


@pytest.mark.parametrize(("message", "cause"), CREATIONS)
def test_a_pod_that_cannot_be_created(message: str, cause: Cause | None) -> None:
    assert wait_of(None, event("FailedCreate", message)).cause is cause


def test_a_job_that_is_only_young_has_no_pod_yet() -> None:
    assert wait_of(None) == Wait("its pod is not created yet")


def mounting() -> dict[str, Any]:
    rows = [{"type": "PodScheduled", "status": "True"}, {"type": "PodReadyToStartContainers", "status": "False"}]
    return pod({"phase": "Pending", "conditions": rows, **container(waiting={"reason": "ContainerCreating"})})


def test_a_volume_that_another_node_holds_needs_a_person_after_ten_minutes() -> None:
    text = 'Multi-Attach error for volume "pvc-1" Volume is already exclusively attached to one node'
    wait = wait_of(mounting(), event("FailedAttachVolume", text))
    assert (wait.cause, wait.after_s) == (C.LAUNCH_REJECTED, BUSY_S)
    assert wait.text.startswith("volume busy: ")
    assert "pvc-1" in wait.text
    assert wait_of(mounting(), event("FailedAttachVolume", "rpc error: the disk is slow")).cause is None


def test_a_secret_that_is_missing_is_the_runs_own_fault_unless_it_is_ours() -> None:
    own = 'MountVolume.SetUp failed for volume "job" : secret "m" not found'
    assert wait_of(mounting(), event("FailedMount", own)).cause is None
    for text in (own.replace('"m"', '"wandb"'), 'volume "job" : references non-existent secret key: key'):
        wait = wait_of(mounting(), event("FailedMount", text))
        assert (wait.cause, wait.after_s, wait.of_run) == (C.LAUNCH_REJECTED, SETTLE_S, True)
    assert wait_of(mounting(), event("FailedMount", "timeout expired waiting for volumes")).cause is None
    assert wait_of(mounting()).cause is None


def test_the_newest_event_counts() -> None:
    old = event("FailedCreate", "exceeded quota: team", "2026-11-26T09:00:00Z")
    new = event("FailedCreate", "request timed out", "2026-11-26T09:30:00Z")
    assert wait_of(None, old, new).cause is wait_of(None, new, old).cause is None


def test_each_refusal_has_its_error() -> None:
    quota = refusal(Wait("x", C.QUOTA))
    assert isinstance(quota, QuotaExceeded)
    assert quota.scope == "project", "a quota of the namespace is one of all pools"
    assert isinstance(refusal(Wait("x", C.GPU_UNAVAILABLE)), NoGpu)
    rejected = refusal(Wait("x", C.LAUNCH_REJECTED, of_run=True))
    assert isinstance(rejected, LaunchRejected)
    assert rejected.of_run
    assert {
        refusal(Wait("x", cause)).cause for cause in (C.QUOTA, C.GPU_UNAVAILABLE, C.LAUNCH_REJECTED)
    } <= NEEDS_PERSON


def node(labels: dict[str, str], gpus: str = "0", *taints: tuple[str, str, str]) -> dict[str, Any]:
    rows = [{"key": key, "value": value, "effect": effect} for key, value, effect in taints]
    return {"metadata": {"labels": labels}, "spec": {"taints": rows}, "status": {"allocatable": {GPU: gpus}}}


def test_the_nodes_of_a_placement() -> None:
    own, gpu = {"spot": "true"}, ("gpu", "present", "NoSchedule")
    nodes = [node({"spot": "true", "x": "y"}, "8", gpu), node({"pool": "big"}, "4"), node(own, "", gpu)]
    tolerates = [{"key": "gpu", "operator": "Exists"}]
    assert pool_of(nodes, own, tolerates, GPU) == Pool(2, 8)
    assert pool_of(nodes, own, [], GPU) == Pool(2, 8, ("gpu=present:NoSchedule",))
    assert pool_of(nodes, own, [{"key": "gpu", "operator": "Equal", "value": "absent"}], GPU).taints
    assert pool_of([*nodes, node(own)], own, [], GPU).taints == (), "one node takes it"
    booting = node(own, "0", ("node.kubernetes.io/not-ready", "", "NoSchedule"))
    assert pool_of([booting], own, [], GPU).taints == (), "such a taint goes by itself"
    assert pool_of([node(own, "0", ("x", "", "PreferNoSchedule"))], own, [], GPU).taints == ()


@pytest.mark.parametrize(
    ("moment", "at"),
    [(CREATED, 1795687200.0), ("2026-11-26T10:00:00.500000Z", 1795687200.5), ("", None), ("soon", None)],
)
def test_times(moment: str, at: float | None) -> None:
    assert epoch(moment) == at
